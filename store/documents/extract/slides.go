package extract

import (
	"context"
	"strings"
)

const slidesMain = "ppt/presentation.xml"

// readSlides reads PPTX: a page for each slide in the order of the show, its
// title as heading, its notes at its end.
func readSlides(_ context.Context, b *builder, content []byte) error {
	z, err := b.unpack(content)
	if err != nil {
		return err
	}
	if err := b.coreTitle(z); err != nil {
		return err
	}
	main, err := z.read(slidesMain)
	if err != nil {
		return err
	}
	parts, err := b.relations(z, slidesMain)
	if err != nil {
		return err
	}
	var ids []string
	err = b.visit(main, visitor{func(e element) error {
		if e.name == "sldId" {
			for _, a := range e.attrs {
				if a.Name.Local == "id" && a.Name.Space != "" {
					ids = append(ids, a.Value)
				}
			}
		}
		return nil
	}, ignoreName, ignoreName})
	if err != nil {
		return inPart(slidesMain, err)
	}
	if len(ids) > b.budget.Pages {
		return refuse(splitIt, "it has %d slides; %d are allowed", len(ids), b.budget.Pages)
	}
	b.doc.Pages = len(ids)
	for i, id := range ids {
		if err := b.slide(z, parts[id].target, i+1); err != nil {
			return err
		}
	}
	return nil
}

type relation struct{ kind, target string }

// relations returns what a part refers to, by id. Addresses outside of the file
// are left out.
func (b *builder) relations(z *packed, name string) (map[string]relation, error) {
	i := strings.LastIndexByte(name, '/')
	part, err := z.optional(name[:i+1] + "_rels/" + name[i+1:] + ".rels")
	all := map[string]relation{}
	if part == nil || err != nil {
		return all, err
	}
	err = b.visit(part, visitor{func(e element) error {
		if e.name == "Relationship" && e.attr("TargetMode") != "External" {
			kind := e.attr("Type")
			all[e.attr("Id")] = relation{kind[strings.LastIndexByte(kind, '/')+1:], resolve(name, e.attr("Target"))}
		}
		return nil
	}, ignoreName, ignoreName})
	return all, err
}

func (b *builder) slide(z *packed, name string, number int) error {
	part, err := z.read(name)
	if err != nil {
		return err
	}
	s := &slide{builder: b, page: number}
	if err := b.visit(part, visitor{s.start, s.end, s.chars}); err != nil {
		return inPart(name, err)
	}
	rels, err := b.relations(z, name)
	if err != nil {
		return err
	}
	for _, r := range rels {
		if r.kind != "notesSlide" || !z.has(r.target) {
			continue
		}
		notes, err := z.read(r.target)
		if err != nil {
			return err
		}
		n := &slide{builder: b, page: number, notes: true}
		if err := b.visit(notes, visitor{n.start, n.end, n.chars}); err != nil {
			return inPart(r.target, err)
		}
	}
	return nil
}

// slide gathers the paragraphs of each shape.
type slide struct {
	*builder
	page  int
	notes bool

	title, other bool // the shape holds the title; something that is no content
	lines        []string
	text         strings.Builder
	inText       bool
	rows, cells  []string
	cell         []string
	table        bool
}

func (s *slide) start(e element) error {
	switch e.name {
	case "sp":
		s.title, s.other, s.lines = false, false, nil
	case "ph":
		switch e.attr("type") {
		case "title", "ctrTitle":
			s.title = true
		case "sldNum", "dt", "ftr", "hdr", "sldImg":
			s.other = true
		}
	case "p":
		s.text.Reset()
	case "t":
		s.inText = true
	case "br":
		s.text.WriteByte('\n')
	case "tbl":
		s.table, s.rows = true, nil
	case "tr":
		s.cells = nil
	case "tc":
		s.cell = nil
	}
	return nil
}

func (s *slide) end(name string) error {
	switch name {
	case "t":
		s.inText = false
	case "p":
		if t := strings.Join(strings.Fields(s.text.String()), " "); t != "" {
			s.lines = append(s.lines, t)
			s.cell = append(s.cell, t)
		}
		s.text.Reset()
	case "tc":
		s.cells = append(s.cells, strings.Join(s.cell, " "))
	case "tr":
		s.rows = append(s.rows, row(s.cells))
	case "tbl":
		s.table, s.lines = false, nil
		return s.add(Table, 0, strings.Join(s.rows, "\n"), s.page)
	case "sp":
		return s.shape()
	}
	return nil
}

func (s *slide) chars(t string) error {
	if s.inText {
		s.text.WriteString(t)
	}
	return nil
}

func (s *slide) shape() error {
	defer func() { s.lines = nil }()
	switch {
	case s.other, len(s.lines) == 0, s.notes && s.title:
		return nil
	case s.title:
		return s.add(Heading, 1, strings.Join(s.lines, " "), s.page)
	case len(s.lines) == 1 || s.notes:
		return s.add(Paragraph, 0, strings.Join(s.lines, " "), s.page)
	}
	return s.add(List, 0, "- "+strings.Join(s.lines, "\n- "), s.page)
}
