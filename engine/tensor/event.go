package tensor

import (
	"runtime"
	"sync/atomic"
	"time"
)

// event is a number that one side advances and others wait for.
type event struct {
	_        [cacheLine]byte
	seq      atomic.Uint32
	sleepers atomic.Int32
	parking  parking
	_        [cacheLine]byte
}

// advance adds one and wakes all who wait. A waiter counts itself among the
// sleepers before it looks at the number for the last time, so it either
// sees the new number or is seen here.
func (e *event) advance() {
	e.seq.Add(1)
	if e.sleepers.Load() > 0 {
		e.parking.wake(&e.seq)
	}
}

// wait returns when the number is no longer old. It spins for about the given
// time in nanoseconds, then parks. A crowded spin lets other goroutines run.
// A spin offers its core to other threads at each look at the clock: with a
// worker on every core, one that lost its own is waited for by all, and gets it
// back only from a spinning one. Measured on 16 cores, decoding with 16 workers:
// 275 tokens a second with it, 134 without, 90 with longer spins instead.
func (e *event) wait(old uint32, spin *atomic.Int64, crowded *atomic.Bool) {
	const look = 32 // turns between two looks at the clock
	var start time.Time
	limit := time.Duration(spin.Load())
	if limit <= 0 {
		e.park(old)
		return
	}
	for i := 0; e.seq.Load() == old; i++ {
		if crowded.Load() {
			runtime.Gosched()
		} else {
			pause()
		}
		if i%look != look-1 {
			continue
		}
		yield()
		if now := time.Now(); start.IsZero() {
			start = now
		} else if now.Sub(start) > limit {
			e.park(old)
			return
		}
	}
}

// park sleeps until the number is no longer old.
func (e *event) park(old uint32) {
	e.sleepers.Add(1)
	for e.seq.Load() == old {
		e.parking.sleep(&e.seq, old)
	}
	e.sleepers.Add(-1)
}
