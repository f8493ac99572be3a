package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"onebit/appliance/queue"
	"onebit/engine"
)

// Ask is what somebody wants of a model.
type Ask struct {
	Model    string
	Key      string         // out of whose share; people and programs that are told apart have different ones
	Priority queue.Priority // beside others' requests
	Weight   float64        // of the key's share beside others'; 0 is 1
	Prompt   int            // tokens, at a guess
	Answer   int            // tokens that the answer may have at most; 0 when that is not known
	Aside    bool           // it takes no slot: it only needs the model in memory
	Again    bool           // it was refused a place in line, and has come again
	There    bool           // it does not wait for a load: the model is in memory, or cannot be had
}

// Lease is the right to use a loaded model until Release.
type Lease struct {
	Model    string
	Backend  engine.Backend
	Instance Instance
	Waited   time.Duration // in line
	Position int           // in line when it came, 1 for the first; 0 when it did not wait
	Loaded   bool          // the model was not in memory when it came

	pool *Pool
	r    *resident
	w    *waiter // nil for a lease that takes no slot
	from time.Time
	once sync.Once
}

// Release gives the right back. It may be called more than once.
func (l *Lease) Release() { l.Finish(engine.Usage{}) }

// Finish is Release, and says what the request took: what its key is given next depends on it. No tokens at all say that
// it is not known. Only the first call counts.
func (l *Lease) Finish(u engine.Usage) {
	l.once.Do(func() { l.pool.release(l, u) })
}

// waiter is a request on its way to a lease.
type waiter struct {
	ticket   queue.Ticket
	answer   float64      // what of the ticket's work is the answer
	got      chan granted // one is sent, when the waiter is taken out of the line
	position int
	loaded   bool
	there    bool // see Ask
}

type granted struct {
	r   *resident
	err error
}

// BusyError says that so many wait already that a request has no place in line. Over HTTP it is status 429 for a key,
// else 503.
type BusyError struct {
	queue.FullError
	Model string
	Wait  time.Duration // until those before it would be through, as estimated; at least a second
}

// Error says how many wait, and how long it takes.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%v; those before this one in line for the model %s take about %v", &e.FullError, e.Model, (e.Wait + time.Second - 1).Truncate(time.Second))
}

// Acquire returns a lease of a model, loading it first when needed, and after those that are before it. The errors are
// ErrUnknown, a *BusyError when there is no place in line, an *engine.UnavailableError for a model that failed and is not
// tried again yet, a *FullError when memory does not suffice, an *engine.TimeoutError, and the cause of ctx.
func (p *Pool) Acquire(ctx context.Context, a Ask) (*Lease, error) {
	begin := time.Now()
	p.mu.Lock()
	w := &waiter{ticket: queue.Ticket{Key: a.Key, Priority: a.Priority, Weight: a.Weight, Since: begin, Again: a.Again}, got: make(chan granted, 1)}
	w.ticket.Owner = w
	r, err := p.join(w, a)
	p.mu.Unlock()
	if r == nil && err == nil {
		p.wake()
		r, err = p.await(ctx, a, w)
	}
	if err != nil {
		return nil, err
	}
	l := &Lease{
		Model: a.Model, Backend: r.instance.Backend(), Instance: r.instance, Position: w.position, Loaded: w.loaded,
		pool: p, r: r, from: time.Now(),
	}
	if l.Position > 0 || l.Loaded {
		l.Waited = l.from.Sub(begin)
	}
	if !a.Aside {
		l.w = w
	}
	return l, nil
}

// join gives a lease of a loaded model, or a place in line: then it returns neither a lease nor an error.
func (p *Pool) join(w *waiter, a Ask) (*resident, error) {
	m, now := p.models[a.Model], w.ticket.Since
	switch {
	case m == nil:
		return nil, fmt.Errorf("%w: %q", ErrUnknown, a.Model)
	case p.closed:
		return nil, &engine.UnavailableError{Reason: "the box is stopping"}
	}
	there := m.current != nil && m.current.instance != nil
	w.loaded = !there
	w.answer = m.pace.answers(a.Answer)
	w.ticket.Work = effort(a.Prompt, w.answer)
	switch {
	case there && a.Aside:
		return m.lease(nil), nil
	case there && m.line.Len() == 0 && m.free() > 0:
		m.line.Pass(&w.ticket)
		return m.lease(w), nil
	case !there && a.There:
		return nil, &engine.UnavailableError{Reason: "the model " + a.Model + " is not in memory", RetryAfter: m.pace.loads(m.spec.Need)}
	case !there && m.retryAt.After(now):
		return nil, &engine.UnavailableError{Reason: m.reason, RetryAfter: m.retryAt.Sub(now)}
	}
	if a.Aside {
		if err := p.room.Enter(a.Key, a.Again); err != nil {
			return nil, p.refuse(m, w, err)
		}
		m.aside, w.position = append(m.aside, w), 1
		return nil, nil
	}
	w.there = a.There
	if err := m.line.Push(&w.ticket); err != nil {
		return nil, p.refuse(m, w, err)
	}
	w.position = m.line.Position(&w.ticket, now)
	return nil, nil
}

