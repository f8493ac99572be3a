package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/store"
)

// digits makes an id.
func digits(n int) string { return fmt.Sprintf("%032x", n) }

// talk is a conversation of somebody.
func talk(f *fixture, who store.Actor, n int) store.Conversation {
	return store.Conversation{
		ID: digits(n), Names: []string{digits(n)}, Owner: who, Place: "small", Class: "code", Confidence: 0.5, Module: "m@12345678", Tokens: 1200, Turns: 1,
		First: f.clock.Now(), Used: f.clock.Now(), Detail: []byte(`{"ranked":["small"]}`),
	}
}

// found tells whether a conversation is known by a name, and which.
func (f *fixture) found(names ...string) string {
	f.t.Helper()
	c, err := f.FindConversation(f.t.Context(), names)
	if err == nil {
		return c.ID
	}
	wantErr(f.t, err, store.ErrNotFound)
	return ""
}

// TestConversations: what is kept is found by each of its names, over a restart, and changes as it goes on.
func TestConversations(t *testing.T) {
	dir := t.TempDir()
	f, ctx := open(t, dir), t.Context()
	ada := f.person("Ada", store.RoleMember)
	c := talk(f, ada, 1)
	c.Until = f.clock.Now().Add(time.Hour)
	f.must(f.PutConversation(c))
	if f.found(digits(1)) != "" {
		t.Error("it does not wait for the group commit")
	}
	f.must(f.Flush(ctx))
	f.clock.add(time.Minute)
	next := c
	next.Names, next.Turns, next.Place, next.Used = []string{digits(2)}, 2, "large", f.clock.Now()
	f.must(f.PutConversation(next))
	next.Names, next.Turns = []string{digits(3)}, 3
	f.must(f.PutConversation(next)) // within one group
	f.must(f.Close())

	g := open(t, dir)
	for _, names := range [][]string{{digits(1)}, {digits(2)}, {digits(3)}, {digits(9), digits(2), digits(7)}} {
		got, err := g.FindConversation(ctx, names)
		g.must(err)
		want := next
		want.Owner, want.Names = store.Actor{}, []string{digits(1), digits(2), digits(3)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: %s", names, diff)
		}
	}
	if g.found(digits(8)) != "" || g.found() != "" {
		t.Error("something is found that was never kept")
	}
}

// TestConversationNames: the first name that is known counts, a name goes over to who was given it last, and the latest stay.
func TestConversationNames(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a, b := talk(f, store.Actor{}, 1), talk(f, store.Actor{}, 2)
	b.Names = []string{digits(2), digits(100)}
	f.must(f.PutConversation(a))
	f.must(f.PutConversation(b))
	f.must(f.Flush(ctx))
	if got := f.found(digits(100), digits(1)) + f.found(digits(1), digits(100)); got != digits(2)+digits(1) {
		t.Error(got)
	}
	a.Names = []string{digits(100)}
	f.must(f.PutConversation(a))
	f.must(f.Flush(ctx))
	if f.found(digits(100)) != digits(1) {
		t.Error("a name stays where it was")
	}
	for n := range store.MaxNames + 3 {
		f.clock.add(time.Second)
		a.Names, a.Used = []string{digits(200 + n)}, f.clock.Now()
		f.must(f.PutConversation(a))
		f.must(f.Flush(ctx))
	}
	c, err := f.FindConversation(ctx, []string{digits(200 + store.MaxNames + 2)})
	f.must(err)
	if len(c.Names) != store.MaxNames || c.Names[0] != digits(203) || f.found(digits(201)) != "" || f.found(digits(1)) != a.ID {
		t.Errorf("%d names are left: %v", len(c.Names), c.Names)
	}
}

// TestConversationsBound: beside so many the one that was longest not asked for goes.
func TestConversationsBound(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	f.must(f.Close())
	s, err := store.Open(ctx, store.Config{Dir: t.TempDir(), Clock: f.clock.Now, Conversations: 100})
	f.must(err)
	defer s.Close()
	for n := range 1000 {
		f.clock.add(time.Second)
		f.must(s.PutConversation(talk(f, store.Actor{}, n)))
		if n%50 == 49 {
			keep := talk(f, store.Actor{}, 0) // it goes on
			f.must(s.PutConversation(keep))
			f.must(s.Flush(ctx))
		}
	}
	n, err := s.Conversations(ctx)
	if err != nil || n < 100 || n > 400 {
		t.Errorf("%d are left, %v", n, err)
	}
	for n, want := range map[int]error{0: nil, 1: store.ErrNotFound, 500: store.ErrNotFound, 999: nil} {
		_, err := s.FindConversation(ctx, []string{digits(n)})
		wantErr(t, err, want)
	}
}

