// Package worker runs guests in a process of their own: our program again, started as `1bit extension-child`. One worker
// serves one module. What a guest may do to its engine so costs one process and not the box: compiled code of strangers
// never shares an address space with keys.
//
// The process is confined before it reads a byte of the module: no network, no other process, no file but the module's own folder,
// and none at all before the guest's first instruction; no environment; bounds on memory, files and, while it compiles,
// on processor time; it ends with us. engine/sandbox says how. Systems other than Linux have nothing like it: there a worker
// only keeps crashes apart, and says so in the log.
//
// The states of a worker:
//
//	starting      a process is on its way; calls wait for it
//	ready         calls are answered
//	backing off   processes end without having answered; calls fail at once until the next start
//	suspended     no process comes up any more, Run has returned; calls fail
//	closed        Close was called, or Run's context ended
//
// A call that a process takes with it when it dies is sent to the next one, twice at most; a guest's own time begins when
// it is sent. The process that is late by more than Grace is killed: its call answers timeout, the calls beside it are
// sent again. So a host function with an effect (kv_add, kv_set) may happen twice.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"onebit/engine/sandbox"
	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// Grace is how much longer than its deadline a call may take before its process is killed. The guest looks at the clock
// itself and ends in time; this is for the one that does not.
const Grace = 50 * time.Millisecond

// Config describes a worker. The module must have been prepared: see Prepare.
type Config struct {
	Program  []string // what starts our program's sub-command Command
	Dir      string   // see Add
	SHA256   string
	Manifest abi.Manifest
	Limits   abi.Limits
	Granted  []abi.Capability
	Setup    host.Setup
	Services host.Services // for calls that bring none of a kind
	Spare    bool          // keep a second process that waits for the first to end
	Log      *slog.Logger
	OnState  func(State) // called by Run's goroutine; nil for nobody
}

// State is where a worker stands.
type State int

// The states; the package comment tells their meaning.
const (
	Starting State = iota
	Ready
	BackingOff
	Suspended
	Closed
)

func (s State) String() string {
	return [...]string{"starting", "ready", "backing off", "suspended", "closed"}[s]
}

// Errors that callers branch on. Every other one is a *host.CallError, ctx's, or says that the call cannot be made.
var (
	ErrBusy        = errors.New("as many calls wait for this module as may")
	ErrUnavailable = errors.New("this module has no process at the moment")
	ErrClosed      = errors.New("this worker is closed")
	ErrWaited      = errors.New("no process took the call in time") // beside a *host.CallError
	ErrUnprepared  = errors.New("this module is not prepared, or was for another version of the program or another machine")
)

// CauseDied is the cause of a call under which one process after another died.
const CauseDied host.Cause = "died"

// sendings is how often a call is sent before its processes' deaths are laid at its door.
const sendings = 3

// Worker is one module's process and those that follow it. It is safe for concurrent use.
type Worker struct {
	cfg   Config
	spec  spec
	blobs [][]byte
	room  bounds

	pauseMin, pauseMax time.Duration

	ids      atomic.Uint64
	restarts atomic.Int64
	slots    chan struct{} // as many as instances are free; a call that is sent holds one
	free     stack         // which: the one that was used last comes first, since its memory is warm
	waiting  atomic.Int64
	calls    sync.WaitGroup // calls, and what they left behind

	mu     sync.Mutex
	state  State
	why    error         // of a state that fails calls
	now    *generation   // the process that serves; nil in other states than ready
	change chan struct{} // closed when state or now changes
	closed chan struct{} // closed by Close
}

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Worker, error) {
	switch {
	case len(cfg.Program) == 0:
		return nil, errors.New("a worker needs a program")
	case cfg.Log == nil:
		return nil, errors.New("a worker needs a log")
	case cfg.Limits.Instances < 1 || cfg.Limits.Queue < 0 || cfg.Limits.Deadline <= 0:
		return nil, fmt.Errorf("%d instances, a queue of %d and %v are no limits of a worker", cfg.Limits.Instances, cfg.Limits.Queue, cfg.Limits.Deadline)
	}
	if err := checkHash(cfg.SHA256); err != nil {
		return nil, err
	}
	cfg.Limits.Instances = min(cfg.Limits.Instances, mostInstances)
	w := &Worker{cfg: cfg, pauseMin: pauseMin, pauseMax: pauseMax, slots: make(chan struct{}, cfg.Limits.Instances), change: make(chan struct{}), closed: make(chan struct{})}
	for n := range cfg.Limits.Instances {
		w.free.push(cfg.Limits.Instances - 1 - n)
		w.slots <- struct{}{}
	}
	w.spec = spec{
		Dir: cfg.Dir, SHA256: cfg.SHA256, Manifest: &cfg.Manifest, Granted: cfg.Granted, Memory: heap,
		Limits: map[abi.Kind]limit{cfg.Manifest.Kind: cfg.Limits},
	}
	assets := 0
	blob := func(name string, b []byte) {
		if b != nil {
			w.spec.Blobs, w.blobs = append(w.spec.Blobs, name), append(w.blobs, b)
		}
	}
	blob(blobConfig, cfg.Setup.Config)
	blob(blobWarm, cfg.Setup.Warm)
	for name, b := range cfg.Setup.Assets {
		w.spec.Assets, w.blobs = append(w.spec.Assets, name), append(w.blobs, b)
		assets += len(b)
	}
	memory := uint64(cfg.Limits.Memory) << 16
	w.spec.Memory += int64(assets)
	w.room = bounds{
		memory: 2*heap + uint64(cfg.Limits.Instances)*memory + 3*uint64(assets),
		file:   memory + 1<<20, files: uint64(32 + cfg.Limits.Instances),
	}
	return w, nil
}

