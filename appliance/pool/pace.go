package pool

import (
	"slices"
	"time"

	"onebit/engine"
)

// What is assumed of a model until it is known.
const (
	guessedAnswer = 256             // tokens
	guessedServes = 2 * time.Second // a request
	guessedSlots  = 4
	guessedStart  = 2 * time.Second // of a load, beside reading its weights
	guessedRead   = 1 << 30         // bytes a second
)

// weighs is how much a new observation counts in a mean.
const weighs = 0.2

// promptShare is how many tokens of a prompt count as one of an answer: a prompt is computed many tokens at once.
const promptShare = 8

// effort is what a request takes, in tokens of an answer.
func effort(prompt int, answer float64) float64 {
	return max(float64(prompt)/promptShare+answer, 1)
}

// pace is how fast a model has been of late: means in which the newest counts most.
type pace struct {
	load, serve, answer float64 // seconds, seconds, tokens; 0 while not known
	size                int     // slots; 0 while not known
}

func mean(old *float64, now float64) {
	if *old == 0 {
		*old = now
	}
	*old += weighs * (now - *old)
}

// loaded takes in a load.
func (p *pace) loaded(took time.Duration, slots int) {
	mean(&p.load, took.Seconds())
	p.size = slots
}

// served takes in a request that has held a slot.
func (p *pace) served(took time.Duration, u engine.Usage) {
	mean(&p.serve, took.Seconds())
	if u.Completion > 0 {
		mean(&p.answer, float64(u.Completion))
	}
}

// loads is how long a load takes; never 0.
func (p *pace) loads(n Need) time.Duration {
	if p.load > 0 {
		return max(seconds(p.load), time.Millisecond)
	}
	return guessedStart + seconds(float64(clamp(n.Bytes)+clamp(n.Host))/guessedRead)
}

// serves is how long a request holds its slot; never 0.
func (p *pace) serves() time.Duration {
	if p.serve > 0 {
		return max(seconds(p.serve), time.Millisecond)
	}
	return guessedServes
}

// answers is how many tokens an answer has that may have so many at most.
func (p *pace) answers(most int) float64 {
	n := p.answer
	if n == 0 {
		n = guessedAnswer
	}
	if most > 0 {
		n = min(n, float64(most))
	}
	return n
}

func (p *pace) slots() int {
	if p.size > 0 {
		return p.size
	}
	return guessedSlots
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// estimate is how long a request would wait for a slot at a place in a model's line; never less than a second. While the
// model is not in memory that holds what it takes to bring it there, and the turns of those that are before it.
func (p *Pool) estimate(m *model, position int, now time.Time) time.Duration {
	serves := m.pace.serves()
	if m.current != nil && m.current.running > 0 {
		// nobody has had a slot for so long: all that run take longer than what is known
		serves = max(serves, now.Sub(m.current.granted))
	}
	wait := time.Duration(float64(serves) * float64(position) / float64(m.pace.slots()))
	loads := m.pace.loads(m.spec.Need)
	switch {
	case m.current != nil && m.current.instance == nil:
		wait += max(loads-now.Sub(m.current.begun), loads/10)
	case m.current == nil:
		wait += loads + p.ahead(m, now)
	}
	return max(wait, time.Second)
}

// later is when a request should come again that has no place in line: when it would have had its turn, and those before it
// who were told to come again, so that they do not all come for few places at the same time. Of these no more count than stand
// in line: not all come again. It is no longer than anybody waits: after that the line is another one.
func (p *Pool) later(m *model, position int, now time.Time) time.Duration {
	m.told = slices.DeleteFunc(m.told, func(at time.Time) bool { return !at.After(now) })
	wait := p.estimate(m, position+min(len(m.told), m.line.Len()), now)
	wait = max(min(wait, time.Duration(p.wait.Load())), time.Second)
	if len(m.told) < 1000 {
		m.told = append(m.told, now.Add(wait))
	}
	return wait
}

// ahead is how long it takes until the load of a model begins that is not in memory: until busy ones have yielded and
// ended, and others had their turns that come before.
func (p *Pool) ahead(m *model, now time.Time) time.Duration {
	var none time.Time
	wait := time.Duration(0)
	for _, other := range p.next(now, &none) {
		if other == m {
			break
		}
		loads := other.pace.loads(other.spec.Need)
		wait += loads + min(turnOf*loads, p.queue.MaxWait)
	}
	wait /= time.Duration(max(len(p.residents), 1)) // that many go on beside each other
	if m.blocked == nil {
		return wait
	}
	var soonest time.Time
	for r := range p.residents {
		switch {
		case r.retired:
			sooner(&soonest, now.Add(r.model.pace.serves()))
		case r.leases > 0 && r.candidate():
			sooner(&soonest, p.yields(r, m).Add(r.model.pace.serves()))
		}
	}
	if soonest.After(now) {
		wait += soonest.Sub(now)
	}
	return wait
}
