// Package queue is the line before a model: who is next. It is data alone: it has no clock, no lock and no goroutine; who
// uses it says what time it is and guards it.
//
// # Who is next
//
// Among keys of one priority: start-time fair queueing. Each key has a tag, the work that it was given so far on the clock
// of the line; next is the ticket of the key with the smallest. A key that asks for the first time, or again after a pause,
// begins at the clock, which stands at the tag of the last one that was taken: so a hundred tickets of one key hold up
// another key's only one by no more than what is being served, and nobody saves up for later by not asking. While two keys
// both have tickets, what they were given differs by no more than one ticket of each, whatever the tickets' sizes are.
// Tickets of one key and priority are taken in the order in which they came.
//
// Work is an estimate when a ticket is taken. Settle tells what it was in truth, and the key's tag is put right.
//
// Among priorities: a higher one comes first. So that nothing starves, a priority whose oldest ticket has waited for Age
// rises to the next one, and once more after another Age; priorities that have become equal in this way take turns by
// work. So what is interactive keeps a third of the model, whatever has piled up behind it.
package queue

import (
	"cmp"
	"container/heap"
	"container/list"
	"math"
	"time"
)

// Priority says what goes first.
type Priority int

// The priorities.
const (
	Background  Priority = iota - 1 // nobody waits for it
	Normal                          // what is not said otherwise
	Interactive                     // somebody looks at the screen
)

// Priorities are all that there are, the first ones first.
var Priorities = [...]Priority{Interactive, Normal, Background}

// String is the word for p.
func (p Priority) String() string {
	switch p {
	case Background:
		return "background"
	case Interactive:
		return "interactive"
	}
	return "normal"
}

// ParsePriority reads the word for one.
func ParsePriority(word string) (Priority, bool) {
	for _, p := range Priorities {
		if word == p.String() {
			return p, true
		}
	}
	return Normal, false
}

// Ticket is somebody who waits. Nobody changes it while it stands in a line.
type Ticket struct {
	Key      string // whose share it comes from
	Priority Priority
	Work     float64   // estimated, in tokens; less than 1 counts as 1
	Weight   float64   // of the key's share beside others'; 0 is 1
	Since    time.Time // when it came
	Again    bool      // it had no place before, and has come again
	Owner    any       // whose it is, for who uses the line

	flow   *flow // nil while it stands nowhere
	serial uint64
	within *list.Element // of the flow
	age    *list.Element // of the class
}

func (t *Ticket) work() float64 {
	w := cmp.Or(t.Weight, 1)
	return max(t.Work, 1) / w
}

// Line is who waits for one model.
type Line struct {
	room    *Room
	age     time.Duration
	classes [len(Priorities)]class // by Priority, the lowest first
	length  int
	serial  uint64
	clock   float64 // of the turns among classes
}

// class is one priority of a line.
type class struct {
	priority Priority
	flows    map[string]*flow // with tickets, or with a tag above the clock
	waiting  flows            // those with tickets, as a heap
	ages     *list.List       // of all tickets, in the order in which they came
	clock    float64          // the tag of the last ticket that was taken
	turn     float64          // what the class was given, on the line's clock
}

// flow is one key in a class.
type flow struct {
	key     string
	class   *class
	tickets *list.List
	tag     float64 // of the first ticket, or of the next one that comes
	at      int     // in the heap; -1 when it is not there
}

// New returns a line without tickets. age is how long a priority waits before it rises; 0 is never.
func New(room *Room, age time.Duration) *Line {
	l := &Line{room: room, age: age}
	for i := range l.classes {
		l.classes[i] = class{priority: Priority(i) + Background, flows: map[string]*flow{}, ages: list.New()}
	}
	return l
}

// Age changes how long a priority waits before it rises.
func (l *Line) Age(age time.Duration) { l.age = age }

// Len is how many tickets stand in line.
func (l *Line) Len() int { return l.length }

// Count is how many of a priority do.
func (l *Line) Count(p Priority) int { return l.class(p).ages.Len() }

// Keys is how many keys have tickets.
func (l *Line) Keys() int {
	if l.length == 0 {
		return 0
	}
	keys := map[string]bool{}
	for i := range l.classes {
		for _, f := range l.classes[i].waiting {
			keys[f.key] = true
		}
	}
	return len(keys)
}

// Oldest returns the ticket that has waited longest, nil in an empty line.
func (l *Line) Oldest() *Ticket {
	var oldest *Ticket
	for i := range l.classes {
		if t := l.classes[i].oldest(); t != nil && (oldest == nil || t.Since.Before(oldest.Since)) {
			oldest = t
		}
	}
	return oldest
}

// First returns the ticket of a priority that has waited longest, nil when there is none.
func (l *Line) First(p Priority) *Ticket { return l.class(p).oldest() }

func (l *Line) class(p Priority) *class {
	return &l.classes[min(max(p, Background), Interactive)-Background]
}

func (c *class) oldest() *Ticket {
	if e := c.ages.Front(); e != nil {
		return e.Value.(*Ticket)
	}
	return nil
}

// Push puts a ticket in line. A *FullError says that there is no place.
func (l *Line) Push(t *Ticket) error {
	if t.flow != nil {
		panic("a ticket stands in line already")
	}
	if err := l.room.Full(t.Key, t.Again); err != nil {
		return err
	}
	l.room.add(t.Key, 1)
	l.put(t)
	return nil
}

