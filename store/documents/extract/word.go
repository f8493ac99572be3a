package extract

import (
	"context"
	"strconv"
	"strings"
)

const wordMain = "word/document.xml"

// readWord reads DOCX: word/document.xml with the names of its styles, then
// foot- and endnotes and comments are left out but for the notes.
func readWord(_ context.Context, b *builder, content []byte) error {
	z, err := b.unpack(content)
	if err != nil {
		return err
	}
	if err := b.coreTitle(z); err != nil {
		return err
	}
	styles, err := b.wordStyles(z)
	if err != nil {
		return err
	}
	for _, name := range []string{wordMain, "word/footnotes.xml", "word/endnotes.xml"} {
		if name != wordMain && !z.has(name) {
			continue
		}
		part, err := z.read(name)
		if err != nil {
			return err
		}
		w := &word{builder: b, styles: styles}
		if err := b.visit(part, visitor{w.start, w.end, w.chars}); err != nil {
			return inPart(name, err)
		}
		if err := w.flushList(); err != nil {
			return err
		}
	}
	return nil
}

// coreTitle takes the title from the properties of an Office file.
func (b *builder) coreTitle(z *packed) error {
	part, err := z.optional("docProps/core.xml")
	if part == nil || err != nil {
		return err
	}
	in := false
	return b.visit(part, visitor{
		func(e element) error { in = e.name == "title"; return nil },
		func(string) error { in = false; return nil },
		func(s string) error {
			if in {
				b.doc.Title = clean(cut(b.doc.Title+s, 1000), false)
			}
			return nil
		},
	})
}

// wordStyles returns the level of a heading for the id of each style that is
// one, by its outline level or its name.
func (b *builder) wordStyles(z *packed) (map[string]int, error) {
	part, err := z.optional("word/styles.xml")
	levels := map[string]int{}
	if part == nil || err != nil {
		return levels, err
	}
	id := ""
	err = b.visit(part, visitor{func(e element) error {
		switch e.name {
		case "style":
			id = e.attr("styleId")
		case "name":
			name := strings.ToLower(e.attr("val"))
			if n, ok := strings.CutPrefix(name, "heading "); ok {
				if level, err := strconv.Atoi(n); err == nil && level >= 1 && level <= 9 {
					levels[id] = level
				}
			} else if name == "title" {
				levels[id] = 1
			}
		case "outlineLvl":
			if level, err := strconv.Atoi(e.attr("val")); err == nil && level >= 0 && level < 9 {
				levels[id] = level + 1
			}
		}
		return nil
	}, ignoreName, ignoreName})
	return levels, err
}

type word struct {
	*builder
	styles map[string]int

	text   strings.Builder
	level  int  // heading level of the paragraph
	item   bool // it is one of a list
	indent int
	inText bool
	skip   int // depth inside what is not text: deleted words, codes of fields

	items []string
	cells []string
	rows  []string
	cell  []string
	depth int // tables inside tables
}

func (w *word) start(e element) error {
	switch e.name {
	case "p":
		w.text.Reset()
		w.level, w.item, w.indent = 0, false, 0
	case "pStyle":
		w.level = w.styles[e.attr("val")]
	case "outlineLvl":
		if n, err := strconv.Atoi(e.attr("val")); err == nil && n >= 0 && n < 9 {
			w.level = n + 1
		}
	case "numPr":
		w.item = true
	case "ilvl":
		w.indent, _ = strconv.Atoi(e.attr("val"))
	case "t":
		w.inText = true
	case "tab", "ptab":
		w.text.WriteByte('\t')
	case "br", "cr":
		w.text.WriteByte('\n')
	case "noBreakHyphen":
		w.text.WriteByte('-')
	case "del", "instrText", "moveFrom", "Fallback":
		w.skip++
	case "tbl":
		if w.depth++; w.depth == 1 {
			w.rows = nil
			return w.flushList()
		}
	case "tr":
		if w.depth == 1 {
			w.cells = nil
		}
	case "tc":
		if w.depth == 1 {
			w.cell = nil
		}
	}
	return nil
}

func (w *word) end(name string) error {
	switch name {
	case "t":
		w.inText = false
	case "del", "instrText", "moveFrom", "Fallback":
		w.skip--
	case "p":
		return w.paragraph()
	case "tc":
		if w.depth == 1 {
			w.cells = append(w.cells, strings.Join(w.cell, " "))
		}
	case "tr":
		if w.depth == 1 {
			w.rows = append(w.rows, row(w.cells))
		}
	case "tbl":
		if w.depth--; w.depth == 0 {
			return w.add(Table, 0, strings.Join(w.rows, "\n"), 0)
		}
	}
	return nil
}

func (w *word) chars(s string) error {
	if w.inText && w.skip == 0 {
		w.text.WriteString(s)
	}
	return nil
}

func (w *word) paragraph() error {
	s := w.text.String()
	w.text.Reset()
	switch {
	case w.depth > 0:
		w.cell = append(w.cell, s)
		return nil
	case w.item && w.level == 0:
		if s = strings.Join(strings.Fields(s), " "); s != "" {
			w.items = append(w.items, strings.Repeat("  ", max(0, min(w.indent, 8)))+"- "+s)
		}
		return nil
	}
	if err := w.flushList(); err != nil {
		return err
	}
	if w.level > 0 {
		return w.add(Heading, w.level, s, 0)
	}
	return w.add(Paragraph, 0, s, 0)
}

func (w *word) flushList() error {
	err := w.add(List, 0, strings.Join(w.items, "\n"), 0)
	w.items = nil
	return err
}
