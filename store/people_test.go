package store_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/store"
)

func TestPeople(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	boss := f.person("Ada", store.RoleAdmin)
	member := f.person("Bo", store.RoleMember)

	_, err := f.CreatePerson(ctx, boss, store.Person{Name: "ADA", Role: store.RoleMember})
	wantErr(t, err, store.ErrConflict)
	_, err = f.CreatePerson(ctx, boss, store.Person{Name: "C", Role: "king"})
	wantErr(t, err, store.ErrInvalid)
	_, err = f.CreatePerson(ctx, boss, store.Person{Name: "", Role: store.RoleMember})
	wantErr(t, err, store.ErrInvalid)
	_, err = f.CreatePerson(ctx, member, store.Person{Name: "D", Role: store.RoleMember})
	wantErr(t, err, store.ErrForbidden)

	p, err := f.PersonByName(ctx, boss, "bO")
	f.must(err)
	same(t, p, store.Person{ID: member.Person, Name: "Bo", Role: store.RoleMember, Created: f.clock.Now()})

	p.Name = "Bob"
	f.must(f.UpdatePerson(ctx, member, p))
	p.Role = store.RoleAdmin
	wantErr(t, f.UpdatePerson(ctx, member, p), store.ErrForbidden)
	p.Role, p.Expires = store.RoleGuest, f.clock.Now().Add(time.Hour)
	f.must(f.UpdatePerson(ctx, boss, p))
	got, err := f.Person(ctx, boss, p.ID)
	f.must(err)
	same(t, got, p)
	if !got.Active(f.clock.Now()) || got.Active(p.Expires) {
		t.Error("expiry is not kept to")
	}

	ada, err := f.Person(ctx, boss, boss.Person)
	f.must(err)
	wantErr(t, f.DeletePerson(ctx, boss, ada.ID), store.ErrConflict)
	for _, change := range []func(p *store.Person){
		func(p *store.Person) { p.Disabled = true },
		func(p *store.Person) { p.Role = store.RoleMember },
		func(p *store.Person) { p.Expires = f.clock.Now() },
	} {
		last := ada
		change(&last)
		wantErr(t, f.UpdatePerson(ctx, boss, last), store.ErrConflict)
	}
	all, err := f.People(ctx, boss)
	f.must(err)
	same(t, all, []store.Person{ada, p})
}

func TestDeletePersonTakesAllOfTheirs(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a := f.person("A", store.RoleMember)
	k, err := f.CreateKey(ctx, a, store.Key{Name: "k"}, hashOf("secret"))
	f.must(err)
	_, err = f.CreateLogin(ctx, hashOf("cookie"), store.Login{Person: a.Person, Expires: f.clock.Now().Add(time.Hour)})
	f.must(err)
	blob, _, err := f.PutBlob(ctx, a, strings.NewReader("mine"))
	f.must(err)
	f.AddRequest(store.RequestRow{ID: "r1", Person: a.Person, Key: k.ID, Privacy: store.PrivacyMetadata})
	f.AddUsage(store.UsageRow{Key: k.ID, Person: a.Person, Requests: 1})
	f.must(f.Flush(ctx))

	changed := f.AccessChanged()
	f.must(f.DeletePerson(ctx, store.System(), a.Person))
	select {
	case <-changed:
	default:
		t.Error("nobody was told")
	}
	_, _, err = f.KeyByHash(ctx, hashOf("secret"))
	wantErr(t, err, store.ErrNotFound)
	_, _, err = f.LoginByHash(ctx, hashOf("cookie"))
	wantErr(t, err, store.ErrNotFound)
	_, err = f.Blob(ctx, store.System(), blob, &strings.Builder{})
	wantErr(t, err, store.ErrNotFound)
	_, err = f.Request(ctx, store.System(), "r1")
	wantErr(t, err, store.ErrNotFound)
	u, err := f.UsageTotals(ctx, store.System(), store.UsageFilter{})
	f.must(err)
	same(t, u, []store.UsageRow{{Requests: 1}})
}

func TestInvites(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	boss := f.person("Boss", store.RoleAdmin)
	i, err := f.CreateInvite(ctx, boss, hashOf("code"), store.Invite{Role: store.RoleGuest, Name: "Guest", Expires: f.clock.Now().Add(time.Hour)})
	f.must(err)
	_, err = f.CreateInvite(ctx, store.Actor{Person: "x"}, hashOf("code2"), store.Invite{Role: store.RoleGuest})
	wantErr(t, err, store.ErrForbidden)
	all, err := f.Invites(ctx, boss)
	f.must(err)
	same(t, all, []store.Invite{i})

	_, err = f.TakeInvite(ctx, hashOf("code"), store.Newcomer{Name: "boss"})
	wantErr(t, err, store.ErrConflict)
	_, err = f.InviteByHash(ctx, hashOf("code"))
	f.must(err) // a taken name does not use it up
	p, err := f.TakeInvite(ctx, hashOf("code"), store.Newcomer{Password: "$x"})
	f.must(err)
	same(t, p, store.Person{ID: p.ID, Name: "Guest", Role: store.RoleGuest, Created: f.clock.Now()})
	_, err = f.TakeInvite(ctx, hashOf("code"), store.Newcomer{Name: "Second"})
	wantErr(t, err, store.ErrNotFound)

	_, err = f.CreateInvite(ctx, boss, hashOf("late"), store.Invite{Role: store.RoleMember, Expires: f.clock.Now()})
	f.must(err)
	_, err = f.TakeInvite(ctx, hashOf("late"), store.Newcomer{Name: "Late"})
	wantErr(t, err, store.ErrNotFound)
}

func TestInviteIsTakenOnce(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	_, err := f.CreateInvite(ctx, store.System(), hashOf("code"), store.Invite{Role: store.RoleMember, Expires: f.clock.Now().Add(time.Hour)})
	f.must(err)
	won := race(8, func(i int) bool {
		_, err := f.TakeInvite(ctx, hashOf("code"), store.Newcomer{Name: string(rune('a' + i))})
		return err == nil
	})
	same(t, won, 1)
}

func TestClaimHappensOnce(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	claimed, err := f.Claimed(ctx)
	f.must(err)
	same(t, claimed, false)
	won := race(8, func(i int) bool {
		recovery := hashOf(string(rune('r' + i)))
		_, err := f.Claim(ctx, store.ClaimRequest{
			Admin:    store.Newcomer{Name: string(rune('a' + i)), Password: "$x", Recovery: &recovery},
			Settings: map[string]json.RawMessage{"box.name": json.RawMessage(`"den"`)},
		})
		return err == nil
	})
	same(t, won, 1)
	all, err := f.People(ctx, store.System())
	f.must(err)
	if len(all) != 1 || all[0].Role != store.RoleAdmin {
		t.Fatalf("people: %v", all)
	}
	v, err := f.Setting(ctx, "box.name")
	f.must(err)
	same(t, string(v), `"den"`)
	f.must(f.Close())
	f.reopen(nil)
	if claimed, err = f.Claimed(ctx); err != nil || !claimed {
		t.Fatalf("claimed %t, %v after a restart", claimed, err)
	}
}

// race runs f n times at once and counts the successes.
func race(n int, f func(i int) bool) int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range n {
		wg.Go(func() {
			if f(i) {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return won
}
