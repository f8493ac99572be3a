package tokenizer

import (
	"slices"
	"sort"
	"strings"
)

// fragment is a part of a text: a token, or the plain text from start to end.
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

// present returns the indexes of the tokens that text holds, the longest
// first, of equal length in the order of their ids.
func (s *specials) present(text string) []int {
	var found []int
	seen := make(map[int]bool)
	for i := range len(text) {
		lo, hi := int(s.first[text[i]]), int(s.first[int(text[i])+1])
		for n := 1; lo < hi; n++ { // texts[lo:hi] agree with text in n bytes
			for len(s.texts[lo]) == n {
				if !seen[lo] {
					seen[lo] = true
					found = append(found, lo)
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
	slices.SortFunc(found, func(a, b int) int {
		if d := len(s.texts[b]) - len(s.texts[a]); d != 0 {
			return d
		}
		return int(s.ids[a] - s.ids[b])
	})
	return found
}

// split cuts text at the tokens written in it. The longest token is looked for
// first, everywhere; then the next in what is left.
func (s *specials) split(text string) []fragment {
	parts := []fragment{{id: none, end: len(text)}}
	if text == "" {
		return nil
	}
	if len(s.texts) == 0 {
		return parts
	}
	for _, n := range s.present(text) {
		var next []fragment
		for _, p := range parts {
			if p.id != none {
				next = append(next, p)
			} else {
				next = s.cut(next, text, p, n)
			}
		}
		parts = next
	}
	return parts
}

// cut appends plain text p, cut at each occurrence of token n.
func (s *specials) cut(out []fragment, text string, p fragment, n int) []fragment {
	for p.start < p.end {
		at := strings.Index(text[p.start:p.end], s.texts[n])
		if at < 0 {
			return append(out, p)
		}
		at += p.start
		left := at
		for s.attrs[n]&lstrip != 0 && left > p.start && asciiSpace(text[left-1]) {
			left--
		}
		if left > p.start {
			out = append(out, fragment{id: none, start: p.start, end: left})
		}
		out = append(out, fragment{id: s.ids[n]})
		p.start = at + len(s.texts[n])
		for s.attrs[n]&rstrip != 0 && p.start < p.end && asciiSpace(text[p.start]) {
			p.start++
		}
	}
	return out
}

func asciiSpace(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }
