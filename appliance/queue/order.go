package queue

import (
	"container/list"
	"iter"
	"time"
)

// Order walks through the line as it would be taken if time stood still and nobody came or went. The line must not change
// meanwhile. It costs the number of steps times the number of keys.
func (l *Line) Order(now time.Time) iter.Seq[*Ticket] {
	return func(yield func(*Ticket) bool) {
		w := l.walk()
		for {
			c := w.line.next(now, w.states)
			if c < 0 || !yield(w.take(c)) {
				return
			}
		}
	}
}

// Position is the place of a ticket, 1 for who is next; 0 when it does not stand in line. It walks up to it.
func (l *Line) Position(t *Ticket, now time.Time) int {
	if t.flow == nil {
		return 0
	}
	n := 0
	for one := range l.Order(now) {
		n++
		if one == t {
			break
		}
	}
	return n
}

// Ahead is the place that a ticket would have if it stood in line now, bounds aside.
func (l *Line) Ahead(t *Ticket, now time.Time) int {
	l.room.add(t.Key, 1)
	l.put(t)
	n := l.Position(t, now)
	l.drop(t)
	return n
}

// walker takes tickets without touching the line.
type walker struct {
	line   *Line // a copy, for its clock
	states [len(Priorities)]state
	flows  [len(Priorities)][]step        // in the order of the heap
	ages   [len(Priorities)]*list.Element // of the oldest that was not taken
}

// step is a flow on the way.
type step struct {
	next *list.Element // nil at its end
	tag  float64
}

func (l *Line) walk() *walker {
	line := *l
	w := &walker{line: &line, states: l.classStates()}
	for i := range l.classes {
		c := &l.classes[i]
		w.ages[i] = c.ages.Front()
		w.flows[i] = make([]step, 0, len(c.waiting))
		for _, f := range c.waiting {
			w.flows[i] = append(w.flows[i], step{f.tickets.Front(), f.tag})
		}
	}
	return w
}

// take takes the next ticket of a class.
func (w *walker) take(c int) *Ticket {
	var s *step
	for i := range w.flows[c] {
		f := &w.flows[c][i]
		if f.next != nil && (s == nil || before(f.tag, f.next.Value.(*Ticket).serial, s.tag, s.next.Value.(*Ticket).serial)) {
			s = f
		}
	}
	t := s.next.Value.(*Ticket)
	s.next, s.tag = s.next.Next(), s.tag+t.work()
	start := max(w.states[c].turn, w.line.clock)
	w.line.clock, w.states[c].turn = start, start+t.work()
	for w.ages[c] != nil && w.taken(c, w.ages[c].Value.(*Ticket)) {
		w.ages[c] = w.ages[c].Next()
	}
	w.states[c].oldest = nil
	if w.ages[c] != nil {
		w.states[c].oldest = w.ages[c].Value.(*Ticket)
	}
	return t
}

// taken reports whether a ticket of a class has been taken: those of a flow are in the order in which they came.
func (w *walker) taken(c int, t *Ticket) bool {
	next := w.flows[c][t.flow.at].next
	return next == nil || t.serial < next.Value.(*Ticket).serial
}
