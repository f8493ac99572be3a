package tensor

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// idleSpin lets the next token's Run find the workers awake.
	idleSpin = time.Millisecond
	// barrierSpin is short because a worker that is later has most likely lost
	// its core, and spinning on would keep it from getting one. It must be longer
	// than waking a parked worker takes, or one late barrier makes the next one
	// late, and so on. Measured: half of it doubles the time of a quiet run.
	barrierSpin = 100 * time.Microsecond
	// chunkCounters is the number of counters that successive calls of Each use in turn.
	chunkCounters = 8
	cacheLine     = 64
)

// Team is a fixed set of workers that run one function together, such as a
// forward pass with barriers inside. The caller of Run is worker 0. Workers
// stay awake for about a millisecond after a Run, then park.
type Team struct {
	mu      sync.Mutex // held during Run and Close
	workers []*Worker
	closed  bool
	exited  sync.WaitGroup

	f       func(*Worker) // nil asks the workers to leave
	active  int           // workers that take part in the current Run
	crowded atomic.Bool   // there are more workers than processors
	spin    spins
	running counter // of those but the caller, the ones still in f
	idle    event   // advanced when running reaches zero

	arrived counter // workers at the barrier
	barrier event   // advanced when all have arrived
	aborted atomic.Bool
	failure atomic.Pointer[WorkerPanicError]

	chunks [chunkCounters]chunkCounter
}

// Worker is one member of a Team during a Run. Its methods may be called by
// the function that Run gave it to, in the same goroutine.
type Worker struct {
	ID int // 0 for the caller of Run
	N  int // number of workers in this Run

	team  *Team
	op    uint32 // number of the last Each
	start event
	seen  uint32 // value of start at the last Run
}

// spins says how long a worker spins before it parks, in nanoseconds.
type spins struct{ idle, barrier atomic.Int64 }

// counter is an atomic number alone on its cache line.
type counter struct {
	_ [cacheLine]byte
	atomic.Int32
	_ [cacheLine - 4]byte
}

// chunkCounter holds the number of an Each call in its upper half and that
// call's next index in the lower.
type chunkCounter struct {
	_ [cacheLine]byte
	atomic.Uint64
	_ [cacheLine - 8]byte
}

// WorkerPanicError is what Run panics with after a panic in a worker.
type WorkerPanicError struct {
	Worker int    // ID of the worker
	Value  any    // what it panicked with
	Stack  []byte // where, as runtime/debug.Stack prints it
}

// Error returns all of it.
func (p *WorkerPanicError) Error() string {
	return fmt.Sprintf("tensor: worker %d panicked: %v\n\n%s", p.Worker, p.Value, p.Stack)
}

// leave is what the other workers panic with once one has failed.
type leave struct{}

// NewTeam starts a team of the given number of workers, at least 1, of which
// the caller of Run is one. Close ends it. More workers than cores make
// everything slower.
func NewTeam(workers int) *Team {
	if workers < 1 {
		panic(fmt.Sprintf("tensor: a team of %d workers", workers))
	}
	t := &Team{workers: make([]*Worker, workers)}
	for i := range t.workers {
		t.workers[i] = &Worker{ID: i, team: t}
	}
	t.SetSpin(idleSpin, barrierSpin)
	for _, w := range t.workers[1:] {
		t.launch(w)
	}
	return t
}

// SetSpin sets for how long workers spin before they park: between two Runs,
// and for one another at a barrier or at the end of a Run. The first wait
// after it may still use the old times.
func (t *Team) SetSpin(idle, barrier time.Duration) {
	t.spin.idle.Store(int64(idle))
	t.spin.barrier.Store(int64(barrier))
}

// Size returns the number of workers.
func (t *Team) Size() int { return len(t.workers) }

// Run calls f once in every worker and returns when all calls have. The workers
// must call Barrier and Each in the same order. When f panics in a worker, the
// others leave at their next Barrier or Each, and Run panics with a
// *WorkerPanicError of the first; the team stays usable. Runs of several goroutines
// follow one another. f must not call Run.
func (t *Team) Run(f func(w *Worker)) { t.RunN(len(t.workers), f) }

// RunN is Run with the first n workers alone; n is cut to the team's size.
func (t *Team) RunN(n int, f func(w *Worker)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		panic("tensor: use of a closed team")
	}
	t.active = min(max(n, 1), len(t.workers))
	t.prepare(f)
	for _, w := range t.workers[1:t.active] {
		w.start.advance()
	}
	// Goexit in f must not leave the others behind, hence the defer.
	defer t.finish()
	t.call(t.workers[0])
}

