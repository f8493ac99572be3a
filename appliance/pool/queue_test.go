package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/pool"
	"onebit/appliance/queue"
	"onebit/engine"
)

// served notes in which order requests had their leases.
type served struct {
	mu    sync.Mutex
	names []string
}

func (s *served) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
}

func (s *served) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.names, " ")
}

// inLine runs a test in a box with the bounds of a queue, which has room for one of its models at a time; each has so many
// slots.
func inLine(t *testing.T, slots int, q pool.Queue, names string, f func(t *testing.T, w *world)) {
	t.Helper()
	inBox(t, 10, func(t *testing.T, w *world) {
		w.queueOf(slots, q)
		var specs []pool.ModelSpec
		for _, name := range strings.Fields(names) {
			specs = append(specs, spec(name, 6))
		}
		w.set(specs...)
		f(t, w)
	})
}

// ask has a request hold a lease so long, which then sees first; it is in line when ask returns.
func (w *world) ask(a pool.Ask, hold time.Duration, then func(*pool.Lease)) {
	w.all.Go(func() {
		l, err := w.pool.Acquire(w.t.Context(), a)
		if err != nil {
			w.t.Errorf("%+v: %v", a, err)
			return
		}
		if then != nil {
			then(l)
		}
		time.Sleep(hold)
		l.Finish(engine.Usage{Completion: int(hold / time.Millisecond)})
	})
	synctest.Wait()
}

// queueOf sets the bounds of a box, in which models have so many slots.
func (w *world) queueOf(slots int, q pool.Queue) {
	w.slots = slots
	w.pool.SetQueue(q)
}

