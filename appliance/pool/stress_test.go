package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"onebit/appliance/pool"
	"onebit/engine"
)

// TestStress asks for random models at random times, while lists change, models break, die and are unloaded. The box
// checks that memory is never overrun and that nothing is ended in use; here it is that each request ends in time with
// a lease or a reason.
func TestStress(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBox(t, 16, func(t *testing.T, w *world) {
				draw := rand.New(rand.NewPCG(seed, 5))
				w.lag = time.Duration(draw.IntN(3)) * time.Second
				list := func() []pool.ModelSpec {
					var out []pool.ModelSpec
					for i := range 6 {
						s := spec(fmt.Sprintf("m%d", i), uint64(1+i*2))
						s.Pinned, s.Preload = i == 0, draw.IntN(4) == 0
						s.TTL = time.Duration(draw.IntN(3)) * 30 * time.Second
						s.Version = fmt.Sprint(draw.IntN(3) / 2)
						if draw.IntN(8) > 0 {
							out = append(out, s)
						}
					}
					return out
				}
				w.set(list()...)
				var all sync.WaitGroup
				for range 400 {
					name, hold := fmt.Sprintf("m%d", draw.IntN(6)), time.Duration(draw.IntN(5000))*time.Millisecond
					patience := time.Duration(1+draw.IntN(600)) * time.Second
					switch draw.IntN(40) {
					case 0:
						w.set(list()...)
					case 1:
						w.mu.Lock()
						w.broken[name] = []error{nil, errors.New("broken")}[draw.IntN(2)]
						w.mu.Unlock()
					case 2:
						all.Go(func() { w.pool.Unload(t.Context(), name) })
					case 3:
						w.mu.Lock()
						i := w.alive[name]
						w.mu.Unlock()
						if i != nil {
							i.finish(errors.New("died"))
						}
					}
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						defer cancel()
						begin := time.Now()
						got, err := w.use(ctx, name, hold)
						if late := time.Since(begin) - patience - hold; late > 0 {
							t.Errorf("%s came %v after its time", name, late)
						}
						_, full := errors.AsType[*pool.FullError](err)
						_, down := errors.AsType[*engine.UnavailableError](err)
						if err != nil && !full && !down && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, pool.ErrUnknown) {
							t.Errorf("%s: %v", name, err)
						}
						if err == nil && got[:2] != name {
							t.Errorf("asked for %s, got %s", name, got)
						}
					})
					time.Sleep(time.Duration(draw.IntN(2000)) * time.Millisecond)
				}
				all.Wait()
				for _, s := range w.pool.List() {
					if s.Busy != 0 || s.Waiting != 0 {
						t.Errorf("%+v", s)
					}
				}
			})
		})
	}
}
