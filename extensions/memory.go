package extensions

import (
	"container/list"
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"onebit/extensions/conversation"
)

const (
	conversations = 8192 // that are remembered in memory
	maxNames      = 8    // by which one is found: the latest

	// how long a request waits for what is known of its conversation; without it the conversation is a new one
	findLimit = 250 * time.Millisecond
)

// decision is what was decided for a conversation, and how far it has come.
type decision struct {
	outcome Outcome
	by      map[string]string // binding -> key of the generation that decided
	until   time.Time         // zero: for as long as it is remembered
	decided bool
	tokens  int // of prompt and answer of the last turn that was served
	turns   int
	first   time.Time
}

// entry is one conversation. Whoever holds turn decides for it; the others wait, so that two requests of one
// conversation are never decided by two generations.
type entry struct {
	id    conversation.ID
	owner Owner
	turn  chan struct{}
	decision
	private bool                     // what its latest request asks for; the owner is as it was with the first
	given   atomic.Pointer[decision] // as it was when the turn was last given back: what a branch begins with

	// guarded by the turn
	changed bool      // since it was kept
	touched bool      // since the turn was last given back
	listed  bool      // it is to be kept
	keptAt  time.Time // when it last was

	// guarded by memory.mu
	names  []conversation.ID // by which it is found, the latest last
	fresh  []conversation.ID // of those, the ones that are not kept yet
	latest conversation.ID   // that of its latest turn
	known  conversation.ID   // that which is kept
	gone   bool              // it was forgotten on purpose
	holder *holder           // who has it
	asked  uint64            // a number that grows: when it was last asked for
}

// give ends a turn.
func (e *entry) give() {
	old := e.given.Load()
	if old == nil || e.touched || !maps.Equal(e.by, old.by) {
		now := e.decision
		now.by = maps.Clone(now.by)
		e.given.Store(&now)
	}
	e.touched = false
	<-e.turn
}

// touch says that what was decided has changed, or how far it has come. The turn is held.
func (e *entry) touch() { e.changed, e.touched = true, true }

// memory is the front of what is kept of conversations. When it is full it forgets the one that was longest not asked for of
// the owner who has most: what is not kept elsewhere (see Owner.Private) is not pushed out by somebody else's many.
type memory struct {
	store Conversations // nil: what is forgotten here is lost

	loading chan struct{} // one at a time, so that nobody loads a conversation twice

	mu     sync.Mutex
	ids    map[conversation.ID]*list.Element // in the list of its holder
	at     map[conversation.ID]*list.Element // by each of its names
	held   map[string]*holder                // by Owner.scope
	order  holders
	n      int // conversations
	serial uint64
}

func newMemory(store Conversations) *memory {
	return &memory{store: store, loading: make(chan struct{}, 1), ids: map[conversation.ID]*list.Element{}, at: map[conversation.ID]*list.Element{}, held: map[string]*holder{}}
}

