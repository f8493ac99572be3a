package extensions

import (
	"container/heap"
	"container/list"
)

// holders are who has conversations in memory, as a heap: first whoever has most; of equals, whose oldest is older.
type holders []*holder

// holder is one owner.
type holder struct {
	scope string
	kept  *list.List // of *entry, the latest first
	at    int        // in the heap
}

func (h holders) Len() int { return len(h) }

func (h holders) Less(i, j int) bool {
	a, b := h[i].kept, h[j].kept
	if a.Len() != b.Len() {
		return a.Len() > b.Len()
	}
	return a.Back().Value.(*entry).asked < b.Back().Value.(*entry).asked
}

func (h holders) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push appends, for container/heap.
func (h *holders) Push(x any) {
	one := x.(*holder)
	one.at = len(*h)
	*h = append(*h, one)
}

// Pop takes the last one, for container/heap.
func (h *holders) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	*h = (*h)[:last]
	return one
}

// keep takes a conversation in as the latest of its owner. mu is held.
func (m *memory) keep(e *entry) *list.Element {
	m.serial++
	m.n++
	e.asked = m.serial
	scope := e.owner.scope()
	if e.holder = m.held[scope]; e.holder != nil {
		at := e.holder.kept.PushFront(e)
		heap.Fix(&m.order, e.holder.at)
		return at
	}
	e.holder = &holder{scope: scope, kept: list.New()}
	m.held[scope] = e.holder
	at := e.holder.kept.PushFront(e)
	heap.Push(&m.order, e.holder)
	return at
}

// again says that a conversation was asked for. mu is held.
func (m *memory) again(at *list.Element) {
	e := at.Value.(*entry)
	m.serial++
	e.asked = m.serial
	e.holder.kept.MoveToFront(at)
	heap.Fix(&m.order, e.holder.at)
}

// let lets go of a conversation. mu is held.
func (m *memory) let(at *list.Element) {
	h := at.Value.(*entry).holder
	m.n--
	h.kept.Remove(at)
	if h.kept.Len() > 0 {
		heap.Fix(&m.order, h.at)
		return
	}
	heap.Remove(&m.order, h.at)
	delete(m.held, h.scope)
}