// prepare resets what the last Run left.
func (t *Team) prepare(f func(*Worker)) {
	t.f = f
	t.crowded.Store(t.active > runtime.GOMAXPROCS(0))
	t.aborted.Store(false)
	t.failure.Store(nil)
	t.arrived.Store(0)
	t.running.Store(int32(t.active - 1))
	op := t.workers[0].op
	for _, w := range t.workers[1:] {
		if int32(w.op-op) > 0 {
			op = w.op
		}
	}
	for _, w := range t.workers {
		w.op, w.N = op, t.active
	}
}

// finish waits for the other workers and passes a panic on.
func (t *Team) finish() {
	for t.active > 1 {
		seen := t.idle.seq.Load()
		if t.running.Load() == 0 {
			break
		}
		t.idle.wait(seen, &t.spin.barrier, &t.crowded)
	}
	t.f = nil
	if failed := t.failure.Load(); failed != nil {
		panic(failed)
	}
}

// call runs f in a worker and turns a panic into the team's failure.
func (t *Team) call(w *Worker) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		if _, ok := value.(leave); ok {
			return
		}
		// A nil value means that f called runtime.Goexit, as a failing test does.
		// In worker 0 that ends the caller of Run and is no panic.
		if value == nil && w.ID != 0 {
			value = "runtime.Goexit was called"
		}
		if value != nil {
			t.failure.CompareAndSwap(nil, &WorkerPanicError{w.ID, value, debug.Stack()})
		}
		t.abort()
	}()
	t.f(w)
	returned = true
}

// abort makes every worker leave.
func (t *Team) abort() {
	t.aborted.Store(true)
	t.barrier.advance()
}

// launch starts the goroutine of a worker.
func (t *Team) launch(w *Worker) {
	t.exited.Add(1)
	go func() {
		defer t.exited.Done()
		w.loop()
	}()
}

// loop serves Runs until Close.
func (w *Worker) loop() {
	t := w.team
	left := false
	defer func() {
		if !left { // by Goexit inside f: another goroutine takes over
			t.launch(w)
			t.retire()
		}
	}()
	for {
		w.start.wait(w.seen, &t.spin.idle, &t.crowded)
		w.seen++
		if t.f == nil {
			left = true
			return
		}
		t.call(w)
		t.retire()
	}
}

// retire counts a worker out of the current Run.
func (t *Team) retire() {
	if t.running.Add(-1) == 0 {
		t.idle.advance()
	}
}

// Close ends the workers and waits for them. Further calls do nothing.
func (t *Team) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	for _, w := range t.workers[1:] {
		w.start.advance()
	}
	t.exited.Wait()
}

// Barrier returns when every worker of this Run has called it. All that was
// written before it is visible after it.
func (w *Worker) Barrier() {
	t := w.team
	if w.N == 1 {
		return
	}
	seq := t.barrier.seq.Load()
	w.check()
	if int(t.arrived.Add(1)) == w.N {
		t.arrived.Store(0)
		t.barrier.advance()
		return
	}
	t.barrier.wait(seq, &t.spin.barrier, &t.crowded)
	w.check()
}

// check leaves the Run when another worker has failed.
func (w *Worker) check() {
	if w.team.aborted.Load() {
		panic(leave{})
	}
}

// Each calls f for ranges of at most grain indexes that together cover 0 to n
// once, and shares them among the workers as they come free. It returns when
// no range is left; the others may still be at theirs, so a Barrier must
// come before the results are used.
func (w *Worker) Each(n, grain int, f func(from, to int)) {
	w.op++
	w.check()
	if w.N == 1 {
		for from := 0; from < n; from += grain {
			f(from, min(from+grain, n))
		}
		return
	}
	if n > 1<<31-1 || grain < 1 {
		panic(fmt.Sprintf("tensor: Each over %d by %d", n, grain))
	}
	c := &w.team.chunks[w.op%chunkCounters]
	for {
		from := c.claim(w.op, n, grain)
		if from >= n {
			return
		}
		f(from, min(from+grain, n))
	}
}

// claim returns the next free index of call op, or n. A counter that is at a
// later call says that some worker has left this one, so nothing is free.
func (c *chunkCounter) claim(op uint32, n, grain int) int {
	for {
		v := c.Load()
		from := 0
		switch at := int32(uint32(v>>32) - op); {
		case at > 0:
			return n
		case at == 0:
			from = int(uint32(v))
		}
		if from >= n {
			return n
		}
		if c.CompareAndSwap(v, uint64(op)<<32|uint64(min(from+grain, n))) {
			return from
		}
	}
}

// Split returns the range of 0 to n that belongs to this worker when n is cut
// evenly into one range for each worker, at multiples of grain.
func (w *Worker) Split(n, grain int) (from, to int) {
	units := (n + grain - 1) / grain
	return min(n, units*w.ID/w.N*grain), min(n, units*(w.ID+1)/w.N*grain)
}
