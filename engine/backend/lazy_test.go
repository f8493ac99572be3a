package backend_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/backendtest"
)

// lazy runs a Lazy among fakes until the test ends.
func lazy(t *testing.T, w *world, turn chan struct{}) *backend.Lazy {
	t.Helper()
	l, err := backend.NewLazy(backend.LazyConfig{Turn: turn, Child: backend.ChildConfig{
		Name: "hrx", Slots: 2, Log: slog.New(slog.DiscardHandler), Command: func(int) backend.Command { return backend.Command{} },
	}})
	if err != nil {
		t.Fatal(err)
	}
	if w.handler == nil {
		w.handler = &backendtest.Standin{Model: "m"}
	}
	w.owns, w.begin = true, time.Now()
	backend.FakeLazy(l, backend.World{Launch: w.launch, Connect: w.connect, Owns: func(int, int) bool { return true }, Taken: func(int) bool { return false }})
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return l
}

func started(w *world) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.starts)
}

func TestLazyStartsOnFirstUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		l := lazy(t, w, make(chan struct{}, 1))
		time.Sleep(time.Hour)
		if l.State() != engine.Ready || started(w) != 0 || l.Started() || l.Name() != "hrx" || l.Slots() != 2 {
			t.Fatalf("%v, %d starts", l.State(), started(w))
		}
		var no *engine.UnavailableError
		if _, err := l.Generate(t.Context(), &engine.Request{}, nil); !errors.As(err, &no) {
			t.Errorf("before it is started: %v", err)
		}
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if err := l.Ready(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if started(w) != 1 || !l.Started() || l.State() != engine.Ready {
			t.Errorf("%d starts, %v", started(w), l.State())
		}
		if _, err := l.Generate(t.Context(), &engine.Request{Kind: engine.Chat, Raw: []byte(`{"messages":[]}`)}, func(engine.Chunk) error { return nil }); err != nil {
			t.Error(err)
		}
		w.kill()
		synctest.Wait()
		if l.State() != engine.Down {
			t.Errorf("after its end: %v", l.State())
		}
		if err := l.Ready(t.Context()); err != nil || started(w) != 2 || l.Restarts() != 1 {
			t.Errorf("%v, %d starts", err, started(w))
		}
	})
}

// TestLazyFails: a start that fails is told to whoever waits, and the next request tries again.
func TestLazyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{dead: true}
		l := lazy(t, w, make(chan struct{}, 1))
		for n := 1; n <= 3; n++ {
			var no *engine.UnavailableError
			if err := l.Ready(t.Context()); !errors.As(err, &no) || no.Reason != "hrx did not become ready" || started(w) != n {
				t.Fatalf("%v, %d starts", err, started(w))
			}
			if l.State() != engine.Ready || l.Started() {
				t.Errorf("afterwards: %v", l.State())
			}
		}
		w.set(func(w *world) { w.dead = false })
		if err := l.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestLazyGoesOn: whoever leaves while it starts does not stop it, and two do not start at the same time.
func TestLazyGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(w *world) http.Handler {
			standin := &backendtest.Standin{Model: "m"}
			return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				if time.Since(w.begin) < time.Minute {
					http.Error(out, "loading", http.StatusServiceUnavailable)
					return
				}
				standin.ServeHTTP(out, r)
			})
		}
		turn := make(chan struct{}, 1)
		one, two := &world{}, &world{}
		one.handler = slow(one)
		a, b := lazy(t, one, turn), lazy(t, two, turn)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := a.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) || a.Started() {
			t.Fatalf("%v", err)
		}
		begin := time.Now()
		if err := b.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begin); waited < 45*time.Second || started(one) != 1 || !a.Started() {
			t.Errorf("the second waited %v, %d starts of the first", waited, started(one))
		}
	})
}

func TestLazyStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := backend.NewLazy(backend.LazyConfig{Turn: make(chan struct{}, 1), Child: backend.ChildConfig{
			Name: "hrx", Slots: 1, Log: slog.New(slog.DiscardHandler), Command: func(int) backend.Command { return backend.Command{} },
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Run(ctx); err != nil {
			t.Fatal(err)
		}
		var no *engine.UnavailableError
		if err := l.Ready(t.Context()); !errors.As(err, &no) {
			t.Errorf("%v", err)
		}
	})
	if _, err := backend.NewLazy(backend.LazyConfig{}); err == nil {
		t.Error("an empty configuration is taken")
	}
}