// TestConversationsFair: of too many, each time the oldest goes of whoever has most; of equals, of whose is oldest. A restart changes
// nothing of that.
func TestConversationsFair(t *testing.T) {
	const bound = 60
	for seed := range uint64(12) {
		draw := rand.New(rand.NewPCG(seed, 8))
		dir := t.TempDir()
		f, ctx := open(t, dir), t.Context()
		holders := make([]store.Actor, 1+draw.IntN(8)*draw.IntN(8))
		for i := range holders {
			holders[i] = f.person(fmt.Sprint("p", i), store.RoleMember)
			if i%2 > 0 {
				k, err := f.CreateKey(ctx, holders[i], store.Key{}, hashOf(fmt.Sprint(i)))
				f.must(err)
				holders[i].Key = k.ID
			}
		}
		left := make([][]int, len(holders)) // the oldest first
		put := func(s *store.Store, n int) {
			who := min(draw.IntN(len(holders)), draw.IntN(len(holders))) // some have more
			f.clock.add(time.Second)
			f.must(s.PutConversation(talk(f, holders[who], n)))
			left[who] = append(left[who], n)
		}
		for n := range 150 {
			put(f.Store, n)
		}
		f.must(f.Close())
		s, err := store.Open(ctx, store.Config{Dir: dir, Clock: f.clock.Now, Conversations: bound})
		f.must(err)
		put(s, 150)
		f.must(s.Flush(ctx))
		for range 151 - bound {
			who := 0
			for i := range left {
				if len(left[i]) > len(left[who]) || len(left[i]) == len(left[who]) && len(left[i]) > 0 && left[i][0] < left[who][0] {
					who = i
				}
			}
			left[who] = left[who][1:]
		}
		want := map[int]bool{}
		for _, l := range left {
			for _, n := range l {
				want[n] = true
			}
		}
		for n := range 151 {
			if _, err := s.FindConversation(ctx, []string{digits(n)}); (err == nil) != want[n] {
				t.Errorf("seed %d: of %d holders, conversation %d: %v", seed, len(holders), n, err)
			}
		}
		f.must(s.Close())
	}
}

// TestOneOfVeryMany: a key with very many conversations costs nobody else one.
func TestOneOfVeryMany(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	f.must(f.Close())
	dir := t.TempDir()
	for n := range 3 { // over restarts
		s, err := store.Open(ctx, store.Config{Dir: dir, Clock: f.clock.Now, Conversations: 100})
		f.must(err)
		ada, err := s.CreatePerson(ctx, store.System(), store.Person{Name: fmt.Sprint("Ada", n), Role: store.RoleMember})
		f.must(err)
		f.must(s.PutConversation(talk(f, store.Actor{Person: ada.ID}, n)))
		for many := range 600 {
			f.clock.add(time.Second)
			f.must(s.PutConversation(talk(f, store.Actor{}, 1000*(n+1)+many)))
			if many%50 == 49 {
				f.must(s.Flush(ctx))
			}
		}
		for before := range n + 1 {
			if _, err := s.FindConversation(ctx, []string{digits(before)}); err != nil {
				t.Errorf("the only conversation of somebody: %v", err)
			}
		}
		if kept, err := s.Conversations(ctx); err != nil || kept > 400 {
			t.Errorf("%d are kept, %v", kept, err)
		}
		f.must(s.Close())
	}
}

