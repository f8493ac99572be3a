package extract

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// builder collects blocks within the budget of text.
type builder struct {
	budget Budget
	doc    Document
	used   int64
}

// add appends a block whose text is cleaned; one without text is dropped.
func (b *builder) add(k Kind, level int, text string, page int) error {
	text = clean(text, k == Code || k == Table || k == List)
	if text == "" {
		return nil
	}
	b.used += int64(len(text) + len(Separator))
	if b.used > b.budget.Text {
		return refuse(splitIt, "it holds more than %d MiB of text", b.budget.Text>>20)
	}
	b.doc.Blocks = append(b.doc.Blocks, Block{Kind: k, Level: level, Text: text, Page: page})
	return nil
}

// ligatures are what old fonts print for several letters; nobody searches for
// them.
var ligatures = strings.NewReplacer("ﬀ", "ff", "ﬁ", "fi", "ﬂ", "fl", "ﬃ", "ffi", "ﬄ", "ffl", "ﬅ", "st", "ﬆ", "st")

// clean makes text that is fit for search and for a prompt: valid, composed,
// without control characters and invisible ones. White space is kept where lines
// mean something, and else becomes one space.
func clean(s string, lines bool) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = ligatures.Replace(norm.NFC.String(s))
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\v' || r == '\f' || r == '\u2028' || r == '\u2029' || r == '\u0085':
			return '\n'
		case unicode.IsControl(r) || invisible(r):
			return -1
		case unicode.Is(unicode.Zs, r):
			return ' '
		}
		return r
	}, s)
	if !lines {
		return strings.Join(strings.Fields(s), " ")
	}
	rows := strings.Split(s, "\n")
	for i, r := range rows {
		rows[i] = strings.TrimRight(r, " \t")
	}
	return strings.Trim(strings.Join(rows, "\n"), "\n")
}

// invisible tells characters that show nothing and can hide words from a reader:
// soft hyphens, zero-width spaces, marks of direction, tags. The joiners stay:
// scripts and emoji need them.
func invisible(r rune) bool {
	switch {
	case r == '\u00AD', r == '\u200B', r == '\u2060', r == '\uFEFF', r == '\u061C', r == '\u180E':
		return true
	case r >= '\u200E' && r <= '\u200F', r >= '\u202A' && r <= '\u202E', r >= '\u2061' && r <= '\u206F':
		return true
	case r >= 0xE0000 && r <= 0xE007F, r >= 0xFFF9 && r <= 0xFFFB:
		return true
	}
	return false
}

// row joins the cells of a table's row.
func row(cells []string) string {
	out := make([]string, len(cells))
	for i, c := range cells {
		c = strings.Join(strings.Fields(c), " ")
		out[i] = strings.ReplaceAll(c, "|", "/")
	}
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	return strings.Join(out, " | ")
}

// cut shortens a text to n bytes, at a rune.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