// heap is what a worker's own memory should stay below, without guests and assets; the kernel refuses twice as much.
const heap = 192 << 20

// State tells where the worker stands.
func (w *Worker) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Restarts is how many processes were started after the first.
func (w *Worker) Restarts() int { return int(w.restarts.Load()) }

// enterState publishes a state. Run alone calls it.
func (w *Worker) enterState(s State, g *generation, why error) {
	w.mu.Lock()
	changed := w.state != s
	w.state, w.now, w.why = s, g, why
	close(w.change)
	w.change = make(chan struct{})
	w.mu.Unlock()
	if changed && w.cfg.OnState != nil {
		w.cfg.OnState(s)
	}
}

// standing is where a worker stands, and what tells of a change.
type standing struct {
	state  State
	now    *generation
	why    error
	change <-chan struct{}
}

func (w *Worker) look() standing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return standing{w.state, w.now, w.why, w.change}
}

// Ready waits until the worker serves.
func (w *Worker) Ready(ctx context.Context) error {
	for {
		s := w.look()
		switch s.state {
		case Ready:
			return nil
		case Suspended, Closed:
			return s.why
		}
		select {
		case <-s.change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close lets the calls that began end, within their deadlines, and ends the process. It is idempotent; calls that come
// later answer ErrClosed. Run returns soon after.
func (w *Worker) Close() error {
	w.mu.Lock()
	select {
	case <-w.closed:
	default:
		close(w.closed)
	}
	w.mu.Unlock()
	w.calls.Wait()
	return nil
}

// The life of processes.
const (
	startLimit   = 45 * time.Second // until a process serves; its set-up has host.SetupTimeout of that
	pauseMin     = 100 * time.Millisecond
	pauseMax     = 10 * time.Second
	mostFailures = 8 // processes in a row that end without an answer, before the worker is suspended
)

func startDeadline() time.Time { return time.Now().Add(startLimit) }

// Run keeps a process for the module until ctx ends or Close is called; then it returns nil, and no process is left. It
// returns an error when the module cannot be set up, or when process after process dies without having answered. It is
// called once.
func (w *Worker) Run(ctx context.Context) error {
	runtime.LockOSThread() // the kernel ends children with the thread that started them
	defer runtime.UnlockOSThread()
	w.warn()
	ctx, cancel := context.WithCancel(ctx)
	drained := make(chan struct{})
	defer func() {
		cancel()
		<-drained
	}()
	go func() {
		defer close(drained)
		select {
		case <-ctx.Done():
			return
		case <-w.closed:
		}
		w.calls.Wait()
		cancel()
	}()
	nest := &nest{w: w}
	defer nest.empty()
	err := w.keep(ctx, nest)
	if ctx.Err() != nil {
		w.enterState(Closed, nil, ErrClosed)
		return nil
	}
	err = fmt.Errorf("keeping a process for %s: %w", w.cfg.Manifest.Name, err)
	w.enterState(Suspended, nil, fmt.Errorf("%w: %w", ErrUnavailable, err))
	return err
}

// warn says aloud when this system cannot confine processes as it should.
func (w *Worker) warn() {
	if have := sandbox.Supported(); len(have.Missing()) > 0 {
		w.cfg.Log.Warn("the process of an extension is not fully confined: this system lacks what it takes", "module", w.cfg.Manifest.Name, "confined_by", have.String())
	}
}

// keep starts one process after another. It returns why there is no other.
func (w *Worker) keep(ctx context.Context, n *nest) error {
	failures := 0
	for first := true; ; first = false {
		if !first {
			w.restarts.Add(1)
			w.enterState(Starting, nil, nil)
		}
		g, err := n.next(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			err = w.serve(ctx, n, g)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if g.answered.Load() {
				failures = 0
			}
		}
		if f, ok := errors.AsType[*startError](err); ok && f.final {
			return err
		}
		w.cfg.Log.Warn("a process of an extension ended", "module", w.cfg.Manifest.Name, "why", err)
		if failures++; failures >= mostFailures {
			return err
		}
		if failures > 1 {
			w.pause(ctx, failures-1, err)
		}
	}
}

// serve lets a process serve until it ends, and returns why it did.
func (w *Worker) serve(ctx context.Context, n *nest, g *generation) error {
	w.enterState(Ready, g, nil)
	w.cfg.Log.Debug("a process of an extension serves", "module", w.cfg.Manifest.Name, "pid", g.process.cmd.Process.Pid)
	if w.cfg.Spare {
		n.lay()
	}
	select {
	case <-g.process.ended:
	case <-ctx.Done():
		g.process.kill("the worker is closed")
		<-g.process.ended
	}
	n.left(g)
	return g.process.epitaph()
}

// pause waits before the next start.
func (w *Worker) pause(ctx context.Context, failures int, why error) {
	length := min(w.pauseMin<<(failures-1), w.pauseMax)
	w.enterState(BackingOff, nil, fmt.Errorf("%w: %w", ErrUnavailable, why))
	t := time.NewTimer(length)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
