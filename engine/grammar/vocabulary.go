package grammar

import (
	"bytes"
	"slices"
)

// Vocabulary is the tokens that an answer is made of, as a trie of their bytes: in the order of a walk, each node with
// its depth and where its subtree ends. It is safe for concurrent use.
type Vocabulary struct {
	size  int
	piece func(id int32) []byte
	end   func(id int32) bool
	final []int32 // tokens that end an answer

	letter []byte
	depth  []uint16
	skip   []int32
	first  []int32 // tokens of node i: ids[first[i]:first[i+1]]
	ids    []int32
}

// maxPiece bounds the bytes of a token that an answer of a form may hold.
const maxPiece = 1 << 12

// NewVocabulary reads size tokens: piece returns the bytes of one, none for what is not text, and end says whether it
// ends an answer.
func NewVocabulary(size int, piece func(id int32) []byte, end func(id int32) bool) *Vocabulary {
	v := &Vocabulary{size: size, piece: piece, end: end}
	for id := range int32(size) {
		switch n := len(piece(id)); {
		case end(id):
			v.final = append(v.final, id)
		case n > 0 && n <= maxPiece:
			v.ids = append(v.ids, id)
		}
	}
	slices.SortFunc(v.ids, func(a, b int32) int {
		if c := bytes.Compare(piece(a), piece(b)); c != 0 {
			return c
		}
		return int(a - b)
	})
	var open []int32 // the nodes of the last piece
	var last []byte
	for i, id := range v.ids {
		p := piece(id)
		common := 0
		for common < min(len(p), len(last)) && p[common] == last[common] {
			common++
		}
		v.closeFrom(open, common)
		open = open[:common]
		for d := common; d < len(p); d++ {
			open = append(open, int32(len(v.letter)))
			v.letter, v.depth, v.skip = append(v.letter, p[d]), append(v.depth, uint16(d)), append(v.skip, 0)
			v.first = append(v.first, int32(i))
		}
		last = p
	}
	v.closeFrom(open, 0)
	v.first = append(v.first, int32(len(v.ids)))
	return v
}

// closeFrom says of the open nodes at a depth and below that their subtrees end here.
func (v *Vocabulary) closeFrom(open []int32, depth int) {
	for _, n := range open[min(depth, len(open)):] {
		v.skip[n] = int32(len(v.letter))
	}
}

func (v *Vocabulary) ends(id int32) bool { return id >= 0 && int(id) < v.size && v.end(id) }

func (v *Vocabulary) bytes(id int32) []byte {
	if id < 0 || int(id) >= v.size {
		return nil
	}
	if p := v.piece(id); len(p) <= maxPiece {
		return p
	}
	return nil
}

// mask is the tokens that may follow a state, a bit for each.
func (g *Grammar) mask(s *state) ([]uint64, error) {
	if s.mask != nil {
		return s.mask, nil
	}
	m, v := g.m, g.v
	mask := make([]uint64, (v.size+63)/64)
	if s.accept {
		for _, id := range v.final {
			mask[id>>6] |= 1 << (id & 63)
		}
	}
	at := make([]*state, 1, 64)
	at[0] = s
	for i := 0; i < len(v.letter); {
		d := int(v.depth[i])
		from := at[d]
		var to *state
		if from.ways != nil {
			to = from.ways[m.classOf[v.letter[i]]]
		}
		if to == nil {
			if to = m.step(from, v.letter[i]); m.err != nil {
				return nil, m.err
			}
		}
		if to == dead {
			i = int(v.skip[i])
			continue
		}
		for _, id := range v.ids[v.first[i]:v.first[i+1]] {
			mask[id>>6] |= 1 << (id & 63)
		}
		at = append(at[:d+1], to)
		i++
	}
	if len(m.masked) == maxMasks {
		m.masked[0].mask = nil
		m.masked = m.masked[:copy(m.masked, m.masked[1:])]
	}
	s.mask = mask
	m.masked = append(m.masked, s)
	return mask, nil
}
