package payload

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"unicode/utf8"
)

// CheckConfig holds an operator's configuration to the schema of a manifest; an empty schema allows every JSON value. The
// schema is the part of JSON Schema that a form can show: type, properties, required, additionalProperties (true or
// false), items, enum, const, minimum, maximum, minLength, maxLength, minItems, maxItems; title, description, default,
// examples and $schema mean nothing here. The error is an *Error.
func CheckConfig(schema, config []byte) error {
	r := newReader("configuration", config)
	if len(schema) == 0 {
		r.skip()
		return r.end()
	}
	s, serr := parseSchema(schema)
	if serr != nil {
		return serr
	}
	r.match(s)
	return r.end()
}

// schema is one schema. nil allows everything.
type schema struct {
	types      []string
	properties map[string]*schema
	required   []string
	closed     bool
	items      *schema
	enum       []any // nil for every value
	low, high  float64
	short      int64 // of texts and arrays
	long       int64
	few, many  int64
}

// checkSchema tells whether b is a schema.
func checkSchema(b []byte) *Error {
	_, err := parseSchema(b)
	return err
}

func parseSchema(b []byte) (*schema, *Error) {
	r := newReader("schema", b)
	s := r.schema()
	if r.end() != nil {
		return nil, r.err
	}
	return s, nil
}

const most = 1 << 31 // of a length

func (r *reader) schema() *schema {
	s := &schema{low: math.Inf(-1), high: math.Inf(1), long: most, many: most}
	r.object(func(name string) {
		switch name {
		case "title", "description", "default", "examples", "$schema":
			r.skip()
		case "type":
			s.types = r.types()
		case "properties":
			s.properties = map[string]*schema{}
			r.object(func(name string) { s.properties[name] = r.schema() })
		case "required":
			s.required = r.texts(1000, func(string) string { return "" })
		case "additionalProperties":
			s.closed = !r.boolean()
		case "items":
			s.items = r.schema()
		case "enum":
			s.enum = []any{}
			r.array(func(int) { s.enum = append(s.enum, decoded(r.raw())) })
		case "const":
			s.enum = []any{decoded(r.raw())}
		case "minimum":
			s.low = r.number()
		case "maximum":
			s.high = r.number()
		case "minLength":
			s.short = r.whole(0, most)
		case "maxLength":
			s.long = r.whole(0, most)
		case "minItems":
			s.few = r.whole(0, most)
		case "maxItems":
			s.many = r.whole(0, most)
		default:
			r.fail("use the part of JSON Schema that a form can show", "this keyword is not supported")
		}
	})
	return s
}

func (r *reader) types() []string {
	known := func(s string) string {
		if !slices.Contains([]string{"object", "array", "string", "number", "integer", "boolean", "null"}, s) {
			return "is no type"
		}
		return ""
	}
	if r.is('[') {
		return r.texts(7, known)
	}
	s := r.text()
	if why := known(s); why != "" {
		r.fail("", "%q %s", s, why)
	}
	return []string{s}
}

// decoded gives a value for comparison. raw was read by reader, so it is JSON.
func decoded(raw json.RawMessage) any {
	var v any
	if len(raw) > 0 && json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

// match takes one value that s allows.
func (r *reader) match(s *schema) {
	if s == nil {
		r.skip()
		return
	}
	r.next()
	from := r.p
	var kind string
	switch {
	case r.is('{'):
		kind = "object"
		r.members(s)
	case r.is('['):
		kind = "array"
		n := int64(0)
		r.array(func(int) { n++; r.match(s.items) })
		r.within(float64(n), float64(s.few), float64(s.many), "items")
	case r.is('"'):
		kind = "string"
		r.within(float64(utf8.RuneCountInString(r.text())), float64(s.short), float64(s.long), "characters")
	case r.is('t'):
		kind = "boolean"
		r.boolean()
	case r.is('n'):
		kind = "null"
		r.word("null")
	default:
		kind = "number"
		v := r.number()
		r.within(v, s.low, s.high, "")
		if v == math.Trunc(v) && !slices.Contains(s.types, "number") {
			kind = "integer"
		}
	}
	if r.err != nil {
		return
	}
	if len(s.types) > 0 && !slices.Contains(s.types, kind) {
		r.fail("", "this is not of type %v", s.types)
		return
	}
	if v := decoded(r.b[from:r.p]); s.enum != nil && !slices.ContainsFunc(s.enum, func(o any) bool { return reflect.DeepEqual(o, v) }) {
		r.fail("", "this is none of the values that are allowed: %v", s.enum)
	}
}

func (r *reader) within(v, low, high float64, what string) {
	if r.err == nil && (v < low || v > high) {
		if what != "" {
			what = " " + what
		}
		r.fail("", "%v%s: not from %v to %v", v, what, low, high)
	}
}

func (r *reader) members(s *schema) {
	has := map[string]bool{}
	r.object(func(name string) {
		has[name] = true
		p, ok := s.properties[name]
		if !ok && s.closed {
			r.fail("", "an unknown member")
		}
		r.match(p)
	})
	for _, name := range s.required {
		if !has[name] {
			r.fail("", "%q is missing", name)
		}
	}
}
