package tokenizer

import (
	"slices"
	"sort"
	"strings"
)

// fragment is a part of a text from start to end: a token, or plain text.
type fragment struct {
	id         int32 // none for plain text
	start, end int
}

// specials finds tokens that are written out in a text.
type specials struct {
	texts []string // sorted
	ids   []int32
	attrs []attr
	first [257]int32 // texts that begin with byte b are texts[first[b]:first[b+1]]
}

// newSpecials collects the tokens that have a property of set and none of not.
func newSpecials(v *vocabulary, set, not attr) *specials {
	s := &specials{}
	for i, a := range v.attrs {
		if a&set != 0 && a&not == 0 {
			s.ids = append(s.ids, int32(i))
		}
	}
	slices.SortFunc(s.ids, func(a, b int32) int { return strings.Compare(v.texts[a], v.texts[b]) })
	for _, id := range s.ids {
		text := strings.Clone(v.texts[id])
		s.texts = append(s.texts, text)
		s.attrs = append(s.attrs, v.attrs[id])
		s.first[int(text[0])+1]++
	}
	for b := range 256 {
		s.first[b+1] += s.first[b]
	}
	return s
}

// written is a token that a text holds.
type written struct {
	n    int   // its index
	at   []int // where, in ascending order: all places, or as many as are kept
	more bool  // there may be more behind those
}

// present returns the tokens that text holds, the longest first, of equal
// length in the order of their ids. It keeps few places of a token that is
// everywhere, so that the places of all take memory in proportion to the text.
func (s *specials) present(text string) []*written {
	var found []*written
	seen := make(map[int]*written)
	most := len(text)/64 + 64
	for i := range len(text) {
		lo, hi := int(s.first[text[i]]), int(s.first[int(text[i])+1])
		for n := 1; lo < hi; n++ { // texts[lo:hi] agree with text in n bytes
			for len(s.texts[lo]) == n {
				w := seen[lo]
				if w == nil {
					w = &written{n: lo}
					seen[lo] = w
					found = append(found, w)
				}
				if w.more = len(w.at) == most; !w.more {
					w.at = append(w.at, i)
				}
				if lo++; lo == hi {
					break
				}
			}
			if lo == hi || i+n == len(text) {
				break
			}
			b := text[i+n]
			rest := s.texts[lo:hi]
			from := sort.Search(len(rest), func(j int) bool { return rest[j][n] >= b })
			to := sort.Search(len(rest), func(j int) bool { return rest[j][n] > b })
			lo, hi = lo+from, lo+to
		}
	}
	slices.SortFunc(found, func(a, b *written) int {
		if d := len(s.texts[b.n]) - len(s.texts[a.n]); d != 0 {
			return d
		}
		return int(s.ids[a.n] - s.ids[b.n])
	})
	return found
}

// split cuts text at the tokens written in it. The longest token is looked for
// first, everywhere; then the next in what is left.
func (s *specials) split(text string) []fragment {
	if text == "" {
		return nil
	}
	var found []*written
	if len(s.texts) > 0 {
		found = s.present(text)
	}
	if len(found) == 0 {
		return []fragment{{id: none, end: len(text)}}
	}
	c := cutter{text: text, taken: make([]bool, len(text))}
	for _, w := range found {
		token, id, a := s.texts[w.n], s.ids[w.n], s.attrs[w.n]
		for _, at := range w.at {
			c.take(fragment{id, at, at + len(token)}, a)
		}
		if !w.more {
			continue
		}
		for from := w.at[len(w.at)-1] + 1; ; {
			i := strings.Index(text[from:], token)
			if i < 0 {
				break
			}
			from = c.take(fragment{id, from + i, from + i + len(token)}, a)
		}
	}
	return c.fragments()
}

// cutter takes tokens out of a text.
type cutter struct {
	text   string
	taken  []bool // by byte
	tokens []fragment
}

// take takes a token, unless some of its text is taken; with white space around
// it, as a says. It returns from where on the next may begin.
func (c *cutter) take(p fragment, a attr) (next int) {
	for i := p.end - 1; i >= p.start; i-- {
		if c.taken[i] {
			return i + 1
		}
	}
	free := func(i int) bool { return i >= 0 && i < len(c.text) && !c.taken[i] && asciiSpace(c.text[i]) }
	for a&lstrip != 0 && free(p.start-1) {
		p.start--
	}
	for a&rstrip != 0 && free(p.end) {
		p.end++
	}
	for i := p.start; i < p.end; i++ {
		c.taken[i] = true
	}
	c.tokens = append(c.tokens, p)
	return p.end
}

// fragments returns the tokens taken and the plain text between them, in the
// order of the text.
func (c *cutter) fragments() []fragment {
	slices.SortFunc(c.tokens, func(a, b fragment) int { return a.start - b.start })
	out := make([]fragment, 0, 2*len(c.tokens)+1)
	at := 0
	for _, p := range c.tokens {
		if p.start > at {
			out = append(out, fragment{id: none, start: at, end: p.start})
		}
		out = append(out, p)
		at = p.end
	}
	if at < len(c.text) {
		out = append(out, fragment{id: none, start: at, end: len(c.text)})
	}
	return out
}

func asciiSpace(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }
