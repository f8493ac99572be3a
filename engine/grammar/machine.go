package grammar

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Bounds of a machine.
const (
	maxDepth = 1000    // of calls within calls
	maxWork  = 500_000 // nodes and callers looked at for one question
	maxNew   = 20_000  // states made for one question
	maxKept  = 6 << 20 // rough bytes of what is interned, before all of it is forgotten
	maxMasks = 64      // masks kept
)

// machine follows texts through a program. Its states are interned and keep where each class of bytes leads.
type machine struct {
	*program
	first *state
	gen   int // raised whenever all is forgotten
	err   error

	accepted *frame // the caller of the whole form
	bottom   *set
	frames   map[frameKey]*frame
	sets     map[string]*set
	unions   map[[2]*set]*set
	states   map[string]*state
	kept     int
	lastID   uint64
	masked   []*state // those with masks, oldest first

	work, made int // of the question under way

	reach []*set // of each node, while a closure is under way
	todo  []int32
	found []int32
	key   []byte
}

// frame is a place to go back to at the end of a rule, with those of its own rule.
type frame struct {
	id   uint64
	next int32
	up   *set
	only *set // of this frame
}

type frameKey struct {
	next int32
	up   *set
}

// set is some frames, at most one for each node to go back to, sorted by it.
type set struct {
	id     uint64
	frames []*frame
	depth  int
}

// item is a node that may read the next byte.
type item struct {
	at int32
	up *set
}

// state is all that may be going on after some text. Only its ways and its mask change.
type state struct {
	items  []item
	accept bool
	ways   []*state // by class; nil is not known yet
	mask   []uint64
}

// dead is where no text of the form goes on.
var dead = &state{}

func newMachine(p *program) *machine {
	m := &machine{program: p, reach: make([]*set, len(p.nodes))}
	m.accepted = &frame{id: 1, next: -1}
	m.bottom = &set{id: 2, frames: []*frame{m.accepted}}
	m.accepted.only, m.lastID = m.bottom, 2
	m.forget()
	return m
}

// forget drops all that is interned. Who holds a state interns it anew.
func (m *machine) forget() {
	m.gen++
	m.frames, m.sets = map[frameKey]*frame{}, map[string]*set{}
	m.unions, m.states = map[[2]*set]*set{}, map[string]*state{}
	m.kept, m.masked = 0, nil
	if m.first != nil {
		m.first = m.intern(m.first.items, m.first.accept)
	}
}

// begin starts a question.
func (m *machine) begin() {
	m.work, m.made, m.err = 0, 0, nil
	if m.kept > maxKept {
		m.forget()
	}
}

// start makes the first state; nil means m.err.
func (m *machine) start() *state {
	m.begin()
	m.visit(m.program.start, m.bottom)
	m.first = m.close()
	if m.err != nil {
		return nil
	}
	return m.first
}

// spend counts work and says whether there is some left.
func (m *machine) spend(n int) bool {
	m.work += n
	if m.work > maxWork && m.err == nil {
		m.err = &LimitError{What: "too many of its parts can go on at the same place"}
	}
	return m.err == nil
}

// step is the state after a byte: dead when the form has no such text, or when m.err says why it is not known.
func (m *machine) step(s *state, b byte) *state {
	c := m.classOf[b]
	if s.ways != nil {
		if to := s.ways[c]; to != nil {
			return to
		}
	} else if s == dead {
		return dead
	} else {
		s.ways = make([]*state, m.classes)
		m.kept += 8 * m.classes
	}
	if !m.spend(len(s.items)) {
		return dead
	}
	for _, it := range s.items {
		if n := &m.nodes[it.at]; m.program.sets[n.set].has(c) {
			m.visit(n.next, it.up)
		}
	}
	to := m.close()
	if m.err == nil {
		s.ways[c] = to
	}
	return to
}

// visit notes that a node is reached with some callers.
func (m *machine) visit(at int32, up *set) {
	if !m.nodes[at].live {
		return
	}
	old := m.reach[at]
	if old == nil {
		m.found = append(m.found, at)
	} else if up = m.union(old, up); up == old {
		return
	}
	m.reach[at] = up
	m.todo = append(m.todo, at)
}

