package pool

import (
	"cmp"
	"slices"
	"time"

	"onebit/appliance/queue"
)

// List returns a look at all models, in the order of their names.
func (p *Pool) List() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	out := make([]Status, 0, len(p.models))
	for _, m := range p.models {
		out = append(out, p.status(m, now))
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (p *Pool) status(m *model, now time.Time) Status {
	s := Status{
		Name: m.spec.Name, Phase: Unloaded, Waiting: m.waiting(), Need: m.spec.Need, Pinned: m.spec.Pinned, TTL: m.spec.TTL,
		Used: m.used, Failures: m.failures, Reason: m.reason,
	}
	s.Slots, s.Line = m.pace.size, p.look(m, now)
	s.Phase, s.Busy = p.phase(m, now)
	switch r := m.current; {
	case r != nil && r.instance == nil:
	case r != nil:
		s.Since, s.Reason = r.ready, ""
		if m.spec.TTL > 0 && !m.spec.Pinned && r.leases == 0 {
			s.Expires = r.idleSince().Add(m.spec.TTL)
		}
	case s.Phase == Failed:
		s.RetryAt = m.retryAt
	case s.Phase == Waiting && m.blocked != nil:
		s.Reason = m.blocked.Error()
	}
	return s
}

// phase is where a model stands, and how many of its leases are out.
func (p *Pool) phase(m *model, now time.Time) (at Phase, busy int) {
	at = Unloaded
	for r := range p.residents {
		if r.model != m {
			continue
		}
		busy += r.leases
		if r.retired {
			at = Draining
		}
	}
	switch r := m.current; {
	case r != nil && r.instance == nil:
		at = Loading
	case r != nil:
		at = Loaded
	case m.retryAt.After(now):
		at = Failed
	case m.wanted():
		at = Waiting
	}
	return at, busy
}

// Glance is what whoever chooses a model needs to know of one.
type Glance struct {
	Phase    Phase // empty when the pool does not know the model
	Waiting  int
	Slots    int
	Busy     int
	Wait     time.Duration // see Line
	Instance Instance      // nil while it is not loaded; it may end at any moment
}

// Glances looks at n models: each request that leaves its model to the box does, so it is quicker than List.
func (p *Pool) Glances(n int, name func(int) string) []Glance {
	all := make([]Glance, n)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range all {
		m := p.models[name(i)]
		if m == nil {
			continue
		}
		g := &all[i]
		g.Waiting, g.Slots, g.Wait = m.waiting(), m.pace.size, p.until(m, now)
		g.Phase, g.Busy = p.phase(m, now)
		if m.current != nil {
			g.Instance = m.current.instance
		}
	}
	return all
}

// look is a look at a model's line.
func (p *Pool) look(m *model, now time.Time) Line {
	l := Line{Keys: m.line.Keys()}
	for i, of := range queue.Priorities {
		l.Lengths[i] = m.line.Count(of)
		for _, w := range m.aside {
			if w.ticket.Priority == of {
				l.Lengths[i]++
			}
		}
		if since, ok := m.since(of); ok && m.waiting() > 0 {
			sooner(&l.Oldest, since)
		}
	}
	l.Wait = p.until(m, now)
	return l
}

// until is how long a request that came now would wait.
func (p *Pool) until(m *model, now time.Time) time.Duration {
	if m.current == nil || m.current.instance == nil || m.line.Len() > 0 || m.free() <= 0 {
		return p.estimate(m, m.line.Len()+1, now)
	}
	return 0
}

// idleSince returns when a loaded model was last of use.
func (r *resident) idleSince() time.Time {
	if r.used.After(r.ready) {
		return r.used
	}
	return r.ready
}

// Counts returns what has happened to each listed model, in the order of their names.
func (p *Pool) Counts() []Count {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Count, 0, len(p.models))
	for _, m := range p.models {
		out = append(out, m.count)
	}
	slices.SortFunc(out, func(a, b Count) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
