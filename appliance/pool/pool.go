// Package pool keeps many models in one box: each is loaded when it is asked for, as far as memory allows, and unloaded
// when others need the room or nobody has asked for a while.
//
// # A model's life
//
// One goroutine, Pool.Run, decides who is loaded and who goes. Whoever wants a model either gets a lease at once, since
// the model is loaded and has a slot, or waits in the model's line, in the order of package queue.
//
//	phase      memory  a request                     left when
//	unloaded   none    waits                         there is room -> loading
//	loading    taken   waits                         Start returns -> loaded, and the first in line have leases;
//	                                                 Start fails -> failed, and everybody in line hears of it
//	loaded     taken   has a lease, or waits for one  room is needed, it is idle too long, unloaded, changed -> draining
//	draining   taken   waits for a new instance      the last lease ends, and the process with it -> unloaded
//	failed     none    is refused                    its time has come -> unloaded
//
// What is draining still counts with its memory, beside whatever is loaded of the same model meanwhile.
//
// # Leases
//
// A loaded model gives as many leases at once as it has slots, and not one more: what waits inside of a server waits in
// the order in which it came, whoever sent it, and can be neither passed by nor counted. The gap that this leaves between two
// requests on a slot is the way through this process, some tens of microseconds. What takes no slot, such as counting tokens, has its
// lease at once and merely keeps the model in memory.
//
// # Who is loaded next
//
// A model with leases is never ended. When room is needed, idle models go first, the least recently used before others.
// If that does not suffice, busy ones go on for a while, with new leases too, so that requests for one model are served
// together (A B A A C A B C as A A A A B B C C), until the longest wait of another's line is near MaxWait: then a
// busy one gets no new leases, and goes with its last. The time that it takes to end and to load, as measured, is taken off before, so
// that the wait ends near MaxWait. A model that was just loaded has a turn first, of four times what its load
// took, so that a box that is asked for too much spends a fifth of its time on swaps and not all.
//
// Of the models that wait, the first is the one that others were sent away for; then those whose time is up, in the order
// of it; then the one with most waiting for the time that it would take to load and serve them. What is
// interactive waits half of MaxWait before it makes a busy model go, what is in the background four times that long.
//
// # Races, and what is done about them
//
// Those in line when a load ends get their leases in the same locked step in which the model becomes loaded: nobody can
// end it between the two. One that gives up at that moment finds its lease and returns it.
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
	"sync"
	"sync/atomic"
	"time"

	"onebit/appliance/queue"
)

// defaultWait is how long a request waits for its model when nothing else is said.
const defaultWait = 10 * time.Minute

// Config describes a Pool.
type Config struct {
	Start  Start
	Memory func() Budget // read before each decision; nil admits everything
	Log    *slog.Logger

	Wait     time.Duration // the longest that a request waits for its model; default 10 min
	Queue    Queue         // of those that wait
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
	queue     Queue
	room      *queue.Room // that all lines are in
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
	line     *queue.Line
	room     *queue.Room // that the line is in
	aside    []*waiter   // those that need no slot, only the model
	preload  time.Time   // since when it is to be loaded although nobody stands in line; zero when it is not
	sent     bool        // others were sent away for it
	blocked  *FullError
	failures int
	retryAt  time.Time
	reason   string
	used     time.Time
	count    Count
	pace     pace
	told     []time.Time // when those will come again who had no place in line
}

// resident is what takes memory: one instance of a model, from before its load until after its end.
type resident struct {
	model    *model
	spec     ModelSpec
	instance Instance // nil while it loads
	leases   int
	running  int  // of those, the ones that take a slot
	retired  bool // it gets no more leases and goes with the last
	ending   bool
	begun    time.Time // when its load began
	granted  time.Time // when the last of those was given
	used     time.Time // when the last lease ended
	ready    time.Time // when it was loaded
	cancel   context.CancelFunc
	gone     chan struct{} // closed when nothing of it is left
}

// wanted reports whether somebody waits for what is loading.
func (r *resident) wanted() bool {
	return r.instance == nil && !r.retired && r.model.wanted()
}

// wanted reports whether somebody waits for the model.
func (m *model) wanted() bool {
	return m.waiting() > 0 || !m.preload.IsZero()
}

// waiting is how many requests do.
func (m *model) waiting() int { return m.line.Len() + len(m.aside) }

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
		models: map[string]*model{}, residents: map[*resident]bool{}, room: queue.NewRoom(queue.Bounds{}),
	}
	p.SetWait(cfg.Wait)
	p.SetQueue(cfg.Queue)
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
		m = &model{count: Count{Name: s.Name}, line: queue.New(p.room, p.queue.MaxWait), room: p.room}
		p.models[s.Name] = m
	} else if !m.spec.same(s) {
		p.retire(m.current, "its settings have changed")
		m.failures, m.retryAt, m.reason = 0, time.Time{}, ""
	}
	m.spec = s
	if m.current != nil {
		m.current.spec.TTL, m.current.spec.Pinned, m.current.spec.Preload = s.TTL, s.Pinned, s.Preload
	}
	switch {
	case !s.Preload || m.current != nil:
		m.preload = time.Time{}
	case m.preload.IsZero():
		m.preload = time.Now()
	}
}

// wake makes Run look again.
func (p *Pool) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Load loads a model, as a request for it would.
func (p *Pool) Load(ctx context.Context, name string) error {
	l, err := p.Acquire(ctx, Ask{Model: name, Aside: true})
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
	m.preload = time.Time{}
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
