// Package pool keeps many models in one box: each is loaded when it is asked for, as far as memory allows, and unloaded
// when others need the room or nobody has asked for a while.
//
// # A model's life
//
// One goroutine, Pool.Run, decides who is loaded and who goes. Whoever wants a model either gets a lease at once, since
// the model is loaded, or waits in the model's line.
//
//	phase      memory  a request                  left when
//	unloaded   none    waits                      there is room -> loading
//	loading    taken   waits                      Start returns -> loaded, and everybody in line has a lease;
//	                                              Start fails -> failed, and everybody in line hears of it
//	loaded     taken   has a lease                room is needed, it is idle too long, unloaded, changed -> draining
//	draining   taken   waits for a new instance   the last lease ends, and the process with it -> unloaded
//	failed     none    is refused                 its time has come -> unloaded
//
// What is draining still counts with its memory, beside whatever is loaded of the same model meanwhile.
//
// # Races, and what is done about them
//
// Those in line when a load ends get their leases in the same locked step in which the model becomes loaded: nobody can
// end it between the two. One that gives up at that moment finds its lease and returns it.
//
// A model with leases is never ended. When room is needed, idle models go first, the least recently used before others.
// If that does not suffice, a busy one gets no new leases after a moment's patience; the requests that come for it stand
// in line like all others, and lines are served in the order in which they began. So two models that share one place
// take turns, each turn serving at least all that stood in line.
//
// Free memory is read without a lock and may be old when it is used. What was loading while it was read counts as not
// seen in it; what has just been let go is waited for until it is seen.
package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"onebit/engine"
)

// defaultWait is how long a request waits for its model when nothing else is said.
const defaultWait = 10 * time.Minute

// Config describes a Pool.
type Config struct {
	Start  Start
	Memory func() Budget // read before each decision; nil admits everything
	Log    *slog.Logger

	Wait     time.Duration // the longest that a request waits for its model; default 10 min
	Patience time.Duration // how long a busy model is left alone while others wait for its memory; default 2 s
	Settle   time.Duration // how long freed memory may take to be seen; default 5 s
	Look     time.Duration // between two looks at memory while somebody waits for it; default 250 ms
	PauseMin time.Duration // before a model that failed is tried again; default 5 s, doubled by each failure
	PauseMax time.Duration // the longest; default 5 min
	Steady   time.Duration // having been loaded this long wipes out earlier failures; default 30 s
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{
		{&c.Wait, defaultWait},
		{&c.Patience, 2 * time.Second},
		{&c.Settle, 5 * time.Second},
		{&c.Look, 250 * time.Millisecond},
		{&c.PauseMin, 5 * time.Second},
		{&c.PauseMax, 5 * time.Minute},
		{&c.Steady, 30 * time.Second},
	} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	if c.Memory == nil {
		c.Memory = func() Budget { return Budget{} }
	}
	return c
}

// Pool holds the models. All methods may be called at the same time from many goroutines.
type Pool struct {
	cfg  Config
	kick chan struct{} // something has changed for Run to look at
	wait atomic.Int64  // the longest that a request waits for its model, in nanoseconds

	mu        sync.Mutex
	models    map[string]*model
	residents map[*resident]bool // all that has memory
	freed     time.Time          // when memory was last let go
	closed    bool
	notes     []note         // to be logged once mu is free
	group     sync.WaitGroup // loads, ends and watches
}

// note is a line for the log.
type note struct {
	level slog.Level
	text  string
	args  []any
}

// say notes a line for the log.
func (p *Pool) say(level slog.Level, text string, args ...any) {
	p.notes = append(p.notes, note{level, text, args})
}

// unlock lets go of mu and writes what was noted: nothing is written while it is held.
func (p *Pool) unlock() {
	notes := p.notes
	p.notes = nil
	p.mu.Unlock()
	for _, n := range notes {
		p.cfg.Log.Log(context.Background(), n.level, n.text, n.args...)
	}
}

// model is what is known under a name.
type model struct {
	spec     ModelSpec
	current  *resident // nil when it is not loaded, nor loading
	line     []*waiter
	since    time.Time // when the line, or the wish to preload, began
	preload  bool      // to be loaded although nobody stands in line
	blocked  *FullError
	failures int
	retryAt  time.Time
	reason   string
	used     time.Time
	count    Count
}

