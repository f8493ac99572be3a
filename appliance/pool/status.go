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
	for r := range p.residents {
		if r.model != m {
			continue
		}
		s.Busy += r.leases
		if r.retired {
			s.Phase = Draining
		}
	}
	switch r := m.current; {
	case r != nil && r.instance == nil:
		s.Phase = Loading
	case r != nil:
		s.Phase, s.Since, s.Reason = Loaded, r.ready, ""
		if m.spec.TTL > 0 && !m.spec.Pinned && r.leases == 0 {
			s.Expires = r.idleSince().Add(m.spec.TTL)
		}
	case m.retryAt.After(now):
		s.Phase, s.RetryAt = Failed, m.retryAt
	case m.wanted():
		s.Phase = Waiting
		if m.blocked != nil {
			s.Reason = m.blocked.Error()
		}
	}
	return s
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
	if m.current == nil || m.current.instance == nil || m.line.Len() > 0 || m.free() <= 0 {
		l.Wait = p.estimate(m, m.line.Len()+1, now)
	}
	return l
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
