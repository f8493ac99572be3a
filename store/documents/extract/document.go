package extract

import "strings"

// Kind says what a block is.
type Kind string

// The kinds of blocks.
const (
	Heading   Kind = "heading"
	Paragraph Kind = "paragraph"
	List      Kind = "list"  // one item a line
	Table     Kind = "table" // one row a line, cells between " | "; the first row is the header
	Code      Kind = "code"  // lines as they stand
)

// Block is a piece of a document that belongs together.
type Block struct {
	Kind  Kind   `json:"kind"`
	Level int    `json:"level,omitempty"` // of a heading, from 1
	Text  string `json:"text"`            // valid UTF-8 without control characters but tab and line feed
	Page  int    `json:"page,omitempty"`  // from 1; 0 where the format has no pages
}

// Document is what was read from a file.
type Document struct {
	Title  string  `json:"title,omitempty"`
	Media  string  `json:"media"`           // media type, as it was sniffed
	Pages  int     `json:"pages,omitempty"` // 0 where the format has none
	Blocks []Block `json:"blocks"`
}

// Separator stands between two blocks in Text.
const Separator = "\n\n"

// Text returns the whole text. Offsets of citations count its bytes.
func (d *Document) Text() string {
	n := 0
	for _, b := range d.Blocks {
		n += len(b.Text) + len(Separator)
	}
	var t strings.Builder
	t.Grow(n)
	for i, b := range d.Blocks {
		if i > 0 {
			t.WriteString(Separator)
		}
		t.WriteString(b.Text)
	}
	return t.String()
}
