package pool

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"onebit/engine"
)

// Own is the key of what the box itself asks for.
const Own = "box"

// Backend returns the model of a name as a backend that loads it when it is used and holds it as long as a request
// runs; each request stands in line as the box's own. A name that is not listed, or no longer, is an ErrUnknown of each call.
func (p *Pool) Backend(name string) engine.Backend { return p.BackendFor(Ask{Model: name}) }

// BackendFor does so for what a says of the model, the priority, and whether it is loaded.
func (p *Pool) BackendFor(a Ask) engine.Backend {
	return &onDemand{p, a.Model, a}
}

// onDemand is a model of the pool, loaded or not.
type onDemand struct {
	pool *Pool
	name string
	ask  Ask
}

// peek returns the loaded instance, nil when there is none.
func (b *onDemand) peek() (Instance, Status) {
	b.pool.mu.Lock()
	m := b.pool.models[b.name]
	if m == nil {
		b.pool.mu.Unlock()
		return nil, Status{Phase: Failed}
	}
	var i Instance
	if m.current != nil {
		i = m.current.instance
	}
	s := Status{Phase: Unloaded, Failures: m.failures}
	b.pool.mu.Unlock()
	return i, s
}

// Name says where the model runs, and that it does not while it is not loaded.
func (b *onDemand) Name() string {
	if i, _ := b.peek(); i != nil {
		return i.Backend().Name()
	}
	return "unloaded"
}

// Slots returns those of the loaded model, 1 while there is none.
func (b *onDemand) Slots() int {
	if i, _ := b.peek(); i != nil {
		return i.Backend().Slots()
	}
	return 1
}

// State returns that of the loaded model. One that is not loaded counts as ready when it is not known to fail: a
// request loads it.
func (b *onDemand) State() engine.State {
	i, s := b.peek()
	switch {
	case i != nil:
		return i.Backend().State()
	case s.Phase == Failed || s.Failures > 0:
		return engine.Down
	}
	return engine.Ready
}

// Ready loads the model.
func (b *onDemand) Ready(ctx context.Context) error {
	l, err := b.acquire(ctx, 0, true)
	if err != nil {
		return err
	}
	l.Release()
	return nil
}

// acquire returns a lease of a model that serves.
func (b *onDemand) acquire(ctx context.Context, bytes int64, aside bool) (*Lease, error) {
	a := b.ask
	a.Key, a.Prompt, a.Aside = Own, int(max(bytes, 0))/4, aside
	l, err := b.pool.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := l.Backend.Ready(ctx); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// Generate loads the model and runs the request on it; see engine.Backend.
func (b *onDemand) Generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (usage engine.Usage, err error) {
	l, err := b.acquire(ctx, int64(len(req.Raw)), false)
	if err != nil {
		return engine.Usage{}, err
	}
	defer func() { l.Finish(usage) }()
	return l.Backend.Generate(ctx, req, emit)
}

// besides are the routes of servers that take no slot.
var besides = []string{"/tokenize", "/detokenize", "/apply-template", "/props", "/slots", "/metrics", "/health"}

// Relay loads the model and sends it a request of another route. The model is held until the answer's body is closed.
func (b *onDemand) Relay(in *http.Request) (*http.Response, error) {
	l, err := b.acquire(in.Context(), in.ContentLength, slices.Contains(besides, in.URL.Path))
	if err != nil {
		return nil, err
	}
	r, ok := l.Backend.(interface {
		Relay(*http.Request) (*http.Response, error)
	})
	if !ok {
		l.Release()
		return nil, errors.ErrUnsupported
	}
	res, err := r.Relay(in)
	if err != nil {
		l.Release()
		return nil, err
	}
	res.Body = &held{res.Body, l}
	return res, nil
}

// held is a body that gives a lease back when it is closed.
type held struct {
	io.ReadCloser
	lease *Lease
}

func (h *held) Close() error {
	defer h.lease.Release()
	return h.ReadCloser.Close()
}

// Instance returns the loaded instance of a model, nil while there is none. It informs: it may end at any moment.
func (p *Pool) Instance(name string) Instance {
	i, _ := (&onDemand{pool: p, name: name}).peek()
	return i
}
