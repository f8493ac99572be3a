package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
)

// fields reads a JSON object field by field. The first thing wrong is kept in
// problem and names its field; reading goes on with defaults. A field that is
// null counts as absent, and fields that nobody asks for are ignored.
type fields struct {
	raw     map[string]json.RawMessage
	problem *problem
}

// parseFields reads body, which must be one JSON object.
func parseFields(body []byte) (*fields, *problem) {
	d := json.NewDecoder(bytes.NewReader(body))
	var raw map[string]json.RawMessage
	if err := d.Decode(&raw); err != nil {
		if kind := jsonKind(body); json.Valid(body) && kind != "object" {
			return nil, badBody("the request body must be a JSON object, not %s", article(kind))
		}
		return nil, badBody("the request body is not JSON: %v", err)
	}
	if raw == nil {
		return nil, badBody("the request body must be a JSON object, not null")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, badBody("the request body is not JSON: there is text after the object")
	}
	return &fields{raw: raw}, nil
}

// fail keeps the first problem.
func (f *fields) fail(p *problem) {
	if f.problem == nil {
		f.problem = p
	}
}

// has reports whether a field is present and not null.
func (f *fields) has(name string) bool {
	v, ok := f.raw[name]
	return ok && jsonKind(v) != "null"
}

// first returns the first of names that is present, or names[0].
func (f *fields) first(names ...string) string {
	for _, n := range names {
		if f.has(n) {
			return n
		}
	}
	return names[0]
}

// mismatch records that a field has the wrong type.
func (f *fields) mismatch(name, want string) {
	p := invalid(name, "expected %s, but got %s", article(want), article(jsonKind(f.raw[name])))
	p.code = "invalid_type"
	f.fail(p)
}

func (f *fields) boolean(name string, def bool) bool {
	if !f.has(name) {
		return def
	}
	var v bool
	if json.Unmarshal(f.raw[name], &v) != nil {
		f.mismatch(name, "boolean")
		return def
	}
	return v
}

// integer reads a whole number between low and high, which may be written with
// a fraction of zero.
func (f *fields) integer(name string, def, low, high int64) int64 {
	if !f.has(name) {
		return def
	}
	v, ok := wholeNumber(f.raw[name])
	if !ok {
		f.mismatch(name, "integer")
		return def
	}
	if v < low || v > high {
		f.fail(invalid(name, "the value must be between %d and %d, but got %s", low, high, bytes.TrimSpace(f.raw[name])))
		return def
	}
	return v
}

// wholeNumber reads a JSON number without a fraction. Numbers beyond 64 bits
// come back as the nearest that fits, so that range checks refuse them.
func wholeNumber(raw json.RawMessage) (int64, bool) {
	if jsonKind(raw) != "number" {
		return 0, false
	}
	text := string(bytes.TrimSpace(raw))
	if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		return v, true
	}
	x, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil && math.IsInf(x, 0), math.Abs(x) >= 1<<62:
		return int64(math.Copysign(1<<62, x)), true
	case err != nil || x != math.Trunc(x):
		return 0, false
	}
	return int64(x), true
}

// number reads a number and brings it between low and high.
func (f *fields) number(name string, def, low, high float64) float64 {
	if !f.has(name) {
		return def
	}
	if jsonKind(f.raw[name]) != "number" {
		f.mismatch(name, "number")
		return def
	}
	var v float64
	if json.Unmarshal(f.raw[name], &v) != nil {
		f.fail(invalid(name, "the number is out of range"))
		return def
	}
	return max(low, min(high, v))
}

func (f *fields) text(name, def string) string {
	if !f.has(name) {
		return def
	}
	var v string
	if json.Unmarshal(f.raw[name], &v) != nil {
		f.mismatch(name, "string")
		return def
	}
	return v
}

// list reads an array; absent gives nil.
func (f *fields) list(name string) []json.RawMessage {
	if !f.has(name) {
		return nil
	}
	v := []json.RawMessage{}
	if json.Unmarshal(f.raw[name], &v) != nil {
		f.mismatch(name, "array")
		return nil
	}
	return v
}

// object reads a nested object; absent gives an empty one.
func (f *fields) object(name string) *fields {
	if !f.has(name) {
		return &fields{}
	}
	o := &fields{}
	if json.Unmarshal(f.raw[name], &o.raw) != nil {
		f.mismatch(name, "object")
	}
	return o
}

// merge keeps a nested object's problem under its full name.
func (f *fields) merge(name string, o *fields) {
	if o.problem == nil {
		return
	}
	p := *o.problem
	p.param = name + "." + p.param
	p.message = fmt.Sprintf("in %q: %s", name, p.message)
	f.fail(&p)
}

// jsonKind names the type of a JSON value by its first character.
func jsonKind(raw []byte) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	default:
		return "number"
	}
}

// article puts "a" or "an" before a noun, where one belongs.
func article(noun string) string {
	switch noun {
	case "null", "nothing":
		return noun
	case "array", "object", "integer", "array of strings":
		return "an " + noun
	default:
		return "a " + noun
	}
}
