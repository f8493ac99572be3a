package extract

import (
	"context"
	"strconv"
	"strings"
)

// readOpenDocument reads the text, the slides or the sheets of an OpenDocument
// file: all three have the same elements.
func readOpenDocument(_ context.Context, b *builder, content []byte) error {
	z, err := b.unpack(content)
	if err != nil {
		return err
	}
	if part, err := z.optional("META-INF/manifest.xml"); err != nil {
		return err
	} else if strings.Contains(string(part), "encryption-data") {
		return refuse(unlock, "it is locked by a password")
	}
	part, err := z.read("content.xml")
	if err != nil {
		return err
	}
	o := &open{builder: b}
	if err := b.visit(part, visitor{o.start, o.end, o.chars}); err != nil {
		return inPart("content.xml", err)
	}
	b.doc.Pages = o.page
	return o.flush()
}

type open struct {
	*builder
	page  int // of slides and sheets
	body  bool
	level int
	text  strings.Builder
	skip  int // inside changes that were tracked, notes' numbers, forms

	lists int
	items []string

	tables   int
	rows     []string
	cells    []string
	cell     []string
	repeated int
}

// mostRepeated is how often a cell or a row is written that says it is repeated.
const mostRepeated = 64

func (o *open) start(e element) error {
	switch e.name {
	case "body":
		o.body = true
	case "page":
		o.page++
		return o.flush()
	case "tracked-changes", "note-citation", "forms", "annotation", "binary-data", "settings":
		o.skip++
	case "h":
		o.level, _ = strconv.Atoi(e.attr("outline-level"))
		o.level = max(1, min(o.level, 9))
		o.text.Reset()
	case "p":
		o.text.Reset()
	case "tab":
		o.text.WriteByte('\t')
	case "line-break":
		o.text.WriteByte('\n')
	case "s":
		o.text.WriteByte(' ')
	case "list":
		o.lists++
	case "table":
		return o.startTable(e)
	case "table-row":
		o.cells = nil
	case "table-cell", "covered-table-cell":
		o.cell = nil
		o.repeated, _ = strconv.Atoi(e.attr("number-columns-repeated"))
	}
	return nil
}

// startTable begins a table; one that has a name and is no part of a text is a
// sheet.
func (o *open) startTable(e element) error {
	if o.tables++; o.tables > 1 {
		return nil
	}
	if err := o.flush(); err != nil {
		return err
	}
	o.rows = nil
	if o.doc.Media == mediaODS {
		o.page++
		return o.add(Heading, 1, e.attr("name"), o.page)
	}
	return nil
}

func (o *open) end(name string) error {
	switch name {
	case "body":
		o.body = false
	case "tracked-changes", "note-citation", "forms", "annotation", "binary-data", "settings":
		o.skip--
	case "h", "p":
		return o.paragraph(name == "h")
	case "list":
		if o.lists--; o.lists == 0 {
			return o.flush()
		}
	case "table-cell", "covered-table-cell":
		text := strings.Join(o.cell, " ")
		for range max(1, min(o.repeated, mostRepeated)) {
			o.cells = append(o.cells, text)
		}
	case "table-row":
		if r := row(o.cells); r != "" && o.tables == 1 {
			o.rows = append(o.rows, r)
		}
	case "table":
		if o.tables--; o.tables == 0 {
			return o.add(Table, 0, strings.Join(o.rows, "\n"), o.page)
		}
	}
	return nil
}

func (o *open) chars(s string) error {
	if o.body && o.skip == 0 {
		o.text.WriteString(s)
	}
	return nil
}

func (o *open) paragraph(heading bool) error {
	s := o.text.String()
	o.text.Reset()
	switch {
	case o.tables > 0:
		o.cell = append(o.cell, s)
	case heading:
		if err := o.flush(); err != nil {
			return err
		}
		return o.add(Heading, o.level, s, o.page)
	case o.lists > 0:
		if s = strings.Join(strings.Fields(s), " "); s != "" {
			o.items = append(o.items, strings.Repeat("  ", min(o.lists-1, 8))+"- "+s)
		}
	default:
		return o.add(Paragraph, 0, s, o.page)
	}
	return nil
}

func (o *open) flush() error {
	err := o.add(List, 0, strings.Join(o.items, "\n"), o.page)
	o.items = nil
	return err
}