// take waits for the turn of the conversation that somebody's request belongs to. It gives up with ctx.
func (m *memory) take(ctx context.Context, owner Owner, who conversation.Identity) (*entry, error) {
	e := m.find(ctx, owner, who)
	select {
	case e.turn <- struct{}{}:
		return e, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// byID waits for the turn of a conversation that was taken before; nil when it has been forgotten.
func (m *memory) byID(ctx context.Context, id conversation.ID) *entry {
	m.mu.Lock()
	at, ok := m.ids[id]
	m.mu.Unlock()
	if !ok {
		return nil
	}
	e := at.Value.(*entry)
	select {
	case e.turn <- struct{}{}:
		return e
	case <-ctx.Done():
		return nil
	}
}

// find returns the conversation of a request, which may be a new one.
func (m *memory) find(ctx context.Context, owner Owner, who conversation.Identity) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.match(who)
	if m.store != nil && !owner.Private && !found.sure() {
		if names := found.longer(who); len(names) > 0 && m.store.May(names) {
			m.mu.Unlock()
			m.load(ctx, owner, names)
			m.mu.Lock()
			found = m.match(who)
		}
	}
	return m.settle(owner, who, found)
}

// match is what memory knows of a request.
type match struct {
	e *entry // nil for nothing
	i int    // of the message of the user up to which it is known, from 0
	n int    // messages of the user
}

// sure tells whether nobody can know better: the conversation was here before this message or with it.
func (f match) sure() bool { return f.e != nil && f.i >= f.n-2 }

// longer are the names by which somebody else may know better, the longest first.
func (f match) longer(who conversation.Identity) []string {
	from := 0
	if f.e != nil {
		from = f.i + 1
	}
	var names []string
	for _, n := range slices.Backward(who.Names()[from:]) {
		names = append(names, string(n))
	}
	return names
}

// match finds the conversation that shares most with a request. mu is held.
func (m *memory) match(who conversation.Identity) match {
	names := who.Names()
	for i, name := range slices.Backward(names) {
		at, ok := m.at[name]
		if !ok {
			at, ok = m.ids[name]
		}
		if ok {
			return match{at.Value.(*entry), i, len(names)}
		}
	}
	return match{n: len(names)}
}

// settle makes a match the conversation of a request. A conversation goes on where its latest turn was; who goes on from an
// earlier one is a branch of it, which begins with what was decided for it; and an opening that another conversation has left
// behind is the begin of a new one. mu is held.
func (m *memory) settle(owner Owner, who conversation.Identity, f match) *entry {
	names := who.Names()
	name := names[len(names)-1]
	switch {
	case f.e == nil:
		return m.add(&entry{id: who.ID, owner: owner, latest: name}, name)
	case who.Alike == nil || f.e.latest == names[f.i]:
		m.name(f.e, name)
		f.e.latest = name
		m.again(m.ids[f.e.id])
		return f.e
	}
	e := &entry{id: unused(), owner: owner, latest: name}
	if before := f.e.given.Load(); before != nil && f.n > 1 {
		e.decision = *before
		e.by = maps.Clone(e.by)
		e.outcome.Conversation = string(e.id)
	}
	return m.add(e, name)
}

// unused is the id of a conversation that began like another.
func unused() conversation.ID {
	var b [16]byte
	rand.Read(b[:])
	return conversation.ID(hex.EncodeToString(b[:]))
}

// add takes a conversation in. mu is held.
func (m *memory) add(e *entry, names ...conversation.ID) *entry {
	e.turn = make(chan struct{}, 1)
	at := m.keep(e)
	m.ids[e.id] = at
	if m.n > conversations {
		m.drop(m.order[0].kept.Back())
	}
	for _, n := range names {
		m.name(e, n)
	}
	return e
}

// name makes a conversation found by one more name. mu is held.
func (m *memory) name(e *entry, name conversation.ID) {
	at := m.ids[e.id]
	if m.at[name] == at {
		return
	}
	m.at[name] = at
	e.names, e.fresh = append(e.names, name), append(e.fresh, name)
	if len(e.names) > maxNames {
		if m.at[e.names[0]] == at {
			delete(m.at, e.names[0])
		}
		e.names = slices.Delete(e.names, 0, 1)
	}
	e.fresh = e.fresh[max(0, len(e.fresh)-maxNames):]
}

// drop forgets a conversation. mu is held.
func (m *memory) drop(at *list.Element) {
	e := at.Value.(*entry)
	if m.ids[e.id] == at {
		delete(m.ids, e.id)
	}
	for _, n := range e.names {
		if m.at[n] == at {
			delete(m.at, n)
		}
	}
	m.let(at)
}

// load brings the conversation of the first of the names that is known into memory. What cannot be read is not known.
func (m *memory) load(ctx context.Context, owner Owner, names []string) {
	select {
	case m.loading <- struct{}{}:
		defer func() { <-m.loading }()
	case <-ctx.Done():
		return
	}
	m.mu.Lock()
	for _, n := range names { // somebody else has been here
		if _, ok := m.at[conversation.ID(n)]; ok {
			m.mu.Unlock()
			return
		}
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, findLimit)
	defer cancel()
	c := m.store.Find(ctx, names)
	if c == nil {
		return
	}
	e := c.entry(owner)
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.ids[e.id]; ok {
		e = at.Value.(*entry) // it is here, under other names
	} else {
		m.add(e)
	}
	fresh := e.fresh
	for _, n := range c.Names {
		if _, taken := m.at[conversation.ID(n)]; !taken { // by one that is not kept yet
			m.name(e, conversation.ID(n))
		}
	}
	e.fresh = fresh
}

// renamed tells whether a conversation has names that are not kept.
func (m *memory) renamed(e *entry) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(e.fresh) > 0 || e.latest != e.known
}

// unkept returns the names that a conversation was given since it was last kept, and that of its latest turn. It is not ok
// to keep one that was forgotten.
func (m *memory) unkept(e *entry) (names []string, latest string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.gone {
		return nil, "", false
	}
	for _, n := range e.fresh {
		names = append(names, string(n))
	}
	e.fresh, e.known = nil, e.latest
	return names, string(e.latest), true
}

// also makes a conversation found by a name that is none of its turns.
func (m *memory) also(e *entry, name conversation.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.ids[e.id]; ok {
		m.name(e, name)
	}
}

// forget drops conversations, and returns how many.
func (m *memory) forget(which func(Owner) bool) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.ids {
		if e := at.Value.(*entry); which(e.owner) {
			e.gone = true
			m.drop(at)
			n++
		}
	}
	return n
}

// len is how many conversations are remembered.
func (m *memory) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n
}
