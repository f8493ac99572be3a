package backend

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"onebit/engine"
)

// LazyConfig describes a Lazy.
type LazyConfig struct {
	Child ChildConfig
	Turn  chan struct{} // with room for one: whoever starts a program holds it, so that two never load at the same time
}

// Lazy is a Child that nobody starts before it is needed: the first Ready does. One that does not come up is started anew by
// the next Ready. Until it was started it counts as ready, for it can be had.
type Lazy struct {
	cfg    LazyConfig
	make   func() (*Child, error)
	wanted chan *start
	ended  chan struct{}

	mu    sync.Mutex
	child *Child // nil before the first, and after one that did not come up
	going *start // nil when none is on its way
}

// start is a program on its way.
type start struct {
	over chan struct{}
	err  error // once over
}

var _ engine.Backend = (*Lazy)(nil)

// NewLazy checks the configuration. It starts nothing.
func NewLazy(cfg LazyConfig) (*Lazy, error) {
	if cap(cfg.Turn) != 1 {
		return nil, errors.New("a backend that starts late needs a turn")
	}
	if _, err := NewChild(cfg.Child); err != nil {
		return nil, err
	}
	return &Lazy{cfg: cfg, make: func() (*Child, error) { return NewChild(cfg.Child) }, wanted: make(chan *start, 1), ended: make(chan struct{})}, nil
}

// Run starts the program when it is wanted, keeps it alive, and blocks. It returns nil after ctx has ended and the program with
// it. It is called once.
func (l *Lazy) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	defer close(l.ended)
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-l.wanted:
			group.Go(func() { l.begin(ctx, s) })
		}
	}
}

// begin brings a child up and runs it.
func (l *Lazy) begin(ctx context.Context, s *start) {
	child, err := l.make()
	if err != nil {
		l.finish(s, nil, err)
		return
	}
	select {
	case l.cfg.Turn <- struct{}{}:
	case <-ctx.Done():
		l.finish(s, nil, context.Cause(ctx))
		return
	}
	var group sync.WaitGroup
	group.Go(func() {
		if err := child.Run(ctx); err != nil {
			l.cfg.Child.Log.Error("a backend did not start", "device", l.cfg.Child.Name, "why", err)
		}
	})
	err = child.Ready(ctx)
	<-l.cfg.Turn
	if err != nil {
		group.Wait() // until nothing of it is left
		l.finish(s, nil, err)
		return
	}
	l.finish(s, child, nil)
	group.Wait()
}

// finish tells those who wait how a start ended.
func (l *Lazy) finish(s *start, child *Child, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.child, l.going = child, nil
	s.err = err
	close(s.over)
}

// now is the child, nil when there is none.
func (l *Lazy) now() *Child {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.child
}

// Ready starts the program if need be and waits until it serves. The start goes on when ctx ends.
func (l *Lazy) Ready(ctx context.Context) error {
	l.mu.Lock()
	if child := l.child; child != nil {
		l.mu.Unlock()
		return child.Ready(ctx)
	}
	if l.going == nil {
		l.going = &start{over: make(chan struct{})}
		l.wanted <- l.going // there is room, since no other is going
	}
	s := l.going
	l.mu.Unlock()
	select {
	case <-s.over:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.ended:
		return &engine.UnavailableError{Reason: "the " + l.cfg.Child.Name + " backend has been stopped"}
	}
	if s.err != nil {
		return &engine.UnavailableError{Reason: l.cfg.Child.Name + " did not become ready", RetryAfter: time.Second}
	}
	return nil
}

// Name returns the device.
func (l *Lazy) Name() string { return l.cfg.Child.Name }

// Slots returns the configured number of slots.
func (l *Lazy) Slots() int { return l.cfg.Child.Slots }

// State is that of the child; ready while there is none, since the next request starts one.
func (l *Lazy) State() engine.State {
	if child := l.now(); child != nil {
		return child.State()
	}
	return engine.Ready
}

// Started reports whether the program has ever served since it was last started.
func (l *Lazy) Started() bool { return l.now() != nil }

// Restarts is how many processes were started after the first.
func (l *Lazy) Restarts() int {
	if child := l.now(); child != nil {
		return child.Restarts()
	}
	return 0
}

// Info returns what the child said about its model; empty before it was started.
func (l *Lazy) Info() engine.Info {
	if child := l.now(); child != nil {
		return child.Info()
	}
	return engine.Info{}
}

// Generate runs the request on the child; see engine.Backend.
func (l *Lazy) Generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	child := l.now()
	if child == nil {
		return engine.Usage{}, l.asleep()
	}
	return child.Generate(ctx, req, emit)
}

// Relay sends a request of another route to the child; see Remote.Relay.
func (l *Lazy) Relay(in *http.Request) (*http.Response, error) {
	child := l.now()
	if child == nil {
		return nil, l.asleep()
	}
	return child.Relay(in)
}

func (l *Lazy) asleep() error {
	return &engine.UnavailableError{Reason: "the " + l.cfg.Child.Name + " backend has not been started", RetryAfter: time.Second}
}