// resident is what takes memory: one instance of a model, from before its load until after its end.
type resident struct {
	model    *model
	spec     ModelSpec
	instance Instance // nil while it loads
	leases   int
	retired  bool // it gets no more leases and goes with the last
	ending   bool
	used     time.Time // when the last lease ended
	ready    time.Time // when it was loaded
	cancel   context.CancelFunc
	gone     chan struct{} // closed when nothing of it is left
}

// wanted reports whether somebody waits for what is loading.
func (r *resident) wanted() bool {
	return r.instance == nil && !r.retired && (len(r.model.line) > 0 || r.model.preload)
}

// waiter stands in line for a model.
type waiter struct {
	got chan granted // one is sent, when the waiter is taken out of the line
}

type granted struct {
	r   *resident
	err error
}

// New checks the configuration and starts nothing. The pool is empty until Set.
func New(cfg Config) (*Pool, error) {
	switch {
	case cfg.Start == nil:
		return nil, errors.New("a pool needs to know how to start a model")
	case cfg.Log == nil:
		return nil, errors.New("a pool needs a log")
	}
	p := &Pool{
		cfg: cfg.withDefaults(), kick: make(chan struct{}, 1),
		models: map[string]*model{}, residents: map[*resident]bool{},
	}
	p.SetWait(cfg.Wait)
	return p, nil
}

