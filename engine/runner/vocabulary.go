package runner

import (
	"slices"
	"strings"
)

// vocabulary is a tokenizer with what is worked out about it once.
type vocabulary struct {
	Tokenizer
	ends     []int32              // tokens that end a generation
	controls map[[2]byte][]string // written names of control tokens by their beginning, longest first
	firsts   string               // the first characters of all names
}

func newVocabulary(tok Tokenizer) *vocabulary {
	v := &vocabulary{Tokenizer: tok, controls: map[[2]byte][]string{}}
	for id := range int32(tok.Size()) {
		if tok.IsEOG(id) {
			v.ends = append(v.ends, id)
		}
		if !tok.IsControl(id) {
			continue
		}
		name := string(tok.Piece(id, true))
		if len(name) < 2 {
			continue // no name, or none that text could be mistaken for
		}
		key := [2]byte{name[0], name[1]}
		v.controls[key] = append(v.controls[key], name)
		if first := firstRune(name); !strings.Contains(v.firsts, first) {
			v.firsts += first
		}
	}
	for _, names := range v.controls {
		slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	}
	return v
}

// nextControl returns where the first name of a control token lies in text, or
// -1 and -1. Of several at one place the longest counts.
func (v *vocabulary) nextControl(text string) (from, to int) {
	for at := 0; ; at++ {
		i := strings.IndexAny(text[at:], v.firsts)
		if i < 0 || at+i+2 > len(text) {
			return -1, -1
		}
		at += i
		for _, name := range v.controls[[2]byte{text[at], text[at+1]}] {
			if strings.HasPrefix(text[at:], name) {
				return at, at + len(name)
			}
		}
	}
}

// disarm puts mark into every name of a control token in text, so that a
// template may carry the text and encodeMarked knows that it was no token.
func (v *vocabulary) disarm(text, mark string) string {
	var b strings.Builder
	for {
		from, _ := v.nextControl(text)
		if from < 0 {
			b.WriteString(text)
			return b.String()
		}
		// The mark goes after the first character, and the search goes on from
		// there: names may overlap.
		cut := from + len(firstRune(text[from:]))
		b.WriteString(text[:cut])
		b.WriteString(mark)
		text = text[cut:]
	}
}

func firstRune(s string) string {
	for i := range s {
		if i > 0 {
			return s[:i]
		}
	}
	return s
}

// encodeMarked encodes a rendered prompt. Names of control tokens become tokens,
// but for those that disarm put a mark into: their stretch of text, up to the
// real tokens around it, is encoded as plain text.
func (v *vocabulary) encodeMarked(text, mark string) []int32 {
	if mark == "" || !strings.Contains(text, mark) {
		return v.Encode(text, true, true)
	}
	var ids []int32
	var armed strings.Builder // text since the last plain stretch
	addSpecial := true
	flush := func() {
		if armed.Len() > 0 {
			ids = append(ids, v.Encode(armed.String(), addSpecial, true)...)
			addSpecial = false
			armed.Reset()
		}
	}
	for text != "" {
		from, to := v.nextControl(text)
		if from < 0 {
			from, to = len(text), len(text)
		}
		plain := text[:from]
		if strings.Contains(plain, mark) {
			flush()
			ids = append(ids, v.Encode(strings.ReplaceAll(plain, mark, ""), addSpecial, false)...)
			addSpecial = false
		} else {
			armed.WriteString(plain)
		}
		armed.WriteString(text[from:to])
		text = text[to:]
	}
	flush()
	return ids
}
