package extract

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

// decode returns bytes as text: UTF-16 by its mark, else UTF-8, else the code
// page of western Windows, which is what such files mostly are.
func decode(b []byte) string {
	if bytes.HasPrefix(b, []byte{0xFF, 0xFE}) || bytes.HasPrefix(b, []byte{0xFE, 0xFF}) {
		if s, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder().Bytes(b); err == nil {
			return string(s)
		}
	}
	if utf8.Valid(b) {
		return strings.TrimPrefix(string(b), "\uFEFF")
	}
	s, err := charmap.Windows1252.NewDecoder().Bytes(b)
	if err != nil {
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	return string(s)
}

func lines(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

// readText takes blank lines for borders of paragraphs, and a form feed for a
// page's end.
func readText(_ context.Context, b *builder, content []byte) error {
	pages := strings.Split(lines(decode(content)), "\f")
	for i, page := range pages {
		number := 0
		if len(pages) > 1 {
			number = i + 1
		}
		for _, p := range paragraphs(page) {
			if err := b.add(Paragraph, 0, p, number); err != nil {
				return err
			}
		}
	}
	if len(pages) > 1 {
		b.doc.Pages = len(pages)
	}
	return nil
}

// paragraphs cuts text at blank lines.
func paragraphs(s string) []string {
	var out []string
	var held []string
	for line := range strings.SplitSeq(s, "\n") {
		if strings.TrimSpace(line) != "" {
			held = append(held, line)
			continue
		}
		if len(held) > 0 {
			out = append(out, strings.Join(held, "\n"))
			held = nil
		}
	}
	if len(held) > 0 {
		out = append(out, strings.Join(held, "\n"))
	}
	return out
}

// readCode takes what begins at the left margin after a blank line for a new
// block: in most languages a declaration.
func readCode(_ context.Context, b *builder, content []byte) error {
	var held []string
	blank := false
	flush := func() error {
		err := b.add(Code, 0, strings.Join(held, "\n"), 0)
		held = nil
		return err
	}
	for line := range strings.SplitSeq(lines(decode(content)), "\n") {
		closes := strings.HasPrefix(line, "}") || strings.HasPrefix(line, ")") || strings.HasPrefix(line, "]")
		if blank && line != "" && line[0] != ' ' && line[0] != '\t' && !closes {
			if err := flush(); err != nil {
				return err
			}
		}
		blank = strings.TrimSpace(line) == ""
		held = append(held, line)
	}
	return flush()
}

func readTSV(ctx context.Context, b *builder, content []byte) error {
	return readRows(b, content, '\t')
}

func readCSV(ctx context.Context, b *builder, content []byte) error {
	first, _, _ := bytes.Cut(content, []byte("\n"))
	comma := ','
	if bytes.Count(first, []byte(";")) > bytes.Count(first, []byte(",")) {
		comma = ';' // what a spreadsheet writes where the comma is in numbers
	}
	return readRows(b, content, comma)
}

func readRows(b *builder, content []byte, comma rune) error {
	r := csv.NewReader(strings.NewReader(decode(content)))
	r.Comma, r.FieldsPerRecord, r.LazyQuotes, r.ReuseRecord = comma, -1, true, true
	var t strings.Builder
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return refuse("", "it is no table of values: %v", err)
		}
		if line := row(record); line != "" {
			t.WriteString(line + "\n")
		}
	}
	return b.add(Table, 0, t.String(), 0)
}

func readJSON(_ context.Context, b *builder, content []byte) error {
	text := []byte(strings.TrimSpace(decode(content)))
	if err := b.depthOf(text); err != nil {
		return err
	}
	if book, ok := notebook(text); ok {
		return book.add(b)
	}
	if rows, ok := records(text); ok {
		return b.add(Table, 0, rows, 0)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", " "); err != nil {
		return refuse("", "it is no JSON: %v", err)
	}
	return b.add(Code, 0, out.String(), 0)
}

// depthOf refuses deep nesting before anything recurses into it.
func (b *builder) depthOf(text []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > b.budget.Depth {
				return refuse("", "it is nested deeper than %d", b.budget.Depth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// records turns a list of flat objects into a table.
func records(text []byte) (string, bool) {
	var list []map[string]json.RawMessage
	if json.Unmarshal(text, &list) != nil || len(list) == 0 {
		return "", false
	}
	return tableOf(list)
}

func tableOf(list []map[string]json.RawMessage) (string, bool) {
	var names []string
	for _, o := range list {
		for name, v := range o {
			if len(v) > 0 && (v[0] == '{' || v[0] == '[') {
				return "", false
			}
			if !slices.Contains(names, name) {
				if names = append(names, name); len(names) > 64 {
					return "", false
				}
			}
		}
	}
	slices.Sort(names)
	var t strings.Builder
	t.WriteString(row(names) + "\n")
	for _, o := range list {
		cells := make([]string, len(names))
		for i, n := range names {
			cells[i] = plain(o[n])
		}
		t.WriteString(row(cells) + "\n")
	}
	return t.String(), true
}

// plain returns a JSON value as a reader would write it.
func plain(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

func readJSONLines(_ context.Context, b *builder, content []byte) error {
	var list []map[string]json.RawMessage
	flat := true
	var all []string
	for line := range strings.SplitSeq(lines(decode(content)), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := b.depthOf([]byte(line)); err != nil {
			return err
		}
		if !json.Valid([]byte(line)) {
			return refuse("", "line %d is no JSON", len(all)+1)
		}
		all = append(all, line)
		var o map[string]json.RawMessage
		flat = flat && json.Unmarshal([]byte(line), &o) == nil
		list = append(list, o)
	}
	if flat {
		if t, ok := tableOf(list); ok {
			return b.add(Table, 0, t, 0)
		}
	}
	return b.add(Code, 0, strings.Join(all, "\n"), 0)
}

// jupyter is a notebook: cells of text and of program.
type jupyter struct {
	Format int `json:"nbformat"`
	Cells  []struct {
		Type   string          `json:"cell_type"`
		Source json.RawMessage `json:"source"`
	} `json:"cells"`
}

func notebook(text []byte) (*jupyter, bool) {
	var n jupyter
	return &n, json.Unmarshal(text, &n) == nil && n.Format > 0 && len(n.Cells) > 0
}

func (n *jupyter) add(b *builder) error {
	for i, c := range n.Cells {
		var parts []string
		var source string
		if json.Unmarshal(c.Source, &parts) == nil {
			source = strings.Join(parts, "")
		} else if err := json.Unmarshal(c.Source, &source); err != nil {
			return refuse("", "cell %d of the notebook has no text: %v", i+1, err)
		}
		var err error
		if c.Type == "markdown" {
			err = readMarkdown(context.Background(), b, []byte(source))
		} else {
			err = b.add(Code, 0, source, 0)
		}
		if err != nil {
			return fmt.Errorf("cell %d: %w", i+1, err)
		}
	}
	return nil
}
