package documents

import (
	"strings"
	"unicode"
)

// dense tells scripts that put no spaces between words.
func dense(r rune) bool {
	return r >= 0xe00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// Searchable returns a text as an index of words takes it: spaces between the
// characters of scripts that put none between words, so that each is a word.
func Searchable(s string) string {
	if strings.IndexFunc(s, dense) < 0 {
		return s
	}
	var t strings.Builder
	t.Grow(len(s) * 4 / 3)
	for _, r := range s {
		if dense(r) {
			t.WriteByte(' ')
			t.WriteRune(r)
			t.WriteByte(' ')
		} else {
			t.WriteRune(r)
		}
	}
	return t.String()
}

// Terms returns what a query looks for, at most 64: words, pairs of characters
// of dense scripts, and names that are written with marks in between, such as
// E-17 or max_heap, as their parts in a row. Between parts stands a space. Terms
// are made of letters, digits and that space alone, so that no query is an
// expression.
func Terms(query string) []string {
	var out []string
	seen := map[string]bool{}
	add := func(t string) {
		if t != "" && !seen[t] && len(out) < 64 {
			seen[t] = true
			out = append(out, t)
		}
	}
	word := func(w string) {
		runes := []rune(w)
		if !dense(runes[0]) {
			add(w)
			return
		}
		if len(runes) == 1 {
			add(w)
		}
		for i := range len(runes) - 1 {
			add(string(runes[i]) + " " + string(runes[i+1]))
		}
	}
	var held []rune
	flush := func() {
		if len(held) > 0 {
			word(string(held))
		}
		held = held[:0]
	}
	for _, r := range query {
		switch {
		case !wordly(r):
			flush()
			continue
		case len(held) > 0 && dense(held[0]) != dense(r):
			flush()
		}
		held = append(held, r)
	}
	flush()
	for field := range strings.FieldsSeq(query) {
		if parts := strings.FieldsFunc(field, func(r rune) bool { return !wordly(r) }); len(parts) > 1 && strings.IndexFunc(field, dense) < 0 {
			add(strings.Join(parts, " "))
		}
	}
	return out
}

func wordly(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) }
