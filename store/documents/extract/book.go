package extract

import (
	"bytes"
	"context"
	"net/url"

	"golang.org/x/net/html"
)

const bookContainer = "META-INF/container.xml"

// readBook reads EPUB: the parts of its spine in order, each a page of HTML.
func readBook(_ context.Context, b *builder, content []byte) error {
	z, err := b.unpack(content)
	if err != nil {
		return err
	}
	container, err := z.read(bookContainer)
	if err != nil {
		return err
	}
	root := ""
	err = b.visit(container, visitor{func(e element) error {
		if e.name == "rootfile" && root == "" {
			root = e.attr("full-path")
		}
		return nil
	}, ignoreName, ignoreName})
	if err != nil {
		return inPart(bookContainer, err)
	}
	parts, err := b.spine(z, root)
	if err != nil {
		return err
	}
	for _, name := range parts {
		part, err := z.read(name)
		if err != nil {
			return err
		}
		tree, err := html.Parse(bytes.NewReader(part))
		if err != nil {
			return refuse(saveIt, "its part %q is no HTML: %v", name, err)
		}
		p := &page{builder: b}
		if err := p.depth(tree); err != nil {
			return err
		}
		if err := p.blocks(p.main(tree)); err != nil {
			return err
		}
	}
	return nil
}

// spine returns the parts of a book in the order of reading.
func (b *builder) spine(z *packed, name string) ([]string, error) {
	part, err := z.read(name)
	if err != nil {
		return nil, err
	}
	items := map[string]string{}
	var order []string
	title := false
	err = b.visit(part, visitor{func(e element) error {
		switch e.name {
		case "title":
			title = b.doc.Title == ""
		case "item":
			if href, err := url.PathUnescape(e.attr("href")); err == nil {
				items[e.attr("id")] = resolve(name, href)
			}
		case "itemref":
			order = append(order, e.attr("idref"))
		}
		return nil
	}, func(string) error {
		title = false
		return nil
	}, func(s string) error {
		if title {
			b.doc.Title = clean(cut(b.doc.Title+s, 1000), false)
		}
		return nil
	}})
	if err != nil {
		return nil, inPart(name, err)
	}
	if len(order) > b.budget.Parts {
		return nil, refuse("", "its order of reading names %d parts", len(order))
	}
	var parts []string
	for _, id := range order {
		if part, ok := items[id]; ok && z.has(part) {
			parts = append(parts, part)
		}
	}
	return parts, nil
}
