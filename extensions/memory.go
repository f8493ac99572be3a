package extensions

import (
	"container/list"
	"context"
	"sync"
	"time"

	"onebit/extensions/conversation"
)

// conversations is how many are remembered.
const conversations = 8192

// decision is what was decided for a conversation.
type decision struct {
	outcome Outcome
	by      map[string]string // binding -> key of the generation that decided
	until   time.Time         // zero: for as long as it is remembered
	decided bool
}

// entry is one conversation. Whoever holds turn decides for it; the others wait, so that two requests of one
// conversation are never decided by two generations.
type entry struct {
	id   conversation.ID
	turn chan struct{}
	decision
}

// memory keeps decisions, and forgets the conversation that was longest not asked for when it is full.
type memory struct {
	mu    sync.Mutex
	at    map[conversation.ID]*list.Element
	order *list.List // of *entry, the latest first
}

func newMemory() *memory {
	return &memory{at: map[conversation.ID]*list.Element{}, order: list.New()}
}

// take waits for the turn of a conversation. It gives up with ctx.
func (m *memory) take(ctx context.Context, id conversation.ID) (*entry, error) {
	m.mu.Lock()
	e, ok := m.at[id]
	if ok {
		m.order.MoveToFront(e)
	} else {
		if m.order.Len() == conversations {
			last := m.order.Back()
			delete(m.at, last.Value.(*entry).id)
			m.order.Remove(last)
		}
		e = m.order.PushFront(&entry{id: id, turn: make(chan struct{}, 1)})
		m.at[id] = e
	}
	m.mu.Unlock()
	one := e.Value.(*entry)
	select {
	case one.turn <- struct{}{}:
		return one, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (e *entry) give() { <-e.turn }

// len is how many conversations are remembered.
func (m *memory) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.order.Len()
}
