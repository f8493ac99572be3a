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
	texts    []string // longest first
	replacer *strings.Replacer
}

func newGuards(texts []string) *guards {
	g := &guards{}
	for _, s := range texts {
		if s != "" {
			g.texts = append(g.texts, s)
		}
	}
	if len(g.texts) == 0 {
		return g
	}
	slices.SortFunc(g.texts, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(g.texts))
	for _, s := range g.texts {
		_, n := utf8.DecodeRuneInString(s)
		pairs = append(pairs, s, s[:n]+string(guard)+s[n:])
	}
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
		rest := after
		for _, s := range g.texts {
			_, n := utf8.DecodeRuneInString(s)
			if strings.HasSuffix(before, s[:n]) && strings.HasPrefix(after, s[n:]) {
				add(before[:len(before)-n], false)
				add(s, true)
				before, rest = "", after[len(s)-n:]
				break
			}
		}
		add(before, false)
		prompt = rest
	}
}
