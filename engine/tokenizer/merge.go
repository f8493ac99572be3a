package tokenizer

import "math"

// pairing tells what two neighbouring symbols make: the symbol, and a key by
// which the pairs of a text are merged, least first. ok is false when they do
// not merge. No key is noPair.
type pairing interface {
	pair(m *merger, left, right int32) (key uint32, into int32, ok bool)
}

const noPair = math.MaxUint32

// short is the number of symbols up to which a search beats the heap.
const short = 24

// merger merges the symbols of one text. Symbols are kept as a list through
// arrays, so that merging takes no moves; the arrays are used again for the
// next text.
type merger struct {
	text  string
	ids   []int32  // symbol, or none for a character that is none
	start []int32  // where each begins in text
	prev  []int32  // list of those that are left, none at its ends
	next  []int32  //
	keys  []uint32 // key of the pair of each with its next
	into  []int32  // what that pair makes
	heap  []uint64 // key and left symbol of pairs; some no longer exist
}

// reset makes the merger ready for a text of at most len(text) symbols.
func (m *merger) reset(text string) {
	if n := len(text); n > cap(m.ids) {
		all := make([]int32, 5*n)
		m.ids, m.start, m.prev = all[:0:n], all[n:n:2*n], all[2*n:2*n:3*n]
		m.next, m.into = all[3*n:3*n:4*n], all[4*n:4*n:5*n]
		m.keys = make([]uint32, 0, n)
	}
	m.text = text
	m.ids, m.start = m.ids[:0], m.start[:0]
	m.prev, m.next = m.prev[:0], m.next[:0]
	m.keys, m.into = m.keys[:0], m.into[:0]
	m.heap = m.heap[:0]
}

// add appends a symbol that begins at start.
func (m *merger) add(id int32, start int) {
	n := int32(len(m.ids))
	m.ids = append(m.ids, id)
	m.start = append(m.start, int32(start))
	m.prev = append(m.prev, n-1)
	m.next = append(m.next, n+1)
	m.keys = append(m.keys, noPair)
	m.into = append(m.into, none)
}

// end returns where symbol i ends in the text.
func (m *merger) end(i int32) int32 {
	if n := m.next[i]; n != none {
		return m.start[n]
	}
	return int32(len(m.text))
}

// run merges until no pair is left, always the one with the least key, of
// equal keys the leftmost.
func (m *merger) run(p pairing) {
	n := len(m.ids)
	if n == 0 {
		return
	}
	m.next[n-1] = none
	for i := range n - 1 {
		m.look(p, int32(i))
	}
	if n <= short {
		for {
			best, at := uint32(noPair), none
			for i := int32(0); i != none; i = m.next[i] {
				if m.keys[i] < best {
					best, at = m.keys[i], i
				}
			}
			if at == none {
				return
			}
			m.merge(p, at)
		}
	}
	for i, key := range m.keys {
		if key != noPair {
			m.heap = append(m.heap, uint64(key)<<32|uint64(i))
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	for len(m.heap) > 0 {
		top := m.pop()
		if i := int32(top); m.keys[i] == uint32(top>>32) {
			m.merge(p, i)
			if m.prev[i] != none {
				m.push(m.prev[i])
			}
			m.push(i)
		}
	}
}

// look sets what symbol i and its next make.
func (m *merger) look(p pairing, i int32) {
	m.keys[i] = noPair
	if n := m.next[i]; n != none {
		if key, into, ok := p.pair(m, i, n); ok {
			m.keys[i], m.into[i] = key, into
		}
	}
}

// merge joins symbol i and its next.
func (m *merger) merge(p pairing, i int32) {
	gone := m.next[i]
	m.ids[i] = m.into[i]
	m.keys[gone] = noPair
	after := m.next[gone]
	m.next[i] = after
	if after != none {
		m.prev[after] = i
	}
	m.look(p, i)
	if before := m.prev[i]; before != none {
		m.look(p, before)
	}
}

func (m *merger) push(i int32) {
	if m.keys[i] == noPair {
		return
	}
	m.heap = append(m.heap, uint64(m.keys[i])<<32|uint64(i))
	h := m.heap
	for c := len(h) - 1; c > 0; {
		up := (c - 1) / 2
		if h[up] <= h[c] {
			break
		}
		h[up], h[c] = h[c], h[up]
		c = up
	}
}

func (m *merger) pop() uint64 {
	top, last := m.heap[0], len(m.heap)-1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	m.down(0)
	return top
}

func (m *merger) down(i int) {
	h := m.heap
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[i] <= h[c] {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
