package chat

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"onebit/engine/chat/template"
)

// guard stands inside a protected text while a template runs; no request keeps one of its own.
const guard = template.Mark

// guards finds protected texts in the strings of a conversation and again in the prompt.
type guards struct {
	texts    map[guarded]bool
	lengths  []int // of the texts behind their first character, longest first
	replacer *strings.Replacer
}

// guarded is a protected text as a guard cuts it.
type guarded struct{ first, rest string }

func newGuards(texts []string) *guards {
	g := &guards{texts: map[guarded]bool{}}
	texts = slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return s == "" })
	if len(texts) == 0 {
		return g
	}
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(texts))
	for _, s := range texts {
		_, n := utf8.DecodeRuneInString(s)
		pairs = append(pairs, s, s[:n]+string(guard)+s[n:])
		g.texts[guarded{s[:n], s[n:]}] = true
		if !slices.Contains(g.lengths, len(s)-n) {
			g.lengths = append(g.lengths, len(s)-n)
		}
	}
	slices.SortFunc(g.lengths, func(a, b int) int { return b - a })
	g.replacer = strings.NewReplacer(pairs...)
	return g
}

// mark puts a guard into every protected text in s.
func (g *guards) mark(s string) string {
	if strings.ContainsRune(s, guard) {
		s = strings.ReplaceAll(s, string(guard), "\ufffd")
	}
	if g.replacer == nil {
		return s
	}
	return g.replacer.Replace(s)
}

// parts cuts a rendered prompt at its guards and removes them. A guarded text is a plain part; where a template has
// cut one to pieces, the parts on both sides of the guard are apart, so that they cannot make a token together.
func (g *guards) parts(prompt string) []Part {
	var parts []Part
	add := func(s string, plain bool) {
		if s != "" {
			parts = append(parts, Part{Text: s, Plain: plain})
		}
	}
	for {
		before, after, found := strings.Cut(prompt, string(guard))
		if !found {
			add(before, false)
			return parts
		}
		_, n := utf8.DecodeLastRuneInString(before)
		first, rest := before[len(before)-n:], after
		for _, l := range g.lengths {
			if l <= len(after) && g.texts[guarded{first, after[:l]}] {
				add(before[:len(before)-n], false)
				add(first+after[:l], true)
				before, rest = "", after[l:]
				break
			}
		}
		add(before, false)
		prompt = rest
	}
}
