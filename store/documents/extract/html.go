package extract

import (
	"bytes"
	"context"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// readHTML reads what a page shows: the only main part or article where there
// is one, else the body without menus, headers and footers around it.
func readHTML(_ context.Context, b *builder, content []byte) error {
	r, err := charset.NewReader(bytes.NewReader(content), "")
	if err != nil {
		r = strings.NewReader(decode(content))
	}
	root, err := html.Parse(r)
	if err != nil {
		return refuse("", "it is no HTML: %v", err)
	}
	p := &page{builder: b}
	if err := p.depth(root); err != nil {
		return err
	}
	if t := find(root, atom.Title); t != nil && b.doc.Title == "" {
		b.doc.Title = clean(cut(textOf(t), 1000), false)
	}
	return p.blocks(p.main(root))
}

// page walks the tree of a page. Elements that are not blocks are gathered into
// paragraphs.
type page struct {
	*builder
	number int // the page that blocks are said to stand on
	loose  strings.Builder
}

// depth refuses deep nesting; the parser itself does not recurse.
func (p *page) depth(root *html.Node) error {
	deep := 0
	for n := root; ; {
		if n.FirstChild != nil {
			n = n.FirstChild
			if deep++; deep > p.budget.Depth {
				return refuse("", "it is nested deeper than %d", p.budget.Depth)
			}
			continue
		}
		for n != root && n.NextSibling == nil {
			n = n.Parent
			deep--
		}
		if n == root {
			return nil
		}
		n = n.NextSibling
	}
}

// main returns the part that a page is about.
func (p *page) main(root *html.Node) *html.Node {
	body := find(root, atom.Body)
	if body == nil {
		return root
	}
	for _, a := range []atom.Atom{atom.Main, atom.Article} {
		all := findAll(body, a)
		if len(all) == 1 && 2*len(textOf(all[0])) > len(textOf(body)) {
			return all[0]
		}
	}
	return body
}

func find(n *html.Node, a atom.Atom) *html.Node {
	if all := findAll(n, a); len(all) > 0 {
		return all[0]
	}
	return nil
}

func findAll(n *html.Node, a atom.Atom) []*html.Node {
	var out []*html.Node
	for c := range n.Descendants() {
		if c.Type == html.ElementNode && c.DataAtom == a {
			out = append(out, c)
		}
	}
	return out
}

// hidden are elements whose content is not shown, or is not the page's own.
func hidden(n *html.Node) bool {
	switch n.DataAtom {
	case atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Svg, atom.Math, atom.Iframe, atom.Object, atom.Head,
		atom.Nav, atom.Footer, atom.Form, atom.Button, atom.Select, atom.Dialog, atom.Audio, atom.Video, atom.Canvas:
		return true
	}
	for _, a := range n.Attr {
		switch {
		case a.Key == "hidden", a.Key == "aria-hidden" && a.Val == "true":
			return true
		case a.Key == "style" && strings.Contains(strings.ReplaceAll(strings.ToLower(a.Val), " ", ""), "display:none"):
			return true
		}
	}
	return false
}

func (p *page) blocks(n *html.Node) error {
	if err := p.inside(n); err != nil {
		return err
	}
	return p.flush()
}

// flush ends a paragraph of loose text.
func (p *page) flush() error {
	s := p.loose.String()
	p.loose.Reset()
	return p.add(Paragraph, 0, s, p.number)
}

func (p *page) inside(n *html.Node) error {
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		switch {
		case c.Type == html.TextNode:
			p.loose.WriteString(c.Data)
		case c.Type != html.ElementNode || hidden(c):
		default:
			if err := p.element(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *page) element(n *html.Node) error {
	var (
		kind  Kind
		level int
		text  string
	)
	switch n.DataAtom {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		kind, level, text = Heading, int(n.Data[1]-'0'), textOf(n)
	case atom.Pre:
		kind, text = Code, textOf(n)
	case atom.Table:
		if find(n, atom.Table) != nil { // a table for layout
			return p.block(n)
		}
		kind, text = Table, tableText(n)
	case atom.Ul, atom.Ol, atom.Menu:
		kind, text = List, p.list(n, 0)
	case atom.Br, atom.Hr:
		p.loose.WriteByte('\n')
		return nil
	case atom.Img:
		for _, a := range n.Attr {
			if a.Key == "alt" {
				p.loose.WriteString(" " + a.Val + " ")
			}
		}
		return nil
	case atom.P, atom.Div, atom.Section, atom.Article, atom.Main, atom.Header, atom.Aside, atom.Blockquote, atom.Dl, atom.Dt,
		atom.Dd, atom.Figure, atom.Figcaption, atom.Details, atom.Summary, atom.Address, atom.Body, atom.Tr, atom.Td, atom.Th,
		atom.Tbody, atom.Thead, atom.Tfoot, atom.Caption, atom.Fieldset, atom.Li:
		return p.block(n)
	default:
		return p.inside(n)
	}
	if err := p.flush(); err != nil {
		return err
	}
	return p.add(kind, level, text, p.number)
}

// block is an element with a paragraph's borders round it.
func (p *page) block(n *html.Node) error {
	if err := p.flush(); err != nil {
		return err
	}
	return p.blocks(n)
}

// list writes one line for each item, inner lists indented.
func (p *page) list(n *html.Node, depth int) string {
	var t strings.Builder
	for li := n.FirstChild; li != nil; li = li.NextSibling {
		if li.Type != html.ElementNode || hidden(li) {
			continue
		}
		var own, inner strings.Builder
		for c := li.FirstChild; c != nil; c = c.NextSibling {
			if c.DataAtom == atom.Ul || c.DataAtom == atom.Ol {
				inner.WriteString(p.list(c, depth+1))
			} else {
				appendText(&own, c)
			}
		}
		if s := strings.Join(strings.Fields(own.String()), " "); s != "" {
			t.WriteString(strings.Repeat("  ", min(depth, 8)) + "- " + s + "\n")
		}
		t.WriteString(inner.String())
	}
	return t.String()
}

func tableText(n *html.Node) string {
	var rows []string
	for _, tr := range findAll(n, atom.Tr) {
		var cells []string
		for c := tr.FirstChild; c != nil; c = c.NextSibling {
			if c.DataAtom == atom.Td || c.DataAtom == atom.Th {
				cells = append(cells, textOf(c))
			}
		}
		if r := row(cells); r != "" {
			rows = append(rows, r)
		}
	}
	if c := find(n, atom.Caption); c != nil {
		rows = append([]string{row([]string{textOf(c)})}, rows...)
	}
	return strings.Join(rows, "\n")
}

// textOf returns the shown text of a tree.
func textOf(n *html.Node) string {
	var t strings.Builder
	appendText(&t, n)
	return t.String()
}

// appendText recurses; depth has been checked.
func appendText(t *strings.Builder, n *html.Node) {
	switch {
	case n.Type == html.TextNode:
		t.WriteString(n.Data)
		return
	case n.Type == html.ElementNode && n.DataAtom != atom.Title && hidden(n):
		return
	case n.DataAtom == atom.Br:
		t.WriteByte('\n')
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		appendText(t, c)
	}
	switch n.DataAtom {
	case atom.P, atom.Div, atom.Li, atom.Tr, atom.Td, atom.Th, atom.Dd, atom.Dt:
		t.WriteByte('\n')
	}
}
