package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/store"
)

func TestUsage(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	add := func(u store.UsageRow) {
		u.Requests = 1
		f.AddUsage(u)
	}
	add(store.UsageRow{Key: "k1", Person: "a", Model: "m", Endpoint: "chat", Prompt: 10, Cached: 4, Completion: 5})
	add(store.UsageRow{Key: "k1", Person: "a", Model: "m", Endpoint: "chat", Prompt: 1, Completion: 1, Errors: 1})
	add(store.UsageRow{Key: "k1", Person: "a", Model: "n", Endpoint: "chat", Prompt: 2, Day: "2026-12-31"})
	f.must(f.Flush(ctx))
	add(store.UsageRow{Key: "k1", Person: "a", Model: "m", Endpoint: "chat", Prompt: 100})
	add(store.UsageRow{Key: "k2", Person: "b", Model: "m", Endpoint: "chat", Prompt: 7})
	n, err := f.TokensToday(ctx, "k1")
	f.must(err)
	same(t, n, int64(117)) // of which 100 are still queued
	f.must(f.Flush(ctx))
	add(store.UsageRow{Key: "k1", Person: "a", Model: "m", Endpoint: "chat", Day: "2027-01-01", Prompt: 1000})
	add(store.UsageRow{Key: "k1", Person: "a", Model: "m", Endpoint: "chat", Prompt: 3})
	n, err = f.TokensToday(ctx, "k1")
	f.must(err)
	same(t, n, int64(120))
	f.clock.add(24 * time.Hour)
	n, err = f.TokensToday(ctx, "k1")
	f.must(err)
	same(t, n, int64(0))
	f.clock.add(-24 * time.Hour)
	n, err = f.TokensToday(ctx, "k1")
	f.must(err)
	same(t, n, int64(120))
	f.must(f.Flush(ctx))

	boss := store.System()
	tests := []struct {
		name   string
		actor  store.Actor
		filter store.UsageFilter
		want   []store.UsageRow
	}{
		{"everything", boss, store.UsageFilter{}, []store.UsageRow{{Requests: 7, Errors: 1, Prompt: 1123, Cached: 4, Completion: 6}}},
		{"by person", boss, store.UsageFilter{ByPerson: true}, []store.UsageRow{
			{Person: "a", Requests: 6, Errors: 1, Prompt: 1116, Cached: 4, Completion: 6}, {Person: "b", Requests: 1, Prompt: 7}}},
		{"one's own", store.Actor{Person: "b"}, store.UsageFilter{ByKey: true}, []store.UsageRow{{Key: "k2", Requests: 1, Prompt: 7}}},
		{"somebody else's", store.Actor{Person: "b"}, store.UsageFilter{Person: "a", ByKey: true}, nil},
		{"a day", boss, store.UsageFilter{To: "2026-12-31", ByDay: true, ByModel: true}, []store.UsageRow{{Day: "2026-12-31", Model: "n", Requests: 1, Prompt: 2}}},
		{"from a day on, one model", boss, store.UsageFilter{From: "2027-01-01", Model: "m", Key: "k1", ByEndpoint: true},
			[]store.UsageRow{{Endpoint: "chat", Requests: 5, Errors: 1, Prompt: 1114, Cached: 4, Completion: 6}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := f.UsageTotals(ctx, tt.actor, tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			if len(tt.want) == 0 && len(got) == 0 {
				return
			}
			same(t, got, tt.want)
		})
	}
}

func TestRequests(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	start := f.clock.Now()
	for i := range 5 {
		f.AddRequest(store.RequestRow{ID: fmt.Sprintf("z%d", 9-i), Person: "a", Key: "k", Model: "m", Status: 200 + 100*i,
			Privacy: store.PrivacyMetadata, PromptText: []byte("secret")})
		f.clock.add(time.Minute)
	}
	f.AddRequest(store.RequestRow{ID: "full", Person: "b", Privacy: store.PrivacyFull, PromptText: []byte("hello"), AnswerText: []byte("world")})
	f.AddRequest(store.RequestRow{ID: "none", Person: "b", Privacy: store.PrivacyNone, PromptText: []byte("hello")})
	f.AddRequest(store.RequestRow{ID: "unset", Person: "b", PromptText: []byte("hello")})
	f.must(f.Flush(ctx))

	a := store.Actor{Person: "a"}
	ids := func(who store.Actor, filter store.RequestFilter) string {
		t.Helper()
		rows, err := f.Requests(ctx, who, filter)
		f.must(err)
		var s []string
		for _, r := range rows {
			s = append(s, r.ID)
		}
		return strings.Join(s, " ")
	}
	same(t, ids(a, store.RequestFilter{}), "z5 z6 z7 z8 z9") // newest first, whatever the ids
	same(t, ids(a, store.RequestFilter{Limit: 2}), "z5 z6")
	same(t, ids(a, store.RequestFilter{Before: "z6", Limit: 2}), "z7 z8")
	same(t, ids(a, store.RequestFilter{Before: "full"}), "") // somebody else's
	same(t, ids(a, store.RequestFilter{Failed: true}), "z5 z6 z7")
	same(t, ids(a, store.RequestFilter{Since: start.Add(time.Minute), Until: start.Add(3 * time.Minute)}), "z7 z8")
	same(t, ids(store.System(), store.RequestFilter{Person: "b"}), "full")
	same(t, ids(store.Actor{}, store.RequestFilter{}), "")

	r, err := f.Request(ctx, a, "z9")
	f.must(err)
	same(t, r, store.RequestRow{ID: "z9", Time: start, Person: "a", Key: "k", Model: "m", Status: 200, Privacy: store.PrivacyMetadata,
		Expires: start.Add(30 * 24 * time.Hour)})
	r, err = f.Request(ctx, store.System(), "full")
	f.must(err)
	same(t, string(r.PromptText)+" "+string(r.AnswerText), "hello world")
	_, err = f.Request(ctx, a, "full")
	wantErr(t, err, store.ErrNotFound)

	f.clock.add(8 * 24 * time.Hour)
	store.Tend(ctx, f.Store)
	same(t, ids(store.System(), store.RequestFilter{Person: "b"}), "") // texts live for a week
	n, err := f.DeleteRequests(ctx, a, store.RequestFilter{Failed: true})
	f.must(err)
	same(t, n, int64(3))
	same(t, ids(a, store.RequestFilter{}), "z8 z9")
	f.clock.add(30 * 24 * time.Hour)
	store.Tend(ctx, f.Store)
	same(t, ids(a, store.RequestFilter{}), "")
}

func TestExpiredTextLeavesTheFile(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	canary := strings.Repeat("canary-in-the-prompt ", 500)
	f.AddRequest(store.RequestRow{ID: "r", Person: "a", Privacy: store.PrivacyFull, PromptText: []byte(canary)})
	f.must(f.Flush(ctx))
	f.clock.add(8 * 24 * time.Hour)
	store.Tend(ctx, f.Store)
	f.must(f.Close())
	for name, b := range readAll(t, f.dir) {
		if strings.Contains(string(b), "canary") {
			t.Errorf("%s still holds an expired prompt", name)
		}
	}
}

// TestGroupCommit shows both triggers in a bubble, where time stands still until everybody waits.
func TestGroupCommit(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, err := store.Open(ctx, store.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		var done sync.WaitGroup
		done.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		stored := func() int64 {
			t.Helper()
			u, err := s.UsageTotals(ctx, store.System(), store.UsageFilter{})
			if err != nil || len(u) == 0 {
				return 0
			}
			return u[0].Requests
		}
		one := func() { s.AddUsage(store.UsageRow{Key: "k", Requests: 1}) }
		one()
		time.Sleep(49 * time.Millisecond)
		synctest.Wait()
		same(t, stored(), int64(0))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		same(t, stored(), int64(1))
		for range 100 {
			one()
		}
		synctest.Wait() // no time passes
		same(t, stored(), int64(101))
		one()
		cancel()
		done.Wait()
		ctx = t.Context()
		same(t, stored(), int64(102)) // the end of Run leaves nothing behind
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTokensTodayNeverJumps(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		defer close(stop)
		for range 300 {
			f.AddUsage(store.UsageRow{Key: "k", Prompt: 1})
			if err := f.Flush(ctx); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var last int64
	for running := true; running; {
		select {
		case <-stop:
			running = false
		default:
		}
		n, err := f.TokensToday(ctx, "k")
		f.must(err)
		if n < last || n > 300 {
			t.Fatalf("%d tokens after %d", n, last)
		}
		last = n
	}
	wg.Wait()
	same(t, last, int64(300))
}

func TestManyWritersAndReaders(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			a := store.System()
			p, err := f.CreatePerson(ctx, a, store.Person{Name: fmt.Sprint("p", i), Role: store.RoleMember})
			if err != nil {
				t.Error(err)
				return
			}
			me := store.Actor{Person: p.ID}
			for j := range 10 {
				hash := hashOf(fmt.Sprint(i, j))
				if _, err := f.CreateKey(ctx, me, store.Key{Name: "k"}, hash); err != nil {
					t.Error(err)
				}
				if _, _, err := f.KeyByHash(ctx, hash); err != nil {
					t.Error(err)
				}
				f.AddUsage(store.UsageRow{Key: "k", Person: p.ID, Requests: 1})
				if err := f.Flush(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	keys, err := f.Keys(ctx, store.System())
	f.must(err)
	same(t, len(keys), 80)
	n, err := f.VerifyAudit(ctx)
	f.must(err)
	same(t, n, int64(88))
}

func TestCancelledCallChangesNothing(t *testing.T) {
	f := open(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.CreatePerson(ctx, store.System(), store.Person{Name: "A", Role: store.RoleMember})
	wantErr(t, err, context.Canceled)
	all, err := f.People(t.Context(), store.System())
	f.must(err)
	same(t, len(all), 0)
	f.person("A", store.RoleMember) // the writer is free
}