// close follows what needs no byte from the nodes that were visited, and makes a state of those that read one.
func (m *machine) close() *state {
	for len(m.todo) > 0 && m.spend(1) {
		at := m.todo[len(m.todo)-1]
		m.todo = m.todo[:len(m.todo)-1]
		n, up := &m.nodes[at], m.reach[at]
		switch n.kind {
		case split:
			m.spend(len(n.outs))
			for _, o := range n.outs {
				m.visit(o, up)
			}
		case enter:
			if m.nodes[n.next].live {
				if f := m.frame(n.next, up); f != nil {
					m.visit(n.entry, f)
				}
			}
		case leave:
			for _, f := range up.frames {
				if f != m.accepted && m.spend(1) {
					m.visit(f.next, f.up)
				}
			}
		}
	}
	m.todo = m.todo[:0]
	var items []item
	accept := false
	for _, at := range m.found {
		switch m.nodes[at].kind {
		case match:
			items = append(items, item{at, m.reach[at]})
		case leave:
			accept = accept || m.reach[at].frames[0] == m.accepted // it is sorted first
		}
		m.reach[at] = nil
	}
	m.found = m.found[:0]
	if m.err != nil || len(items) == 0 && !accept {
		return dead
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.at, b.at) })
	return m.intern(items, accept)
}

// intern is the one state of these items.
func (m *machine) intern(items []item, accept bool) *state {
	m.key = m.key[:0]
	for _, it := range items {
		m.key = binary.LittleEndian.AppendUint32(m.key, uint32(it.at))
		m.key = binary.LittleEndian.AppendUint64(m.key, it.up.id)
	}
	if accept {
		m.key = append(m.key, 1)
	}
	if s := m.states[string(m.key)]; s != nil {
		return s
	}
	if m.made++; m.made > maxNew && m.err == nil {
		m.err = &LimitError{What: "one token may be a part of too many texts"}
		return dead
	}
	s := &state{items: items, accept: accept}
	m.states[string(m.key)] = s
	m.kept += 160 + 2*len(m.key) + 16*len(items)
	return s
}

// frame is the set of one caller: the node to go back to, with the callers of its rule. It is nil beyond the depth.
func (m *machine) frame(next int32, up *set) *set {
	if up.depth >= maxDepth {
		return nil
	}
	k := frameKey{next, up}
	f := m.frames[k]
	if f == nil {
		m.lastID += 2
		f = &frame{id: m.lastID - 1, next: next, up: up}
		f.only = &set{id: m.lastID, frames: []*frame{f}, depth: up.depth + 1}
		m.frames[k] = f
		m.kept += 200
	}
	return f.only
}

// union is the callers of both sets: frames that go back to the same node become one.
func (m *machine) union(a, b *set) *set {
	if a == b {
		return a
	}
	if a.id > b.id {
		a, b = b, a
	}
	k := [2]*set{a, b}
	if u := m.unions[k]; u != nil {
		return u
	}
	if !m.spend(len(a.frames) + len(b.frames)) {
		return a
	}
	list := make([]*frame, 0, len(a.frames)+len(b.frames))
	i, j := 0, 0
	for i < len(a.frames) && j < len(b.frames) {
		switch x, y := a.frames[i], b.frames[j]; {
		case x == y:
			list = append(list, x)
			i, j = i+1, j+1
		case x.next < y.next:
			list = append(list, x)
			i++
		case x.next > y.next:
			list = append(list, y)
			j++
		default:
			if both := m.frame(x.next, m.union(x.up, y.up)); both != nil {
				list = append(list, both.frames[0])
			}
			i, j = i+1, j+1
		}
	}
	list = append(append(list, a.frames[i:]...), b.frames[j:]...)
	u := m.setOf(list)
	m.unions[k] = u
	m.kept += 64
	return u
}

// setOf is the one set of these frames.
func (m *machine) setOf(list []*frame) *set {
	if len(list) == 1 {
		return list[0].only
	}
	key := make([]byte, 0, 8*len(list))
	depth := 0
	for _, f := range list {
		key = binary.LittleEndian.AppendUint64(key, f.id)
		depth = max(depth, f.only.depth)
	}
	s := m.sets[string(key)]
	if s == nil {
		m.lastID++
		s = &set{id: m.lastID, frames: list, depth: depth}
		m.sets[string(key)] = s
		m.kept += 100 + 16*len(list)
	}
	return s
}
