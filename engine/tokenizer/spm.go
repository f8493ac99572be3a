package tokenizer

import (
	"math"
	"strings"
	"unicode/utf8"
)

// spm encodes like SentencePiece's BPE: the neighbours whose joint text is the
// token of the highest score are merged first.
type spm struct {
	pieces   *symbols
	keys     []uint32 // per token, by which merges are ordered
	escapes  [256]int32
	unk      int32
	addSpace bool
	cuts     cuts
	words    *cache
	pool     *mergers
}

func newSPM(v *vocabulary) (*spm, *symbols, error) {
	pieces, err := newPieces(v, spellSpaces)
	if err != nil {
		return nil, nil, err
	}
	s := &spm{pieces: pieces, unk: v.unk, addSpace: v.addSpace, words: newCache(), pool: newMergers()}
	s.keys = make([]uint32, len(v.texts))
	for i := range s.keys {
		s.keys[i] = descending(v.scores[i])
	}
	s.escapes = escapeTokens(v)
	for i, id := range s.escapes {
		if id == none && i < utf8.RuneSelf {
			if id := pieces.find(string(rune(i))); id != none {
				s.escapes[i] = pieces.token(id)
			}
		}
	}
	for id := range pieces.ends {
		if n := int32(id); id >= pieces.tokens || v.attrs[id].mergeable() {
			s.cuts.joinAll(pieces.of(n))
		}
	}
	return s, pieces, nil
}

// descending maps a score, not NaN, to a key that is smaller for higher
// scores, and never noPair.
func descending(score float32) uint32 {
	b := math.Float32bits(score + 0) // +0 makes -0 equal to 0
	if b>>31 == 0 {
		return ^(b | 1<<31)
	}
	return b
}

func (s *spm) encode(text string, first bool, out []int32) []int32 {
	if s.addSpace && first {
		text = " " + text
	}
	text = strings.ReplaceAll(text, metaspace, " ")
	for text != "" {
		n := s.cuts.next(text)
		out = s.words.encode(text[:n], out, s.merge)
		text = text[n:]
	}
	return out
}

func (s *spm) merge(w string, out []int32) []int32 {
	m := s.pool.get(w)
	defer s.pool.put(m)
	for i := 0; i < len(w); {
		_, n := utf8.DecodeRuneInString(w[i:])
		m.add(s.pieces.find(w[i:i+n]), i)
		i += n
	}
	m.run(s)
	for i := int32(0); i != none; i = m.next[i] {
		if id := m.ids[i]; id != none {
			out = append(out, s.pieces.token(id))
			continue
		}
		for j := m.start[i]; j < m.end(i); j++ {
			if id := s.escapes[w[j]]; id != none {
				out = append(out, id)
			} else if s.unk != none {
				out = append(out, s.unk)
			}
		}
	}
	return out
}

// pair makes s a pairing.
func (s *spm) pair(m *merger, left, right int32) (key uint32, into int32, ok bool) {
	id := s.pieces.find(m.text[m.start[left]:m.end(right)])
	if id == none {
		return 0, none, false
	}
	return s.keys[s.pieces.token(id)], id, true
}