func (l *Line) put(t *Ticket) {
	c := l.class(t.Priority)
	f := c.flows[t.Key]
	if f == nil {
		f = &flow{key: t.Key, class: c, tickets: list.New(), tag: c.clock, at: -1}
		c.flows[t.Key] = f
	}
	l.serial++
	l.length++
	t.serial, t.flow = l.serial, f
	t.within = f.tickets.PushBack(t)
	e := c.ages.Back() // behind whoever came before it; most come last
	for e != nil && e.Value.(*Ticket).Since.After(t.Since) {
		e = e.Prev()
	}
	if e == nil {
		t.age = c.ages.PushFront(t)
	} else {
		t.age = c.ages.InsertAfter(t, e)
	}
	if f.at < 0 {
		f.tag = max(f.tag, c.clock) // what was saved while nothing was asked is gone
		heap.Push(&c.waiting, f)
	}
}

// Pop takes out who is next, nil in an empty line.
func (l *Line) Pop(now time.Time) *Ticket {
	c := l.next(now, l.classStates())
	if c < 0 {
		return nil
	}
	k := &l.classes[c]
	f := k.waiting[0]
	t := f.tickets.Front().Value.(*Ticket)
	start := max(k.turn, l.clock)
	l.clock, k.turn = start, start+t.work()
	k.clock = max(k.clock, f.tag)
	f.tag += t.work()
	l.drop(t)
	k.prune()
	return t
}

// Pass charges for a ticket that goes by an empty line, since it need not wait.
func (l *Line) Pass(t *Ticket) {
	l.put(t)
	l.room.add(t.Key, 1)
	l.Pop(t.Since)
}

// Remove takes a ticket out that gives up, and reports whether it stood in line.
func (l *Line) Remove(t *Ticket) bool {
	if t.flow == nil {
		return false
	}
	l.drop(t)
	return true
}

// drop takes a ticket out of all lists.
func (l *Line) drop(t *Ticket) {
	f := t.flow
	c := f.class
	f.tickets.Remove(t.within)
	c.ages.Remove(t.age)
	t.flow, t.within, t.age = nil, nil, nil
	if f.tickets.Len() == 0 {
		heap.Remove(&c.waiting, f.at)
	} else {
		heap.Fix(&c.waiting, f.at)
	}
	l.length--
	l.room.add(t.Key, -1)
}

// prune forgets keys that would begin at the clock anyway.
func (c *class) prune() {
	if len(c.flows) < 2*len(c.waiting)+8 {
		return
	}
	for key, f := range c.flows {
		if f.at < 0 && f.tag <= c.clock {
			delete(c.flows, key)
		}
	}
}

// Settle says what a ticket that was taken has been in truth, in the measure of its Work. What it was charged too much is
// given back, but for no more than puts its key one such ticket before the others.
func (l *Line) Settle(t *Ticket, work float64) {
	c := l.class(t.Priority)
	diff := max(work, 1)/cmp.Or(t.Weight, 1) - t.work()
	f := c.flows[t.Key]
	switch {
	case f == nil && diff <= 0:
		return
	case f == nil:
		f = &flow{key: t.Key, class: c, tickets: list.New(), tag: c.clock, at: -1}
		c.flows[t.Key] = f
	}
	f.tag = max(f.tag+diff, min(f.tag, c.clock-math.Abs(diff)))
	if f.at >= 0 {
		heap.Fix(&c.waiting, f.at)
	}
}

// state is a class as a look ahead sees it.
type state struct {
	oldest *Ticket // nil for none
	turn   float64
}

func (l *Line) classStates() [len(Priorities)]state {
	var all [len(Priorities)]state
	for i := range l.classes {
		all[i] = state{l.classes[i].oldest(), l.classes[i].turn}
	}
	return all
}

// next returns the class whose turn it is, -1 when nobody waits.
func (l *Line) next(now time.Time, all [len(Priorities)]state) int {
	best, level := -1, Background-1
	for i := len(all) - 1; i >= 0; i-- { // the highest first: it wins where turns are equal
		if all[i].oldest == nil {
			continue
		}
		p := l.risen(Priority(i)+Background, all[i].oldest, now)
		if p > level || p == level && max(all[i].turn, l.clock) < max(all[best].turn, l.clock) {
			best, level = i, p
		}
	}
	return best
}

// risen is the priority of a class whose oldest ticket has waited.
func (l *Line) risen(p Priority, oldest *Ticket, now time.Time) Priority {
	if l.age <= 0 {
		return p
	}
	steps := max(0, now.Sub(oldest.Since)) / l.age
	return p + min(Priority(min(steps, 2)), Interactive-p)
}

// flows is a heap of keys that have tickets, the smallest tag first and then whoever came first.
type flows []*flow

func (h flows) Len() int           { return len(h) }
func (h flows) Less(i, j int) bool { return before(h[i].tag, h[i].first(), h[j].tag, h[j].first()) }
func (h flows) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push appends, for container/heap.
func (h *flows) Push(x any) {
	f := x.(*flow)
	f.at = len(*h)
	*h = append(*h, f)
}

// Pop takes the last one, for container/heap.
func (h *flows) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	*h, f.at = (*h)[:last], -1
	return f
}

// first is the number of a flow's first ticket; of one that is being emptied, none.
func (f *flow) first() uint64 {
	if e := f.tickets.Front(); e != nil {
		return e.Value.(*Ticket).serial
	}
	return 0
}

func before(tag float64, serial uint64, other float64, otherSerial uint64) bool {
	if tag != other {
		return tag < other
	}
	return serial < otherSerial
}