// Check returns why Set would refuse a list of models.
func Check(specs []ModelSpec) error {
	seen := map[string]bool{}
	for _, s := range specs {
		switch {
		case s.Name == "":
			return errors.New("a model needs a name")
		case seen[s.Name]:
			return fmt.Errorf("two models are called %q", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}

// SetWait changes how long requests wait at most that come from now on; 0 is the default.
func (p *Pool) SetWait(d time.Duration) { p.wait.Store(int64(cmp.Or(d, defaultWait))) }

// Set replaces the list of models. What is no longer listed, or was loaded with other options, gets no new requests and
// ends with its last one; requests in line for a model that is still listed wait on. A list that names a model twice
// is refused and changes nothing.
func (p *Pool) Set(specs []ModelSpec) error {
	if err := Check(specs); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, s := range specs {
		seen[s.Name] = true
	}
	defer p.wake()
	p.mu.Lock()
	defer p.unlock()
	for name, m := range p.models {
		if !seen[name] {
			p.retire(m.current, "it is no longer listed")
			m.fail(fmt.Errorf("%w: %q is no longer listed", ErrUnknown, name))
			delete(p.models, name)
		}
	}
	for _, s := range specs {
		p.put(s)
	}
	return nil
}

// put takes in one model of a list.
func (p *Pool) put(s ModelSpec) {
	m := p.models[s.Name]
	if m == nil {
		m = &model{count: Count{Name: s.Name}}
		p.models[s.Name] = m
	} else if !m.spec.same(s) {
		p.retire(m.current, "its settings have changed")
		m.failures, m.retryAt, m.reason = 0, time.Time{}, ""
	}
	m.spec = s
	if m.current != nil {
		m.current.spec.TTL, m.current.spec.Pinned, m.current.spec.Preload = s.TTL, s.Pinned, s.Preload
	}
	if m.preload = s.Preload && m.current == nil; m.preload && len(m.line) == 0 {
		m.since = time.Now()
	}
}

// wake makes Run look again.
func (p *Pool) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Lease is the right to use a loaded model until Release.
type Lease struct {
	Model    string
	Backend  engine.Backend
	Instance Instance
	Waited   time.Duration // for the model to be loaded

	pool *Pool
	r    *resident
	once sync.Once
}

// Release gives the right back. It may be called more than once.
func (l *Lease) Release() { l.once.Do(func() { l.pool.release(l.r) }) }

func (p *Pool) release(r *resident) {
	p.mu.Lock()
	r.leases--
	r.used = time.Now()
	r.model.used = r.used
	look := r.leases == 0 && (r.retired || p.anyLine())
	if r.retired {
		p.end(r)
	}
	p.unlock()
	if look {
		p.wake()
	}
}

// anyLine reports whether anybody waits for anything.
func (p *Pool) anyLine() bool {
	for _, m := range p.models {
		if m.current == nil && (len(m.line) > 0 || m.preload) {
			return true
		}
	}
	return false
}

// Acquire returns a lease of a model, loading it first when needed. The errors are ErrUnknown, an
// *engine.UnavailableError for a model that failed and is not tried again yet, a *FullError when memory does not
// suffice, an *engine.TimeoutError, and the cause of ctx.
func (p *Pool) Acquire(ctx context.Context, name string) (*Lease, error) {
	begin := time.Now()
	p.mu.Lock()
	r, w, err := p.join(name, begin)
	p.mu.Unlock()
	if w != nil {
		p.wake()
		r, err = p.await(ctx, name, w)
	}
	if err != nil {
		return nil, err
	}
	return &Lease{Model: name, Backend: r.instance.Backend(), Instance: r.instance, Waited: time.Since(begin), pool: p, r: r}, nil
}

// join gives a lease of a loaded model, or a place in line.
func (p *Pool) join(name string, now time.Time) (*resident, *waiter, error) {
	m := p.models[name]
	switch {
	case m == nil:
		return nil, nil, fmt.Errorf("%w: %q", ErrUnknown, name)
	case p.closed:
		return nil, nil, &engine.UnavailableError{Reason: "the box is stopping"}
	case m.current != nil && m.current.instance != nil:
		return m.lease(), nil, nil
	case m.retryAt.After(now):
		return nil, nil, &engine.UnavailableError{Reason: m.reason, RetryAfter: m.retryAt.Sub(now)}
	}
	if len(m.line) == 0 && !m.preload {
		m.since = now
	}
	w := &waiter{got: make(chan granted, 1)}
	m.line = append(m.line, w)
	return nil, w, nil
}

// lease counts one more user of a loaded model.
func (m *model) lease() *resident {
	m.current.leases++
	m.count.Requests++
	return m.current
}

// await waits for what becomes of a place in line.
func (p *Pool) await(ctx context.Context, name string, w *waiter) (*resident, error) {
	longest := time.Duration(p.wait.Load())
	limit := time.NewTimer(longest)
	defer limit.Stop()
	var err error
	select {
	case g := <-w.got:
		return g.r, g.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-limit.C:
		err = &engine.TimeoutError{Timer: "waiting for the model " + name + " to be loaded", Limit: longest}
	}
	p.mu.Lock()
	m := p.models[name]
	var full *FullError
	if m != nil {
		full = m.blocked
	}
	listed := m != nil && m.leave(w)
	if listed && full != nil && !errors.Is(ctx.Err(), context.Canceled) {
		err = full
	}
	p.mu.Unlock()
	if !listed { // it was served at the same moment
		if g := <-w.got; g.err == nil {
			p.release(g.r)
		}
	}
	return nil, err
}

// leave takes a waiter out of the line, and reports whether it stood there.
func (m *model) leave(w *waiter) bool {
	i := slices.Index(m.line, w)
	if i >= 0 {
		m.line = slices.Delete(m.line, i, i+1)
	}
	if len(m.line) == 0 {
		m.blocked = nil
	}
	return i >= 0
}

// fail tells everybody in line why there is no model.
func (m *model) fail(err error) {
	for _, w := range m.line {
		w.got <- granted{err: err}
	}
	m.line, m.blocked, m.preload = nil, nil, false
}

// Load loads a model, as a request for it would.
func (p *Pool) Load(ctx context.Context, name string) error {
	l, err := p.Acquire(ctx, name)
	if err != nil {
		return err
	}
	l.Release()
	return nil
}

// Unload ends a model, pinned or not, after its last request, and returns when nothing of it is left or ctx ends. The
// next request loads it again.
func (p *Pool) Unload(ctx context.Context, name string) error {
	p.mu.Lock()
	m := p.models[name]
	if m == nil {
		p.mu.Unlock()
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	m.preload = false
	r := m.current
	p.retire(r, "it is to be unloaded")
	p.unlock()
	if r == nil {
		return nil
	}
	p.wake()
	select {
	case <-r.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
