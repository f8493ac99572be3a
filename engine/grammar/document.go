package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// value is a JSON value whose objects keep their order.
type value struct {
	kind    byte // one of { [ " 0 t f n
	members []member
	items   []*value
	text    string // of a string or number
	weight  int    // rough bytes of its JSON
	refers  bool   // something in it is a reference within the schema
}

// weigh sets the weight, and whether it refers, once all of the value is there.
func (v *value) weigh() *value {
	v.weight = 8 + len(v.text)
	for _, m := range v.members {
		v.weight += 4 + len(m.name) + m.v.weight
		v.refers = v.refers || m.v.refers || m.name == "$ref" && strings.HasPrefix(m.v.text, "#")
	}
	for _, x := range v.items {
		v.weight += 1 + x.weight
		v.refers = v.refers || x.refers
	}
	v.weight = min(v.weight, 1<<40)
	return v
}

type member struct {
	name string
	v    *value
}

// Bounds of a schema's text.
const (
	maxNesting = 100
	maxSchema  = 1 << 20 // bytes
	maxValues  = 1 << 15
	maxMembers = 2000 // of one object, which are searched one by one
)

// reader reads a schema.
type reader struct {
	*json.Decoder
	values int
}

// parseJSON reads one JSON value.
func parseJSON(raw []byte) (*value, error) {
	if len(raw) > maxSchema {
		return nil, &LimitError{What: fmt.Sprintf("it has more than %d bytes", maxSchema)}
	}
	d := &reader{Decoder: json.NewDecoder(bytes.NewReader(raw))}
	d.UseNumber()
	v, err := d.value(top, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, &Error{Path: "#", Reason: "there is text after the schema"}
	}
	return v, nil
}

func (d *reader) value(path *place, depth int) (*value, error) {
	if d.values++; d.values > maxValues {
		return nil, &LimitError{What: fmt.Sprintf("it holds more than %d values", maxValues)}
	}
	if depth > maxNesting {
		return nil, &Error{Path: path.String(), Reason: fmt.Sprintf("it is nested more than %d deep", maxNesting)}
	}
	t, err := d.Token()
	if err != nil {
		return nil, &Error{Path: path.String(), Reason: "it is not JSON: " + err.Error()}
	}
	switch t := t.(type) {
	case string:
		return (&value{kind: '"', text: t}).weigh(), nil
	case json.Number:
		return (&value{kind: '0', text: t.String()}).weigh(), nil
	case bool:
		if t {
			return always, nil
		}
		return (&value{kind: 'f'}).weigh(), nil
	case nil:
		return (&value{kind: 'n'}).weigh(), nil
	case json.Delim:
		v := &value{kind: byte(t)}
		for d.More() {
			if err := d.part(v, path, depth); err != nil {
				return nil, err
			}
		}
		if _, err := d.Token(); err != nil {
			return nil, &Error{Path: path.String(), Reason: "it is not JSON: " + err.Error()}
		}
		return v.weigh(), nil
	}
	return nil, &Error{Path: path.String(), Reason: "it is not JSON"}
}

// part reads the next member or item of v.
func (d *reader) part(v *value, path *place, depth int) error {
	if v.kind == '[' {
		item, err := d.value(below(path, strconv.Itoa(len(v.items))), depth+1)
		v.items = append(v.items, item)
		return err
	}
	t, err := d.Token()
	name, ok := t.(string)
	if err != nil || !ok {
		return &Error{Path: path.String(), Reason: "it is not JSON"}
	}
	at := below(path, name)
	if len(v.members) == maxMembers {
		return &LimitError{What: fmt.Sprintf("%s has more than %d members", path, maxMembers)}
	}
	if v.get(name) != nil {
		return &Error{Path: at.String(), Reason: "it is there twice"}
	}
	x, err := d.value(at, depth+1)
	v.members = append(v.members, member{name, x})
	return err
}

// get is a member of an object, nil when there is none.
func (v *value) get(name string) *value {
	for i := range v.members {
		if v.members[i].name == name {
			return v.members[i].v
		}
	}
	return nil
}

// with is a copy of an object with a member set, without one set to nil.
func (v *value) with(name string, x *value) *value {
	out := &value{kind: '{'}
	for _, m := range v.members {
		if m.name != name {
			out.members = append(out.members, m)
		} else if x != nil {
			out.members = append(out.members, member{name, x})
			x = nil
		}
	}
	if x != nil {
		out.members = append(out.members, member{name, x})
	}
	return out.weigh()
}

// always is the schema true.
var always = (&value{kind: 't'}).weigh()

// place is where in a schema something stands. Its JSON pointer is written out only for errors: a schema can make many of
// them, and each long.
type place struct {
	up   *place // nil at the top, or where a reference has led
	step string
}

// top is the schema itself.
var top = &place{step: "#"}

func below(p *place, step string) *place { return &place{p, step} }

// maxPointer bounds a pointer's text; of a longer one the end is shown.
const maxPointer = 300

func (p *place) String() string {
	var steps []string
	for n := 0; p != nil && n < maxPointer; p = p.up {
		step := p.step
		if p.up != nil {
			step = "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step[:min(len(step), maxPointer)])
		}
		n += len(step)
		steps = append(steps, step[:min(len(step), maxPointer)])
	}
	slices.Reverse(steps)
	return strings.ToValidUTF8(strings.Join(steps, ""), "")
}

// write appends the value as compact JSON.
func (v *value) write(b *strings.Builder) {
	switch v.kind {
	case '{':
		for i, m := range v.members {
			b.WriteByte("{,"[min(i, 1)])
			b.WriteString(quote(m.name))
			b.WriteByte(':')
			m.v.write(b)
		}
		if len(v.members) == 0 {
			b.WriteByte('{')
		}
		b.WriteByte('}')
	case '[':
		b.WriteByte('[')
		for i, x := range v.items {
			if i > 0 {
				b.WriteByte(',')
			}
			x.write(b)
		}
		b.WriteByte(']')
	case '"':
		b.WriteString(quote(v.text))
	case '0':
		b.WriteString(v.text)
	case 't':
		b.WriteString("true")
	case 'f':
		b.WriteString("false")
	default:
		b.WriteString("null")
	}
}

func (v *value) json() string {
	var b strings.Builder
	v.write(&b)
	return b.String()
}

// quote is a text as a JSON string.
func quote(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}