// refuse tells a request that has no place in line when to come again.
func (p *Pool) refuse(m *model, w *waiter, err error) error {
	full, ok := errors.AsType[*queue.FullError](err)
	if !ok {
		return err
	}
	m.count.Refused++
	now := w.ticket.Since
	return &BusyError{FullError: *full, Model: m.spec.Name, Wait: p.later(m, m.line.Ahead(&w.ticket, now), now)}
}

// free is how many slots of a loaded model are.
func (m *model) free() int { return m.current.instance.Backend().Slots() - m.current.running }

// lease counts one more user of a loaded model. w is nil for one that takes no slot.
func (m *model) lease(w *waiter) *resident {
	m.current.leases++
	if w != nil {
		m.current.running++
		m.current.granted = time.Now()
	}
	m.count.Requests++
	return m.current
}

// admit gives leases to those who are next, while there are slots.
func (m *model) admit(now time.Time) {
	if m.current == nil || m.current.instance == nil {
		return
	}
	for m.line.Len() > 0 && m.free() > 0 {
		w := m.line.Pop(now).Owner.(*waiter)
		w.got <- granted{r: m.lease(w)}
	}
}

// await waits for what becomes of a place in line.
func (p *Pool) await(ctx context.Context, a Ask, w *waiter) (*resident, error) {
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
		timer := "waiting for a turn of the model " + a.Model
		if w.loaded {
			timer = "waiting for the model " + a.Model + " to be loaded"
		}
		err = &engine.TimeoutError{Timer: timer, Limit: longest}
	}
	p.mu.Lock()
	m := p.models[a.Model]
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
			l := &Lease{pool: p, r: g.r, from: time.Now()}
			if !a.Aside {
				l.w = w
			}
			l.Release()
		}
	}
	return nil, err
}

// leave takes a waiter out of the line, and reports whether it stood there.
func (m *model) leave(w *waiter) bool {
	stood := m.line.Remove(&w.ticket)
	if i := slices.Index(m.aside, w); i >= 0 {
		m.aside, stood = slices.Delete(m.aside, i, i+1), true
		m.room.Leave(w.ticket.Key)
	}
	if !m.wanted() {
		m.blocked, m.sent = nil, false
	}
	return stood
}

// leftBehind tells those in line that do not wait for a load that there is no model any more.
func (m *model) leftBehind(now time.Time) {
	var all []*waiter
	for t := range m.line.Order(now) {
		if w := t.Owner.(*waiter); w.there {
			all = append(all, w)
		}
	}
	for _, w := range all {
		m.line.Remove(&w.ticket)
		w.got <- granted{err: &engine.UnavailableError{Reason: "the model " + m.spec.Name + " is not in memory", RetryAfter: m.pace.loads(m.spec.Need)}}
	}
}

// besides takes out those that wait for the model alone.
func (m *model) besides() []*waiter {
	all := m.aside
	m.aside = nil
	for _, w := range all {
		m.room.Leave(w.ticket.Key)
	}
	return all
}

// fail tells everybody in line why there is no model.
func (m *model) fail(err error) {
	for _, w := range m.besides() {
		w.got <- granted{err: err}
	}
	for t := m.line.Pop(time.Time{}); t != nil; t = m.line.Pop(time.Time{}) {
		t.Owner.(*waiter).got <- granted{err: err}
	}
	m.blocked, m.preload, m.sent = nil, time.Time{}, false
}

// release takes a lease back, and gives its slot to who is next.
func (p *Pool) release(l *Lease, u engine.Usage) {
	now := time.Now()
	p.mu.Lock()
	r := l.r
	m := r.model
	r.leases--
	r.used, m.used = now, now
	if l.w != nil {
		r.running--
		if u != (engine.Usage{}) {
			m.line.Settle(&l.w.ticket, effort(u.Prompt-u.Cached, float64(u.Completion)))
		}
		m.pace.served(now.Sub(l.from), u)
	}
	if r == m.current {
		m.admit(now)
	}
	look := r.leases == 0 && (r.retired || p.anyLine())
	if r.retired {
		p.end(r)
	}
	p.unlock()
	if look {
		p.wake()
	}
}

// anyLine reports whether anybody waits for a model that is not there.
func (p *Pool) anyLine() bool {
	for _, m := range p.models {
		if m.current == nil && m.wanted() {
			return true
		}
	}
	return false
}
