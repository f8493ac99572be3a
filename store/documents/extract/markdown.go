package extract

import (
	"context"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// readMarkdown takes the blocks of the syntax tree. Raw HTML inside is kept as
// text: what it says may matter, what it does cannot happen here.
func readMarkdown(_ context.Context, b *builder, content []byte) error {
	source := []byte(lines(decode(content)))
	source = frontMatter(b, source)
	root := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough)).Parser().Parse(text.NewReader(source))
	m := &markdown{builder: b, source: source}
	return m.blocks(root, 0)
}

// frontMatter takes the lines between two rows of dashes at the beginning off,
// and the title from them.
func frontMatter(b *builder, source []byte) []byte {
	rest, found := strings.CutPrefix(string(source), "---\n")
	if !found {
		return source
	}
	head, body, found := strings.Cut(rest, "\n---\n")
	if !found || len(head) > 16<<10 {
		return source
	}
	for line := range strings.SplitSeq(head, "\n") {
		if title, ok := strings.CutPrefix(line, "title:"); ok && b.doc.Title == "" {
			b.doc.Title = clean(strings.Trim(strings.TrimSpace(title), `"'`), false)
		}
	}
	return []byte(body)
}

type markdown struct {
	*builder
	source []byte
}

func (m *markdown) blocks(parent ast.Node, depth int) error {
	if depth > m.budget.Depth {
		return refuse("", "it is nested deeper than %d", m.budget.Depth)
	}
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		if err := m.block(n, depth); err != nil {
			return err
		}
	}
	return nil
}

func (m *markdown) block(n ast.Node, depth int) error {
	switch n := n.(type) {
	case *ast.Heading:
		title := m.inline(n)
		if n.Level == 1 && m.doc.Title == "" {
			m.doc.Title = clean(title, false)
		}
		return m.add(Heading, n.Level, title, 0)
	case *ast.Paragraph, *ast.TextBlock:
		return m.add(Paragraph, 0, m.inline(n), 0)
	case *ast.FencedCodeBlock, *ast.CodeBlock, *ast.HTMLBlock:
		return m.add(Code, 0, m.raw(n), 0)
	case *ast.List:
		var items []string
		if err := m.items(n, 0, &items); err != nil {
			return err
		}
		return m.add(List, 0, strings.Join(items, "\n"), 0)
	case *east.Table:
		var rows []string
		for r := n.FirstChild(); r != nil; r = r.NextSibling() {
			var cells []string
			for c := r.FirstChild(); c != nil; c = c.NextSibling() {
				cells = append(cells, m.inline(c))
			}
			rows = append(rows, row(cells))
		}
		return m.add(Table, 0, strings.Join(rows, "\n"), 0)
	}
	return m.blocks(n, depth+1)
}

// items writes one line for each item; what is inside an item is indented.
func (m *markdown) items(list *ast.List, depth int, out *[]string) error {
	if depth > m.budget.Depth {
		return refuse("", "it is nested deeper than %d", m.budget.Depth)
	}
	indent := strings.Repeat("  ", min(depth, 8))
	for item := list.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "- "
		for n := item.FirstChild(); n != nil; n = n.NextSibling() {
			if inner, ok := n.(*ast.List); ok {
				if err := m.items(inner, depth+1, out); err != nil {
					return err
				}
				continue
			}
			text := strings.Join(strings.Fields(m.inline(n)), " ")
			if text == "" {
				text = strings.TrimSpace(m.raw(n))
			}
			if text != "" {
				*out = append(*out, indent+mark+text)
				mark = "  "
			}
		}
	}
	return nil
}

// raw returns the lines of a block as they stand.
func (m *markdown) raw(n ast.Node) string {
	if n.Type() == ast.TypeInline {
		return ""
	}
	var t strings.Builder
	for i := range n.Lines().Len() {
		s := n.Lines().At(i)
		t.Write(s.Value(m.source))
	}
	return t.String()
}

// inline returns the text of a block without its marks. The address of a link
// is left out, the text of an image is kept.
func (m *markdown) inline(n ast.Node) string {
	var t strings.Builder
	depth := 0
	_ = ast.Walk(n, func(c ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			depth--
			return ast.WalkContinue, nil
		}
		if depth++; depth > m.budget.Depth {
			return ast.WalkStop, nil
		}
		switch c := c.(type) {
		case *ast.Text:
			t.Write(c.Segment.Value(m.source))
			if c.SoftLineBreak() || c.HardLineBreak() {
				t.WriteByte('\n')
			}
		case *ast.String:
			t.Write(c.Value)
		case *ast.AutoLink:
			t.Write(c.Label(m.source))
		case *ast.RawHTML:
			t.WriteByte(' ')
		}
		return ast.WalkContinue, nil
	})
	return t.String()
}
