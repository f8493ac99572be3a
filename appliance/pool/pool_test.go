package pool_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/pool"
	"onebit/engine"
	"onebit/engine/backend"
)

func TestOnDemand(t *testing.T) {
	inBox(t, 10, func(t *testing.T, w *world) {
		a := spec("a", 4)
		a.TTL = time.Minute
		w.set(a, spec("b", 4))
		w.expect("a:unloaded b:unloaded")
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { w.must("a", time.Second) })
		}
		synctest.Wait()
		w.expect("a:loading b:unloaded")
		all.Wait()
		if n := w.started("a"); n != 1 {
			t.Errorf("50 requests made %d loads", n)
		}
		s := w.pool.List()[0]
		if s.Phase != pool.Loaded || s.Busy != 0 || !s.Expires.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("%+v", s)
		}
		time.Sleep(59 * time.Second)
		w.must("a", time.Second) // wipes out what was waited
		time.Sleep(59 * time.Second)
		w.expect("a:loaded b:unloaded")
		time.Sleep(3 * time.Second)
		w.expect("a:unloaded b:unloaded")
		if got := w.must("a", 0); got != "a#2" {
			t.Errorf("got %s", got)
		}
		if c := w.pool.Counts()[0]; c.Requests != 52 || c.Loads != 2 || c.Evictions != 0 || c.LoadTime != 20*time.Second {
			t.Errorf("%+v", c)
		}
	})
}

