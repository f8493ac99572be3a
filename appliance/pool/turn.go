package pool

import (
	"cmp"
	"slices"
	"time"

	"onebit/appliance/queue"
)

// Queue bounds those that wait.
type Queue struct {
	MaxWait time.Duration // how long requests for one model hold up those for another in its place; default 30 s
	Length  int           // how many may wait in the whole box; 0 is no bound
	PerKey  int           // how many of one key may; 0 is no bound
}

// defaultMaxWait is MaxWait when nothing is said.
const defaultMaxWait = 30 * time.Second

// turnOf is how many times what a load took the model serves at least, while others wait.
const turnOf = 4

// SetQueue changes the bounds. Those that wait already go on waiting.
func (p *Pool) SetQueue(q Queue) {
	q.MaxWait = cmp.Or(q.MaxWait, defaultMaxWait)
	defer p.wake()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = q
	p.room.Bound(queue.Bounds{Length: q.Length, PerKey: q.PerKey})
	for _, m := range p.models {
		m.line.Age(q.MaxWait)
	}
}

// since is when the longest wait for a model began, at a priority.
func (m *model) since(p queue.Priority) (time.Time, bool) {
	var at time.Time
	if t := m.line.First(p); t != nil {
		at = t.Since
	}
	for _, w := range m.aside {
		if w.ticket.Priority == p {
			sooner(&at, w.ticket.Since)
		}
	}
	if p == queue.Background {
		sooner(&at, m.preload)
	}
	return at, !at.IsZero()
}

// patience is how long a request of a priority lets others hold it up.
func (p *Pool) patience(of queue.Priority) time.Duration {
	switch of {
	case queue.Interactive:
		return p.queue.MaxWait / 2
	case queue.Background:
		return p.queue.MaxWait * 4
	}
	return p.queue.MaxWait
}

// weight is what a waiting request of a priority counts.
func weight(of queue.Priority) float64 {
	return [...]float64{1, 2, 4}[of-queue.Background]
}

// due is when a model is to be loaded, whoever is in the way; for one that nobody waits for, never.
func (p *Pool) due(m *model) time.Time {
	at := time.Now().Add(p.cfg.PauseMax)
	for _, of := range queue.Priorities {
		if since, ok := m.since(of); ok {
			sooner(&at, since.Add(p.patience(of)))
		}
	}
	return at.Add(-m.pace.loads(m.spec.Need))
}

// yields is when a busy model gets no more leases for another's sake: when the other is due, but for the time that the
// last requests of the busy one take, and not before it has had its turn.
func (p *Pool) yields(r *resident, m *model) time.Time {
	due := p.due(m).Add(-r.model.pace.serves())
	turn := r.ready.Add(min(turnOf*r.model.pace.loads(r.spec.Need), p.queue.MaxWait))
	if turn.After(due) {
		return turn
	}
	return due
}

// wish is a model that waits, with what its turn depends on.
type wish struct {
	m     *model
	due   time.Time
	since time.Time
	worth float64
}

// next returns the models that are to be loaded, in the order of the package's comment. It moves next forward to when a
// failed one may be tried again.
func (p *Pool) next(now time.Time, next *time.Time) []*model {
	var all []wish
	for _, m := range p.models {
		switch {
		case m.current != nil || !m.wanted():
		case m.retryAt.After(now):
			sooner(next, m.retryAt)
		default:
			all = append(all, p.wish(m, now))
		}
	}
	slices.SortFunc(all, func(a, b wish) int {
		switch {
		case a.m.sent != b.m.sent:
			return first(a.m.sent)
		case !a.due.After(now) && !b.due.After(now):
			return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.m.spec.Name, b.m.spec.Name))
		case !a.due.After(now) != !b.due.After(now):
			return first(!a.due.After(now))
		}
		return cmp.Or(cmp.Compare(b.worth, a.worth), a.since.Compare(b.since), cmp.Compare(a.m.spec.Name, b.m.spec.Name))
	})
	out := make([]*model, len(all))
	for i, w := range all {
		out[i] = w.m
	}
	return out
}

// first orders what is before what is not.
func first(is bool) int {
	if is {
		return -1
	}
	return 1
}

// wish weighs those who wait for a model against the time that it takes to load it and serve them: so the sum of all waits is
// least. Each counts more the longer it waits.
func (p *Pool) wish(m *model, now time.Time) wish {
	w := wish{m: m, due: p.due(m)}
	for _, of := range queue.Priorities {
		if since, ok := m.since(of); ok {
			sooner(&w.since, since)
			n := max(m.line.Count(of), 1)
			w.worth += weight(of) * float64(n) * (1 + now.Sub(since).Seconds()/p.queue.MaxWait.Seconds())
		}
	}
	serves := m.pace.serves().Seconds() * float64(m.line.Len()) / float64(m.pace.slots())
	w.worth /= m.pace.loads(m.spec.Need).Seconds() + serves
	return w
}
