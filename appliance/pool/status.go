package pool

import (
	"cmp"
	"slices"
	"time"
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
		Name: m.spec.Name, Phase: Unloaded, Waiting: len(m.line), Need: m.spec.Need, Pinned: m.spec.Pinned, TTL: m.spec.TTL,
		Used: m.used, Failures: m.failures, Reason: m.reason,
	}
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
	case len(m.line) > 0 || m.preload:
		s.Phase = Waiting
		if m.blocked != nil {
			s.Reason = m.blocked.Error()
		}
	}
	return s
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