func TestNames(t *testing.T) {
	inBox(t, 10, func(t *testing.T, w *world) {
		if _, err := w.use(t.Context(), "a", 0); !errors.Is(err, pool.ErrUnknown) {
			t.Errorf("error %v", err)
		}
		for _, bad := range [][]pool.ModelSpec{{spec("", 1)}, {spec("a", 1), spec("a", 2)}} {
			if err := w.pool.Set(bad); err == nil {
				t.Errorf("%v was taken", bad)
			}
		}
		if n := len(w.pool.List()); n != 0 {
			t.Errorf("%d models", n)
		}
		for _, f := range []func(context.Context, string) error{w.pool.Load, w.pool.Unload} {
			if err := f(t.Context(), "a"); !errors.Is(err, pool.ErrUnknown) {
				t.Errorf("error %v", err)
			}
		}
	})
	for _, c := range []pool.Config{{}, {Start: (&world{}).start}, {Log: slog.New(slog.DiscardHandler)}} {
		if _, err := pool.New(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

func TestLeastRecentlyUsedGoes(t *testing.T) {
	inBox(t, 12, func(t *testing.T, w *world) {
		w.set(spec("a", 4), spec("b", 4), spec("c", 4), spec("d", 4), spec("e", 8))
		for _, name := range []string{"a", "b", "c", "a"} {
			w.must(name, time.Second)
		}
		w.must("d", 0)
		w.expect("a:loaded b:unloaded c:loaded d:loaded e:unloaded")
		w.must("e", 0) // c and a are the older ones, and both have to go
		w.expect("a:unloaded b:unloaded c:unloaded d:loaded e:loaded")
		if c := w.pool.Counts(); c[1].Evictions != 1 || c[2].Evictions != 1 || c[0].Evictions != 1 || c[3].Evictions != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// TestOnlyWhatIsNeededGoes: the oldest alone does not make room, the next one alone does.
func TestOnlyWhatIsNeededGoes(t *testing.T) {
	inBox(t, 12, func(t *testing.T, w *world) {
		w.set(spec("small", 1), spec("large", 8), spec("other", 3), spec("new", 8))
		for _, name := range []string{"small", "large", "other"} {
			w.must(name, time.Second)
		}
		w.must("new", 0)
		w.expect("large:unloaded new:loaded other:loaded small:loaded")
	})
}

func TestPinnedAndPreloaded(t *testing.T) {
	inBox(t, 12, func(t *testing.T, w *world) {
		a := spec("a", 6)
		a.Pinned, a.Preload, a.TTL = true, true, time.Second
		w.set(a, spec("b", 6), spec("c", 6), spec("d", 7))
		time.Sleep(11 * time.Second)
		w.expect("a:loaded b:unloaded c:unloaded d:unloaded")
		w.must("b", 0)
		w.must("c", 0)
		time.Sleep(time.Hour)
		w.expect("a:loaded b:unloaded c:loaded d:unloaded")
		_, err := w.use(t.Context(), "d", 0)
		full, ok := errors.AsType[*pool.FullError](err)
		if !ok {
			t.Fatalf("error %v", err)
		}
		want := "the model d needs 7.0 GiB of memory; 0.0 GiB of 12.0 GiB are free; loaded: a (6.0 GiB, pinned), c (6.0 GiB, idle)"
		if full.Error() != want {
			t.Errorf("%v\nwant %s", full, want)
		}
		w.expect("a:loaded b:unloaded c:loaded d:unloaded")
		if err := w.pool.Unload(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		w.must("d", 0)
	})
}

// TestTooLarge: what can never fit makes nobody go.
func TestTooLarge(t *testing.T) {
	inBox(t, 12, func(t *testing.T, w *world) {
		w.set(spec("a", 6), spec("b", 13))
		w.must("a", 0)
		begin := time.Now()
		_, err := w.use(t.Context(), "b", 0)
		full, ok := errors.AsType[*pool.FullError](err)
		if !ok || full.Need != 13*gib || full.Total != 12*gib || full.RetryAfter != 0 || time.Since(begin) > 0 {
			t.Fatalf("error %v after %v", err, time.Since(begin))
		}
		w.expect("a:loaded b:unloaded")
	})
}

func TestBusyIsNeverEnded(t *testing.T) {
	inBox(t, 10, func(t *testing.T, w *world) {
		w.set(spec("a", 6), spec("b", 6))
		_, release, err := w.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = w.use(ctx, "b", 0)
		full, ok := errors.AsType[*pool.FullError](err)
		if !ok || len(full.Holders) != 1 || !full.Holders[0].Busy || full.RetryAfter == 0 {
			t.Fatalf("error %v", err)
		}
		gone, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { leave(errors.New("gone")) })
		if _, err := w.use(gone, "b", 0); err == nil || err.Error() != "gone" {
			t.Errorf("error %v", err)
		}
		w.expect("a:draining b:unloaded")
		release()
		w.must("a", 0)
		w.must("b", 0)
	})
}

// TestTurns: two models that never stop being asked for share one place.
func TestTurns(t *testing.T) {
	inBox(t, 10, func(t *testing.T, w *world) {
		w.set(spec("a", 6), spec("b", 6))
		until := time.Now().Add(time.Hour)
		var mu sync.Mutex
		longest, served := map[string]time.Duration{}, map[string]int{}
		var all sync.WaitGroup
		for _, name := range []string{"a", "a", "a", "b", "b"} {
			all.Go(func() {
				for time.Now().Before(until) {
					begin := time.Now()
					l, release, err := w.take(t.Context(), name)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					mu.Lock()
					longest[name] = max(longest[name], time.Since(begin))
					served[name]++
					mu.Unlock()
					if !strings.HasPrefix(l.Backend.Name(), name+"#") {
						t.Errorf("asked for %s, got %s", name, l.Backend.Name())
					}
					time.Sleep(3 * time.Second)
					release()
				}
			})
		}
		all.Wait()
		for _, name := range []string{"a", "b"} {
			if longest[name] > time.Minute || served[name] < 800 {
				t.Errorf("%s: %d served, one waited %v", name, served[name], longest[name])
			}
		}
	})
}

// TestSwaps is case T11: 500 swaps, and no request is lost.
func TestSwaps(t *testing.T) {
	inBox(t, 10, func(t *testing.T, w *world) {
		w.load, w.end = 100*time.Millisecond, 10*time.Millisecond
		w.lag = 20 * time.Millisecond
		w.set(spec("a", 6), spec("b", 6))
		var all sync.WaitGroup
		for i := range 500 {
			name := []string{"a", "b"}[i%2]
			var asked sync.WaitGroup
			for range 3 {
				asked.Add(1)
				all.Go(func() {
					got, err := w.use(t.Context(), name, 50*time.Millisecond)
					asked.Done()
					if err != nil || !strings.HasPrefix(got, name+"#") {
						t.Errorf("swap %d: asked for %s, got %q, %v", i, name, got, err)
					}
				})
			}
			asked.Wait()
		}
		all.Wait()
		if n := w.started("a") + w.started("b"); n != 500 {
			t.Errorf("%d loads", n)
		}
		if c := w.pool.Counts(); c[0].Requests+c[1].Requests != 1500 || c[0].Failures+c[1].Failures != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// TestKilledWhileLoading lets the kernel end a load, as it does when something else takes the memory for a moment: those
// in line wait for one more try, and no more than one.
func TestKilledWhileLoading(t *testing.T) {
	inBox(t, 10, func(t *testing.T, w *world) {
		w.broken["small"] = fmt.Errorf("it ended: signal: killed, as %w", backend.ErrMemory)
		w.set(spec("small", 6))
		if _, err := w.use(t.Context(), "small", 0); err == nil || w.started("small") != 2 {
			t.Errorf("error %v after %d loads", err, w.started("small"))
		}
		time.Sleep(time.Hour)
		w.mu.Lock()
		delete(w.broken, "small")
		w.mu.Unlock()
		w.must("small", 0)
	})
	inBox(t, 10, func(t *testing.T, w *world) {
		w.broken["small"] = backend.ErrMemory
		w.set(spec("small", 6))
		go func() {
			time.Sleep(3 * time.Second)
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.broken, "small")
		}()
		w.must("small", 0)
		if n := w.started("small"); n != 2 {
			t.Errorf("%d loads", n)
		}
	})
}

// TestBroken is case T12: a client asks for a broken model every minute.
func TestBroken(t *testing.T) {
	inBox(t, 10, func(t *testing.T, w *world) {
		w.broken["bad"] = errors.New("unknown model architecture: xyz")
		w.set(spec("bad", 6), spec("good", 6))
		w.must("good", 0)
		for i := range 60 {
			begin := time.Now()
			_, err := w.use(t.Context(), "bad", 0)
			u, ok := errors.AsType[*engine.UnavailableError](err)
			if !ok || u.RetryAfter <= 0 || u.RetryAfter > 5*time.Minute || !strings.Contains(u.Reason, "unknown model architecture") {
				t.Fatalf("error %v", err)
			}
			if i == 0 && u.RetryAfter != 5*time.Second {
				t.Errorf("the first failure: again after %v", u.RetryAfter)
			}
			// a second one, at once, is not a second load
			n := w.started("bad")
			if _, err := w.use(t.Context(), "bad", 0); err == nil || w.started("bad") != n {
				t.Errorf("error %v, %d loads", err, w.started("bad"))
			}
			if got := w.must("good", time.Second); i > 3 && i < 6 && !strings.HasPrefix(got, "good#") {
				t.Errorf("got %s", got)
			}
			time.Sleep(time.Minute - time.Since(begin))
		}
		if n := w.started("bad"); n > 18 || n < 10 {
			t.Errorf("%d loads of the broken model in an hour", n)
		}
		w.mu.Lock()
		delete(w.broken, "bad")
		w.mu.Unlock()
		time.Sleep(5 * time.Minute)
		w.must("bad", 31*time.Second)
		if err := w.pool.Unload(t.Context(), "bad"); err != nil {
			t.Fatal(err)
		}
		if s := w.pool.List()[0]; s.Failures != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestPreloadedAndBroken is tried again by itself, with pauses.
func TestPreloadedAndBroken(t *testing.T) {
	inBox(t, 10, func(t *testing.T, w *world) {
		w.broken["a"] = errors.New("no")
		a := spec("a", 6)
		a.Preload = true
		w.set(a)
		time.Sleep(time.Hour)
		if n := w.started("a"); n < 10 || n > 20 {
			t.Errorf("%d loads in an hour", n)
		}
		w.mu.Lock()
		w.broken["a"] = nil
		w.mu.Unlock()
		time.Sleep(6 * time.Minute)
		w.expect("a:loaded")
	})
}

func TestDeath(t *testing.T) {
	inBox(t, 10, func(t *testing.T, w *world) {
		w.set(spec("a", 6))
		_, release, err := w.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		i := w.alive["a"]
		w.mu.Unlock()
		i.finish(errors.New("it died"))
		w.expect("a:failed")
		release()
		_, err = w.use(t.Context(), "a", 0)
		if u, ok := errors.AsType[*engine.UnavailableError](err); !ok || !strings.Contains(u.Reason, "it died") {
			t.Errorf("error %v", err)
		}
		time.Sleep(5 * time.Second)
		w.must("a", 0)
	})
}

func TestGivingUp(t *testing.T) {
	inBox(t, 10, func(t *testing.T, w *world) {
		w.set(spec("a", 6), spec("b", 6))
		// at each moment of a load, and at its very end
		for _, after := range []time.Duration{0, time.Second, 5 * time.Second, 10*time.Second - 1, 10 * time.Second, 10*time.Second + 1} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			_, err := w.use(ctx, "a", 0)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: %v", after, err)
			}
			synctest.Wait()
			if s := w.pool.List()[0]; s.Busy != 0 || s.Waiting != 0 {
				t.Errorf("after %v: %+v", after, s)
			}
			time.Sleep(20 * time.Second)
			if err := w.pool.Unload(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		// what loads for nobody makes room for somebody
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.use(ctx, "a", 0)
		begin := time.Now()
		w.must("b", 0)
		if took := time.Since(begin); took > 11*time.Second || w.cancels == 0 {
			t.Errorf("b came after %v, %d loads were given up", took, w.cancels)
		}
	})
}

// TestLateMemory: memory that has been let go is seen late, and nobody else has to go for that.
func TestLateMemory(t *testing.T) {
	inBox(t, 12, func(t *testing.T, w *world) {
		w.lag = 3 * time.Second
		w.set(spec("a", 6), spec("b", 6), spec("c", 6))
		w.must("a", 0)
		w.must("b", 0)
		w.must("c", 0)
		w.expect("a:unloaded b:loaded c:loaded")
	})
}

// TestOthersTakeMemory: what other programs have taken counts, and what they have is told.
func TestOthersTakeMemory(t *testing.T) {
	inBox(t, 12, func(t *testing.T, w *world) {
		w.others = 5 * gib
		w.set(spec("a", 6), spec("b", 6), spec("c", 8))
		w.must("a", 0)
		w.must("b", 0)
		w.expect("a:unloaded b:loaded c:unloaded")
		_, err := w.use(t.Context(), "c", 0)
		if full, ok := errors.AsType[*pool.FullError](err); !ok || full.Free != 1*gib {
			t.Errorf("error %v", err)
		}
		w.expect("a:unloaded b:loaded c:unloaded")
	})
}

func TestSet(t *testing.T) {
	inBox(t, 20, func(t *testing.T, w *world) {
		a, b := spec("a", 6), spec("b", 6)
		w.set(a, b)
		old, release, err := w.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		a.TTL = time.Hour // what does not change the process keeps it
		w.set(a, b)
		w.expect("a:loaded b:unloaded")
		a.Version = "2"
		w.set(a)
		w.expect("a:draining")
		if got := w.must("a", 0); got != "a#2" {
			t.Errorf("got %s", got)
		}
		if got := old.Backend.Name(); got != "a#1" {
			t.Errorf("got %s", got)
		}
		w.mu.Lock()
		stops := w.stops["a"]
		w.mu.Unlock()
		if stops != 0 {
			t.Error("the old one was ended in use")
		}
		release()
		release()
		time.Sleep(2 * time.Second)
		w.mu.Lock()
		stops = w.stops["a"]
		w.mu.Unlock()
		if stops != 1 {
			t.Errorf("%d instances were ended", stops)
		}
		if _, err := w.use(t.Context(), "b", 0); !errors.Is(err, pool.ErrUnknown) {
			t.Errorf("error %v", err)
		}
		// those in line for a model that is listed no longer hear of it
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := w.use(t.Context(), "b", 0); !errors.Is(err, pool.ErrUnknown) {
				t.Errorf("in line: %v", err)
			}
		})
		w.set(a, b)
		all.Go(func() {
			if _, err := w.use(t.Context(), "b", 0); !errors.Is(err, pool.ErrUnknown) {
				t.Errorf("in line: %v", err)
			}
		})
		synctest.Wait()
		w.set(a)
		all.Wait()
		// those in line for a model that is listed with other settings get the new one
		w.set(a, b)
		all.Go(func() {
			if got := w.must("b", 0); got != "b#3" && got != "b#2" {
				t.Errorf("got %s", got)
			}
		})
		synctest.Wait()
		b.Version = "2"
		w.set(a, b)
		all.Wait()
	})
}

// TestReloadsKeepOneProcess is T06: however often and however fast a configuration with a preloaded model is read again, changed
// or not, one process of the model is there in the end, none but one that ends beside it meanwhile, and what has not changed is
// not started again.
func TestReloadsKeepOneProcess(t *testing.T) {
	inBox(t, 20, func(t *testing.T, w *world) { // there is memory for three
		a := spec("a", 6)
		a.Preload = true
		at := func(version int) pool.ModelSpec { a.Version = fmt.Sprint(version); return a }
		within := func(most uint64, when string) {
			t.Helper()
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.used > most*gib {
				t.Errorf("%s: %d GiB are used, and not %d", when, w.used/gib, most)
			}
		}
		for range 2 { // saved twice
			w.set(at(1))
		}
		for range 5 { // and while it loads
			time.Sleep(2 * time.Second)
			w.set(at(1))
			within(6, "loading")
		}
		time.Sleep(20 * time.Second)
		w.set(at(1))
		w.expect("a:loaded")
		if n := w.started("a"); n != 1 {
			t.Errorf("it was started %d times", n)
		}
		for version := range 10 { // changed, while the one before loads, ends, or serves
			w.set(at(2 + version))
			w.set(at(2 + version))
			time.Sleep(time.Duration(version) * time.Second)
			within(12, fmt.Sprint("version ", version)) // one that ends, and the next one
		}
		time.Sleep(time.Minute)
		w.expect("a:loaded")
		w.mu.Lock()
		starts, stops, cancels, last := w.starts["a"], w.stops["a"], w.cancels, w.alive["a"].spec.Version
		w.mu.Unlock()
		if starts != stops+cancels+1 || last != "11" {
			t.Errorf("%d starts, %d ends, %d that were given up; version %s serves", starts, stops, cancels, last)
		}
		within(6, "in the end")
	})
}

func TestStopping(t *testing.T) {
	inBox(t, 20, func(t *testing.T, w *world) {
		w.set(spec("a", 6), spec("b", 6))
		_, release, err := w.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(3*time.Second, release)
		go func() {
			_, err := w.use(context.Background(), "b", 0)
			if u, ok := errors.AsType[*engine.UnavailableError](err); !ok || u.Reason != "the box is stopping" {
				t.Errorf("error %v", err)
			}
		}()
		synctest.Wait()
		time.Sleep(4 * time.Second)
	})
}

func TestBackend(t *testing.T) {
	inBox(t, 10, func(t *testing.T, w *world) {
		w.set(spec("a", 6), spec("b", 6))
		a, b := w.pool.Backend("a"), w.pool.Backend("b")
		if a.State() != engine.Ready || a.Name() != "unloaded" || a.Slots() != 1 {
			t.Errorf("%v %s %d", a.State(), a.Name(), a.Slots())
		}
		var all sync.WaitGroup
		for range 20 {
			for _, one := range []engine.Backend{a, b} {
				all.Go(func() {
					if err := one.Ready(t.Context()); err != nil {
						t.Error(err)
					}
					said := ""
					if _, err := one.Generate(t.Context(), &engine.Request{}, func(c engine.Chunk) error { said = string(c.Raw); return nil }); err != nil {
						t.Error(err)
					}
					if want := map[engine.Backend]string{a: "a#", b: "b#"}[one]; !strings.HasPrefix(said, want) {
						t.Errorf("got %q, want %q", said, want)
					}
				})
			}
		}
		all.Wait()
		if s := w.pool.List(); s[0].Busy+s[1].Busy != 0 {
			t.Errorf("%+v", s)
		}
		if c := w.pool.Backend("c"); !errors.Is(c.Ready(t.Context()), pool.ErrUnknown) || c.State() != engine.Down {
			t.Error("a model that is not there is there")
		}
	})
}

// TestKinds: memory of cards and of the machine are apart, except where they are the same.
func TestKinds(t *testing.T) {
	budget := pool.Budget{
		Host:     pool.Memory{Total: 10 * gib, Free: 10 * gib},
		Graphics: map[engine.Device]pool.Memory{engine.Vulkan: {Total: 8 * gib, Free: 8 * gib}},
	}
	for _, c := range []struct {
		name     string
		together uint64
		evicted  bool
	}{{"apart", 0, false}, {"the same", 12, true}} {
		t.Run(c.name, func(t *testing.T) {
			inBox(t, 100, func(t *testing.T, w *world) {
				b := budget
				b.Together = c.together * gib
				p, err := pool.New(pool.Config{Start: w.start, Memory: func() pool.Budget { return b }, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- p.Run(ctx) }()
				defer func() { cancel(); <-ended }()
				p.Set([]pool.ModelSpec{
					{Name: "card", Need: pool.Need{Device: engine.Vulkan, Bytes: 7 * gib}},
					{Name: "host", Need: pool.Need{Device: engine.CPU, Bytes: 7 * gib}},
					{Name: "large", Need: pool.Need{Device: engine.Vulkan, Bytes: 9 * gib}},
				})
				for _, name := range []string{"card", "host"} {
					if err := p.Load(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				}
				if got := p.List()[0].Phase == pool.Unloaded; got != c.evicted {
					t.Errorf("the model on the card: %v", p.List()[0])
				}
				full, ok := errors.AsType[*pool.FullError](p.Load(t.Context(), "large"))
				if !ok || full.Kind != "graphics memory on vulkan" {
					t.Errorf("error %v", full)
				}
			})
		})
	}
}
