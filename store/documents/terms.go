package documents

import (
	"cmp"
	"math"
	"slices"
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

const (
	maxTerms    = 12 // of a question that are looked for in a large collection
	maxSmall    = 48 // and in a small one, where that costs little
	minCommon   = 1000
	commonShare = 20  // a term in more than one passage of so many says little
	mostOfTerm  = 2.2 // what BM25 gives at most for a term, but for its rarity: k1 + 1
)

// Counted is a term with the number of passages that have it.
type Counted struct {
	Term     string
	Passages int64
}

// Common is how many of a collection's passages have a term that says something,
// at most.
func Common(passages int64) int64 { return max(minCommon, passages/commonShare) }

// Weight is the most that a passage's score grows by a term that so many of all
// passages have.
func Weight(having, all int64) float64 {
	return mostOfTerm * math.Log1p((max(0, float64(all-having))+0.5)/(float64(having)+0.5))
}

// Pick returns the terms that say something: those in few passages, the rarest
// first; where all are common, the first three, if there must be some. What is
// counted beyond Common need not be right. A term that is nowhere has half its
// weight, which is what absent sums up: the question may be put in words of its
// own, or in another language, and then no passage has all of it.
func Pick(all []Counted, passages int64, must bool) (picked []Counted, absent float64) {
	limit := Common(passages)
	var rest []Counted
	for _, c := range all {
		switch {
		case c.Passages == 0:
			absent += Weight(0, passages) / 2
		case c.Passages > limit:
			rest = append(rest, c)
		default:
			picked = append(picked, c)
		}
	}
	if len(picked) == 0 && must {
		picked = rest[:min(len(rest), 3)]
	}
	bound := maxTerms
	if passages <= limit {
		bound = maxSmall
	}
	return Rarest(picked, bound), absent
}

// Rarest returns so many terms, at most 48, that the fewest passages have.
func Rarest(all []Counted, most int) []Counted {
	slices.SortStableFunc(all, func(a, b Counted) int { return cmp.Compare(a.Passages, b.Passages) })
	return all[:min(len(all), most, maxSmall)]
}
