package words

import "bytes"

const (
	minStem = 3 // bytes of a word that is stemmed
	maxStem = 64
)

// stem returns the stem of a word by Porter's algorithm as FTS5 has it. It works
// in the word's own memory, and may need one byte more.
func stem(w []byte) []byte {
	if len(w) < minStem || len(w) > maxStem {
		return w
	}
	w = pastAndGerund(plural(w))
	if n := len(w) - 1; w[n] == 'y' && hasVowel(w[:n]) {
		w[n] = 'i'
	}
	w = replaced(w, step2, 0)
	w = replaced(w, step3, 0)
	w = replaced(w, step4, 1)
	if n := len(w) - 1; n > 0 && w[n] == 'e' && (measure(w[:n]) > 1 || measure(w[:n]) == 1 && !short(w[:n])) {
		w = w[:n]
	}
	if n := len(w) - 1; n > 0 && w[n] == 'l' && w[n-1] == 'l' && measure(w[:n]) > 1 {
		w = w[:n]
	}
	return w
}

// plural is step 1a.
func plural(w []byte) []byte {
	n := len(w)
	switch {
	case w[n-1] != 's':
		return w
	case w[n-2] == 'e' && (n > 4 && w[n-4] == 's' && w[n-3] == 's' || n > 3 && w[n-3] == 'i'):
		return w[:n-2]
	case w[n-2] == 's':
		return w
	}
	return w[:n-1]
}

// pastAndGerund is step 1b.
func pastAndGerund(w []byte) []byte {
	n := len(w)
	switch {
	case n > 3 && bytes.HasSuffix(w, []byte("eed")):
		if measure(w[:n-3]) > 0 {
			w = w[:n-1]
		}
		return w
	case n > 2 && bytes.HasSuffix(w, []byte("ed")) && hasVowel(w[:n-2]):
		w = w[:n-2]
	case n > 3 && bytes.HasSuffix(w, []byte("ing")) && hasVowel(w[:n-3]):
		w = w[:n-3]
	default:
		return w
	}
	n = len(w)
	if n > 2 && (bytes.HasSuffix(w, []byte("at")) || bytes.HasSuffix(w, []byte("bl")) || bytes.HasSuffix(w, []byte("iz"))) {
		return append(w, 'e')
	}
	last := w[n-1]
	switch {
	case n > 1 && !vowel(last) && last == w[n-2] && last != 'l' && last != 's' && last != 'z':
		return w[:n-1]
	case measure(w) == 1 && short(w):
		return append(w, 'e')
	}
	return w
}

// rule is an ending and what takes its place.
type rule struct{ from, to string }

var (
	step2 = []rule{
		{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"}, {"anci", "ance"}, {"izer", "ize"}, {"logi", "log"}, {"bli", "ble"},
		{"alli", "al"}, {"entli", "ent"}, {"eli", "e"}, {"ousli", "ous"}, {"ization", "ize"}, {"ation", "ate"}, {"ator", "ate"},
		{"alism", "al"}, {"iveness", "ive"}, {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"}, {"iviti", "ive"}, {"biliti", "ble"},
	}
	step3 = []rule{
		{"ical", "ic"}, {"ness", ""}, {"icate", "ic"}, {"iciti", "ic"}, {"ful", ""}, {"ative", ""}, {"alize", "al"},
	}
	step4 = []rule{
		{"al", ""}, {"ance", ""}, {"ence", ""}, {"er", ""}, {"ic", ""}, {"able", ""}, {"ible", ""}, {"ant", ""}, {"ement", ""}, {"ment", ""},
		{"ent", ""}, {"ion", ""}, {"ou", ""}, {"ism", ""}, {"ate", ""}, {"iti", ""}, {"ous", ""}, {"ive", ""}, {"ize", ""},
	}
)

// replaced applies the first rule whose ending a word has, where what is before
// it has a measure above a bound.
func replaced(w []byte, rules []rule, above int) []byte {
	for _, r := range rules {
		n := len(w) - len(r.from)
		if n <= 0 || w[len(w)-1] != r.from[len(r.from)-1] || string(w[n:]) != r.from {
			continue
		}
		if measure(w[:n]) > above && (r.from != "ion" || w[n-1] == 's' || w[n-1] == 't') {
			w = append(w[:n], r.to...)
		}
		return w
	}
	return w
}

func vowel(b byte) bool { return b == 'a' || b == 'e' || b == 'i' || b == 'o' || b == 'u' }

func hasVowel(w []byte) bool {
	for i, b := range w {
		if vowel(b) || i > 0 && b == 'y' {
			return true
		}
	}
	return false
}

// measure counts vowels that consonants follow; a y after a consonant is a
// vowel. More than two are as good as two.
func measure(w []byte) (m int) {
	consonant, open := false, false // the letter before; a vowel stands open
	for _, b := range w {
		if vowel(b) || b == 'y' && consonant {
			consonant, open = false, true
			continue
		}
		consonant = true
		if open {
			if m++; m == 2 {
				return m
			}
			open = false
		}
	}
	return m
}

// short tells a stem that ends with consonant, vowel, consonant, the last none
// of w, x and y.
func short(w []byte) bool {
	n := len(w)
	if n == 0 || w[n-1] == 'w' || w[n-1] == 'x' || w[n-1] == 'y' {
		return false
	}
	mask, consonant := 0, false
	for _, b := range w {
		consonant = !vowel(b) && (b != 'y' || !consonant)
		mask <<= 1
		if consonant {
			mask |= 1
		}
		mask &= 7
	}
	return mask == 5
}