// TestCollation is case T09: A B A A C A B C are served with three loads, as A A A A B B C C.
func TestCollation(t *testing.T) {
	inLine(t, 1, pool.Queue{}, "A B C", func(t *testing.T, w *world) {
		var order served
		for _, name := range strings.Fields("A B A A C A B C") {
			w.ask(pool.Ask{Model: name, Key: "k"}, time.Second, func(l *pool.Lease) { order.add(l.Model) })
		}
		w.all.Wait()
		if order.String() != "A A A A B B C C" {
			t.Errorf("served %s", &order)
		}
		if n := w.started("A") + w.started("B") + w.started("C"); n != 3 {
			t.Errorf("%d loads", n)
		}
		if c := w.pool.Counts(); c[0].Swaps != 0 || c[1].Swaps != 1 || c[2].Swaps != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// TestMaxWait: requests for a loaded model that never end hold up another one's no longer than MaxWait, and are not cut.
func TestMaxWait(t *testing.T) {
	inLine(t, 2, pool.Queue{MaxWait: 60 * time.Second}, "A C", func(t *testing.T, w *world) {
		w.must("A", time.Second)
		w.must("C", time.Second) // how long both take is known
		until := time.Now().Add(10 * time.Minute)
		for range 4 {
			w.all.Go(func() {
				for time.Now().Before(until) {
					if _, err := w.use(t.Context(), "A", 2*time.Second); err != nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(2 * time.Minute)
		begin := time.Now()
		w.must("C", 0)
		if waited := time.Since(begin); waited > 61*time.Second || waited < 50*time.Second {
			t.Errorf("C waited %v", waited)
		}
	})
}

// TestUrgency: what is interactive makes a busy model go sooner, what is in the background later.
func TestUrgency(t *testing.T) {
	for _, c := range []struct {
		priority  queue.Priority
		from, end time.Duration
	}{
		{queue.Interactive, 25 * time.Second, 35 * time.Second}, {queue.Normal, 50 * time.Second, 65 * time.Second},
		{queue.Background, 220 * time.Second, 245 * time.Second},
	} {
		t.Run(c.priority.String(), func(t *testing.T) {
			inLine(t, 1, pool.Queue{MaxWait: time.Minute}, "A B", func(t *testing.T, w *world) {
				ctx, stop := context.WithCancel(t.Context())
				for range 3 {
					w.all.Go(func() {
						for ctx.Err() == nil {
							w.use(ctx, "A", time.Second)
						}
					})
				}
				time.Sleep(5 * time.Minute)
				w.ask(pool.Ask{Model: "B", Priority: c.priority}, 0, func(l *pool.Lease) {
					if l.Waited < c.from || l.Waited > c.end || !l.Loaded || l.Position != 1 {
						t.Errorf("waited %v at place %d", l.Waited, l.Position)
					}
					stop()
				})
			})
		})
	}
}

// TestWeight: while two keys wait, one of twice the weight has twice the turns.
func TestWeight(t *testing.T) {
	inLine(t, 1, pool.Queue{}, "A", func(t *testing.T, w *world) {
		w.must("A", 0)
		var mu sync.Mutex
		turns := map[string]int{}
		for range 12 {
			for key, weight := range map[string]float64{"one": 1, "two": 2} {
				w.ask(pool.Ask{Model: "A", Key: key, Weight: weight, Prompt: 800, Answer: 100}, time.Second, func(*pool.Lease) {
					mu.Lock()
					defer mu.Unlock()
					if turns["one"]+turns["two"] < 15 {
						turns[key]++
					}
				})
			}
		}
		w.all.Wait()
		if turns["two"] < 9 || turns["two"] > 11 {
			t.Errorf("the first 15 turns: %v", turns)
		}
	})
}

// TestSlots: a loaded model gives as many leases as it has slots, and what needs none has its lease at once.
func TestSlots(t *testing.T) {
	inLine(t, 3, pool.Queue{}, "A", func(t *testing.T, w *world) {
		w.must("A", 0)
		var mu sync.Mutex
		most := 0
		for i := range 30 {
			w.ask(pool.Ask{Model: "A", Key: fmt.Sprint(i % 5)}, time.Second, func(l *pool.Lease) {
				mu.Lock()
				defer mu.Unlock()
				most = max(most, w.pool.List()[0].Busy)
			})
		}
		if s := w.pool.List()[0]; s.Busy != 3 || s.Waiting != 27 || s.Slots != 3 || s.Line.Keys != 5 || s.Line.Lengths[1] != 27 || s.Line.Wait < time.Second {
			t.Errorf("%+v", s)
		}
		w.ask(pool.Ask{Model: "A", Aside: true}, time.Minute, func(l *pool.Lease) {
			if l.Waited > 0 || l.Position != 0 {
				t.Errorf("what needs no slot has waited %v", l.Waited)
			}
		})
		if l, err := w.pool.Acquire(t.Context(), pool.Ask{Model: "A", There: true, Aside: true}); err != nil {
			t.Error(err)
		} else {
			l.Release()
		}
		begin := time.Now()
		w.all.Wait()
		if took := time.Since(begin); most > 4 || took != time.Minute {
			t.Errorf("%d leases at once, all through after %v", most, took)
		}
	})
}

// TestBound is case T20: one may wait, and of six requests to a loaded model four are refused at once, with a time.
func TestBound(t *testing.T) {
	inLine(t, 1, pool.Queue{Length: 1}, "A", func(t *testing.T, w *world) {
		w.must("A", 4*time.Second)
		refused, served := 0, 0
		var mu sync.Mutex
		for range 6 {
			w.all.Go(func() {
				begin := time.Now()
				l, err := w.pool.Acquire(t.Context(), pool.Ask{Model: "A", Key: "k"})
				mu.Lock()
				defer mu.Unlock()
				if busy, ok := errors.AsType[*pool.BusyError](err); ok {
					refused++
					if time.Since(begin) > 0 || busy.PerKey || busy.Length != 1 || busy.Wait < 4*time.Second || busy.Wait > 12*time.Second {
						t.Errorf("refused after %v: %v", time.Since(begin), busy)
					}
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				served++
				go func() {
					time.Sleep(4 * time.Second)
					l.Release()
				}()
			})
		}
		w.all.Wait()
		if refused != 4 || served != 2 || w.pool.Counts()[0].Refused != 4 {
			t.Errorf("%d refused, %d served, %+v", refused, served, w.pool.Counts())
		}
		w.queueOf(1, pool.Queue{PerKey: 1})
		time.Sleep(time.Minute)
		for range 2 {
			w.ask(pool.Ask{Model: "A", Key: "k"}, time.Second, nil)
		}
		_, err := w.pool.Acquire(t.Context(), pool.Ask{Model: "A", Key: "k"})
		if busy, ok := errors.AsType[*pool.BusyError](err); !ok || !busy.PerKey {
			t.Errorf("%v", err)
		}
		w.ask(pool.Ask{Model: "A", Key: "other"}, time.Second, nil)
	})
}

// TestLeaving: who leaves is gone from the line at once, and those behind move up.
func TestLeaving(t *testing.T) {
	inLine(t, 1, pool.Queue{}, "A", func(t *testing.T, w *world) {
		w.must("A", 0)
		w.ask(pool.Ask{Model: "A", Key: "k"}, time.Minute, nil)
		ctx, leave := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		for range 20 {
			w.all.Go(func() {
				if _, err := w.pool.Acquire(ctx, pool.Ask{Model: "A", Key: "k"}); !errors.Is(err, gone) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		w.ask(pool.Ask{Model: "A", Key: "k"}, 0, func(l *pool.Lease) {
			if l.Position != 21 || time.Since(begin) != time.Minute {
				t.Errorf("was at place %d, and served after %v", l.Position, time.Since(begin))
			}
		})
		leave(gone)
		synctest.Wait()
		if s := w.pool.List()[0]; s.Waiting != 1 || time.Since(begin) > 0 {
			t.Errorf("%d wait after %v", s.Waiting, time.Since(begin))
		}
	})
}

// TestOneKeyDoesNotHoldUpAnother: the request of a key that asks once comes next, whatever stands in line of others'.
func TestOneKeyDoesNotHoldUpAnother(t *testing.T) {
	inLine(t, 2, pool.Queue{}, "A", func(t *testing.T, w *world) {
		for range 100 {
			w.ask(pool.Ask{Model: "A", Key: "many", Prompt: 100}, 5*time.Second, nil)
		}
		time.Sleep(time.Minute)
		w.ask(pool.Ask{Model: "A", Key: "one", Prompt: 100}, 5*time.Second, func(l *pool.Lease) {
			if l.Waited > 10*time.Second || l.Position > 2 {
				t.Errorf("the only request of a key waited %v at place %d", l.Waited, l.Position)
			}
		})
	})
}

// TestEstimatedWait compares what those who come are told they would wait with what they do, for lines of all lengths, models
// in memory, loading and away.
func TestEstimatedWait(t *testing.T) {
	const factor = 2
	for seed := range uint64(30) {
		inBox(t, 10, func(t *testing.T, w *world) {
			draw := rand.New(rand.NewPCG(seed, 9))
			w.queueOf(1+draw.IntN(6), pool.Queue{})
			w.pool.SetWait(5 * time.Hour)
			w.set(spec("A", 6), spec("B", 6))
			mean := time.Duration(1+draw.IntN(20)) * time.Second
			hold := func() time.Duration { return mean/2 + time.Duration(draw.Int64N(int64(mean))) }
			for _, name := range []string{"B", "A", "B", "A"} {
				w.must(name, hold())
			}
			asked := "A"
			if draw.IntN(2) == 0 {
				asked = "B"
			}
			for range 3 + draw.IntN(60) {
				w.ask(pool.Ask{Model: asked, Key: "k"}, hold(), nil)
			}
			time.Sleep(time.Duration(draw.IntN(5)) * time.Second)
			told := time.Duration(0)
			for _, s := range w.pool.List() {
				if s.Name == asked {
					told = s.Line.Wait
				}
			}
			w.ask(pool.Ask{Model: asked, Key: "k"}, 0, func(l *pool.Lease) {
				if ratio := told.Seconds() / l.Waited.Seconds(); ratio > factor || ratio < 1/factor {
					t.Errorf("seed %d: told %v, waited %v at place %d", seed, told, l.Waited, l.Position)
				}
			})
		})
	}
}

// TestThere: what only goes where a model is loaded loads none, and stands in line where one is; a wait that takes too
// long says which, and how long.
func TestThere(t *testing.T) {
	inLine(t, 1, pool.Queue{}, "A", func(t *testing.T, w *world) {
		b := w.pool.BackendFor(pool.Ask{Model: "A", Priority: queue.Interactive, There: true})
		_, err := b.Generate(t.Context(), &engine.Request{}, nil)
		if u, ok := errors.AsType[*engine.UnavailableError](err); !ok || u.RetryAfter == 0 || w.started("A") != 0 {
			t.Errorf("%v, %d loads", err, w.started("A"))
		}
		w.must("A", 0)
		w.ask(pool.Ask{Model: "A", Key: "k"}, time.Minute, nil)
		begin := time.Now()
		w.all.Go(func() {
			if _, err := b.Generate(t.Context(), &engine.Request{}, func(engine.Chunk) error { return nil }); err != nil || time.Since(begin) < time.Minute {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		})
		synctest.Wait()
		if s := w.pool.List()[0]; s.Line.Lengths[0] != 1 || s.Line.Keys != 1 || !s.Line.Oldest.Equal(begin) {
			t.Errorf("%+v", s.Line)
		}
		w.pool.SetWait(10 * time.Second)
		_, err = w.pool.Acquire(t.Context(), pool.Ask{Model: "A"})
		if limit, ok := errors.AsType[*engine.TimeoutError](err); !ok || !strings.Contains(limit.Timer, "a turn of the model A") || limit.Limit != 10*time.Second {
			t.Errorf("%v", err)
		}
	})
}

// TestBoundsOfAside: what needs no slot is bounded as well while it waits for a load.
func TestBoundsOfAside(t *testing.T) {
	inLine(t, 1, pool.Queue{Length: 2}, "A", func(t *testing.T, w *world) {
		for range 2 {
			w.ask(pool.Ask{Model: "A", Key: "k"}, 0, nil)
		}
		if _, err := w.pool.Acquire(t.Context(), pool.Ask{Model: "A", Aside: true}); err == nil || !strings.Contains(err.Error(), "2 requests wait already") {
			t.Errorf("%v", err)
		}
	})
}

// TestManyAside: those that wait for a load beside the line are bounded as those in it, and leave their places at the end of
// the load, at its failure and when they give up.
func TestManyAside(t *testing.T) {
	inLine(t, 1, pool.Queue{Length: 20, PerKey: 5}, "A", func(t *testing.T, w *world) {
		for round := range 3 {
			w.mu.Lock()
			if w.broken["A"] = nil; round == 1 {
				w.broken["A"] = errors.New("no")
			}
			w.mu.Unlock()
			ctx, cancel := context.WithCancel(t.Context())
			var mu sync.Mutex
			refused := 0
			for i := range 100 {
				w.all.Go(func() {
					l, err := w.pool.Acquire(ctx, pool.Ask{Model: "A", Key: fmt.Sprint(i % 10), Aside: true})
					if err == nil {
						l.Release()
					}
					if _, ok := errors.AsType[*pool.BusyError](err); ok {
						mu.Lock()
						defer mu.Unlock()
						refused++
					}
				})
			}
			synctest.Wait()
			if n := w.pool.List()[0].Waiting; n != 20 {
				t.Errorf("round %d: %d wait", round, n)
			}
			if round == 2 {
				cancel()
			}
			w.all.Wait()
			cancel()
			if refused != 80 {
				t.Errorf("round %d: %d were refused", round, refused)
			}
			if err := w.pool.Unload(t.Context(), "A"); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour) // a failed one is tried again by then
		}
	})
}

// TestTold: nobody is told to come again later than when all that stand in line have gone.
func TestTold(t *testing.T) {
	inLine(t, 1, pool.Queue{Length: 3}, "A", func(t *testing.T, w *world) {
		w.must("A", 0)
		w.ask(pool.Ask{Model: "A", Key: "slow"}, 7*time.Hour, nil)
		time.Sleep(6 * time.Hour)
		for range 3 {
			w.all.Go(func() {
				var late *engine.TimeoutError
				if _, err := w.pool.Acquire(t.Context(), pool.Ask{Model: "A", Key: "k"}); !errors.As(err, &late) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		_, err := w.pool.Acquire(t.Context(), pool.Ask{Model: "A", Key: "other"})
		if busy, ok := errors.AsType[*pool.BusyError](err); !ok || busy.Wait < time.Second || busy.Wait > 10*time.Minute {
			t.Errorf("%v", err)
		}
	})
}

// TestToldApart: those who find no place are not all told to come again at the same time.
func TestToldApart(t *testing.T) {
	inLine(t, 1, pool.Queue{Length: 3}, "A", func(t *testing.T, w *world) {
		w.must("A", 0)
		for range 4 {
			w.ask(pool.Ask{Model: "A", Key: "k"}, time.Minute, nil)
			synctest.Wait()
		}
		time.Sleep(30 * time.Second)
		var told []time.Duration
		for range 3 {
			_, err := w.pool.Acquire(t.Context(), pool.Ask{Model: "A", Key: "other"})
			busy, ok := errors.AsType[*pool.BusyError](err)
			if !ok {
				t.Fatal(err)
			}
			told = append(told, busy.Wait)
		}
		if told[1] < told[0]+10*time.Second || told[2] < told[1]+10*time.Second {
			t.Errorf("they are told to come in %v", told)
		}
		w.all.Wait()
	})
}

// TestThereLoadsNothing: what goes only where a model is loaded does not bring it back when that goes while it waits.
func TestThereLoadsNothing(t *testing.T) {
	inLine(t, 1, pool.Queue{}, "A", func(t *testing.T, w *world) {
		w.must("A", 0)
		w.ask(pool.Ask{Model: "A", Key: "k"}, time.Minute, nil)
		w.all.Go(func() {
			_, err := w.pool.Acquire(t.Context(), pool.Ask{Model: "A", Key: pool.Own, There: true})
			if _, ok := errors.AsType[*engine.UnavailableError](err); !ok {
				t.Errorf("%v", err)
			}
		})
		synctest.Wait()
		if err := w.pool.Unload(t.Context(), "A"); err != nil {
			t.Error(err)
		}
		w.all.Wait()
		time.Sleep(time.Minute)
		if n := w.started("A"); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}
