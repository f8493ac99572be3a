package extract

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
)

// mostTokenText is how long one run of text in an XML part may be.
const mostTokenText = 1 << 20

// element is an open element; only the local part of its name counts.
type element struct {
	name  string
	attrs []xml.Attr
}

// attr returns an attribute by the local part of its name, or "".
func (e element) attr(name string) string {
	for _, a := range e.attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// visitor is called for what an XML part holds, in order.
type visitor struct {
	start func(element) error
	end   func(name string) error
	text  func(string) error
}

// visit reads XML without ever building a tree. A document type, and with it
// every entity of its own, is refused.
func (b *builder) visit(content []byte, v visitor) error {
	d := xml.NewDecoder(bytes.NewReader(content))
	d.Strict = true
	d.CharsetReader = func(string, io.Reader) (io.Reader, error) { return nil, errors.New("only UTF-8 is read") }
	depth := 0
	for {
		t, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			if depth != 0 {
				return refuse(saveIt, "its XML ends early")
			}
			return nil
		}
		if err != nil {
			return refuse(saveIt, "its XML is wrong: %v", err)
		}
		switch t := t.(type) {
		case xml.StartElement:
			if depth++; depth > b.budget.Depth {
				return refuse("", "it is nested deeper than %d", b.budget.Depth)
			}
			err = v.start(element{t.Name.Local, t.Attr})
		case xml.EndElement:
			if depth--; depth < 0 {
				return refuse(saveIt, "its XML closes what it did not open")
			}
			err = v.end(t.Name.Local)
		case xml.CharData:
			if len(t) > mostTokenText {
				return refuse("", "it has a run of text of over %d MiB", mostTokenText>>20)
			}
			err = v.text(string(t))
		case xml.Directive:
			return refuse("", "its XML declares a document type, which is not read")
		}
		if err != nil {
			return err
		}
	}
}

// ignoreName is a visitor's part that does nothing.
func ignoreName(string) error { return nil }
