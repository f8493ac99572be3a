package gateway

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"sync"

	"onebit/engine"
)

// conversation identifies a conversation by how it begins, so that its next turn is recognised.
type conversation [sha256.Size]byte

// identity is made of the messages up to the first of the user, or of the prompt where there are none. The name that
// the client gives the model, its tools and its settings are no part of it.
func identity(req *engine.Request) conversation {
	var body struct {
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Prompt json.RawMessage `json:"prompt"`
		Input  json.RawMessage `json:"input"`
	}
	h := sha256.New()
	if json.Unmarshal(req.Raw, &body) != nil {
		return sha256.Sum256(req.Raw)
	}
	part := func(role string, content json.RawMessage) {
		var one bytes.Buffer
		if json.Compact(&one, content) != nil {
			one.Write(content)
		}
		h.Write([]byte(role + ":"))
		h.Write(one.Bytes())
		h.Write([]byte("\n"))
	}
	for _, m := range body.Messages {
		part(m.Role, m.Content)
		if m.Role == "user" {
			break
		}
	}
	if len(body.Messages) == 0 {
		part("", body.Prompt)
		part("", body.Input)
	}
	return conversation(h.Sum(nil))
}

// remembered is how many conversations a table holds.
const remembered = 4096

// table keeps something about conversations, and forgets the one that was longest not asked for when it is full. It is
// safe for concurrent use.
type table[V any] struct {
	mu     sync.Mutex
	places map[conversation]*list.Element
	order  *list.List // of entry[V], the latest first
}

type entry[V any] struct {
	who   conversation
	value V
}

func newTable[V any]() *table[V] {
	return &table[V]{places: map[conversation]*list.Element{}, order: list.New()}
}

// get returns what is kept.
func (t *table[V]) get(who conversation) (value V, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.look(who)
}

func (t *table[V]) look(who conversation) (value V, ok bool) {
	e, ok := t.places[who]
	if !ok {
		return value, false
	}
	t.order.MoveToFront(e)
	return e.Value.(entry[V]).value, true
}

// set keeps a value.
func (t *table[V]) set(who conversation, value V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.places[who]; ok {
		e.Value = entry[V]{who, value}
		t.order.MoveToFront(e)
		return
	}
	if t.order.Len() == remembered {
		last := t.order.Back()
		delete(t.places, last.Value.(entry[V]).who)
		t.order.Remove(last)
	}
	t.places[who] = t.order.PushFront(entry[V]{who, value})
}

// settle keeps a value unless there is one, and returns the one that is kept.
func (t *table[V]) settle(who conversation, value V) V {
	if kept, ok := t.get(who); ok {
		return kept
	}
	t.set(who, value)
	return value
}