// TestConversationsGo: they go with their key, with their person, and when an admin says so; what was still on its way does
// not come back.
func TestConversationsGo(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	ada, bea := f.person("Ada", store.RoleMember), f.person("Bea", store.RoleMember)
	key := func(a store.Actor, n int) store.Actor {
		k, err := f.CreateKey(ctx, a, store.Key{}, hashOf(fmt.Sprint(n)))
		f.must(err)
		a.Key = k.ID
		return a
	}
	one, two, beas := key(ada, 1), key(ada, 2), key(bea, 3)
	all := []store.Actor{one, two, beas, ada, bea, {}, store.System()}
	put := func() {
		for n, who := range all {
			f.must(f.PutConversation(talk(f, who, n+1)))
		}
	}
	left := func() string {
		var there []string
		for n := range all {
			if f.found(digits(n+1)) != "" {
				there = append(there, fmt.Sprint(n+1))
			}
		}
		return strings.Join(there, " ")
	}
	steps := []struct {
		name string
		do   func() error
		want string
	}{
		{"nothing", func() error { return nil }, "1 2 3 4 5 6 7"},
		{"a key is deleted", func() error { return f.DeleteKey(ctx, ada, one.Key) }, "2 3 4 5 6 7"},
		{"the latest of it comes after that", func() error { f.must(f.PutConversation(talk(f, one, 1))); return f.Flush(ctx) }, "2 3 4 5 6 7"},
		{"an admin forgets those of a key", func() error { return gone(f, store.Actor{Key: beas.Key}, 1) }, "2 4 5 6 7"},
		{"an admin forgets those of a person", func() error { return gone(f, store.Actor{Person: bea.Person}, 1) }, "2 4 6 7"},
		{"a person is deleted", func() error { return f.DeletePerson(ctx, store.System(), ada.Person) }, "6 7"},
		{"an admin forgets all", func() error { return gone(f, store.Actor{}, 2) }, ""},
	}
	for i, s := range steps {
		if i == 0 {
			put()
		}
		f.must(f.Flush(ctx))
		f.must(s.do())
		if got := left(); got != s.want {
			t.Errorf("%s: %q is left, want %q", s.name, got, s.want)
		}
	}
	put() // of whom there is no key and no person any more
	f.must(f.Flush(ctx))
	if got := left(); got != "3 5 6 7" {
		t.Errorf("%q came back", got)
	}
	f.must(f.PutConversation(talk(f, bea, 5)))
	f.must(gone(f, store.Actor{Person: bea.Person}, 2)) // with what waits
	f.must(f.Flush(ctx))
	if got := left(); got != "6 7" {
		t.Errorf("%q is left", got)
	}
	_, err := f.DeleteConversations(ctx, bea, store.Actor{Person: bea.Person})
	wantErr(t, err, store.ErrForbidden)
}

func gone(f *fixture, of store.Actor, want int64) error {
	n, err := f.DeleteConversations(context.Background(), store.System(), of)
	if n != want {
		f.t.Errorf("%+v: %d went, want %d", of, n, want)
	}
	return err
}

// TestConversationRefused: what could not be found or read again is not kept.
func TestConversationRefused(t *testing.T) {
	f := open(t, t.TempDir())
	for name, change := range map[string]func(c *store.Conversation){
		"a short id":         func(c *store.Conversation) { c.ID = "12" },
		"no digits":          func(c *store.Conversation) { c.ID = strings.Repeat("x", 32) },
		"a bad name":         func(c *store.Conversation) { c.Names = []string{"x"} },
		"no place":           func(c *store.Conversation) { c.Place = "" },
		"no JSON":            func(c *store.Conversation) { c.Detail = []byte(`{`) },
		"too long a detail":  func(c *store.Conversation) { c.Detail = slices.Concat([]byte(`"`), make([]byte, 40<<10), []byte(`"`)) },
		"no detail":          func(c *store.Conversation) { c.Detail = nil },
		"a long, good thing": func(c *store.Conversation) { c.Detail = []byte(`"` + strings.Repeat("x", 40<<10) + `"`) },
	} {
		c := talk(f, store.Actor{}, 1)
		change(&c)
		if err := f.PutConversation(c); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestKnownConversations: once the store has learnt the names on its disk, what is new is known to be new, and nothing that is
// kept is taken for new.
func TestKnownConversations(t *testing.T) {
	dir := t.TempDir()
	f, ctx := open(t, dir), t.Context()
	ada := f.person("Ada", store.RoleMember)
	for n := range 50 {
		f.must(f.PutConversation(talk(f, ada, n)))
	}
	f.must(f.Flush(ctx))
	f.must(f.Close())

	g := open(t, dir)
	f.must(g.Learn(ctx))
	for n := range 50 {
		if got := g.found(digits(n)); got != digits(n) {
			t.Errorf("%d of the disk is found as %q", n, got)
		}
	}
	for n := range 100 {
		c := talk(g, ada, 1000+n)
		c.Names = []string{digits(5000 + n)}
		g.must(g.PutConversation(c))
	}
	g.must(g.Flush(ctx))
	looked := 0
	for n := range 100 {
		if got := g.found(digits(9), digits(5000+n)); got != digits(9) {
			t.Errorf("beside another: %q", got)
		}
		if got := g.found(digits(5000 + n)); got != digits(1000+n) {
			t.Errorf("%d is found as %q", n, got)
		}
		if g.MayKnow(digits(100_000 + n)) {
			looked++
		}
	}
	if looked > 2 {
		t.Errorf("%d of 100 new ones are looked for on the disk", looked)
	}
	if g.MayKnow(digits(1)) != true || g.MayKnow("no name") != true {
		t.Error("what is known, or no name, is taken for new")
	}
}
