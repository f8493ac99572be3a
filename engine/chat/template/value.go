package template

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// Mark is a noncharacter that a caller may put into strings to find a place again in what is rendered: no operation
// of a template takes it for anything else than a character, or escapes it.
const Mark = '\ufdd0'

// Decode reads one JSON value with the order of its objects' keys kept. mark, where given, is applied to every string.
func Decode(raw []byte, mark func(string) string) (jinja.Value, error) {
	if mark == nil {
		mark = func(s string) string { return s }
	}
	return decode(raw, mark)
}

// JSON writes a value as JSON without white space.
func JSON(v jinja.Value) string {
	style := jsonStyle{indent: -1, item: ",", key: ":"}
	return string(style.appendJSON(nil, v, 0))
}

func decode(raw []byte, mark func(string) string) (jinja.Value, error) {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	v, err := decodeValue(d, mark, 0)
	if err != nil {
		return v, err
	}
	if _, err := d.Token(); err != io.EOF {
		return v, fmt.Errorf("text after the value")
	}
	return v, nil
}

// maxJSONDepth bounds the nesting of a request's JSON.
const maxJSONDepth = 100

func decodeValue(d *json.Decoder, mark func(string) string, depth int) (jinja.Value, error) {
	t, err := d.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return jinja.Undefined(), err
	}
	if depth > maxJSONDepth {
		return jinja.Undefined(), fmt.Errorf("nested deeper than %d", maxJSONDepth)
	}
	switch t := t.(type) {
	case string:
		return jinja.NewString(mark(t)), nil
	case json.Number:
		return number(string(t)), nil
	case json.Delim:
		if t == '[' {
			return decodeList(d, mark, depth)
		}
		return decodeDict(d, mark, depth)
	}
	return jinja.FromGoValue(t), nil
}

func decodeList(d *json.Decoder, mark func(string) string, depth int) (jinja.Value, error) {
	var items []jinja.Value
	for d.More() {
		v, err := decodeValue(d, mark, depth+1)
		if err != nil {
			return v, err
		}
		items = append(items, v)
	}
	_, err := d.Token()
	return jinja.NewList(items), err
}

func decodeDict(d *json.Decoder, mark func(string) string, depth int) (jinja.Value, error) {
	dict := jinja.NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return dict, err
		}
		v, err := decodeValue(d, mark, depth+1)
		if err != nil {
			return dict, err
		}
		dict.AsDict().Set(mark(key.(string)), v)
	}
	_, err := d.Token()
	return dict, err
}

// number keeps integers apart from floats, as Python does.
func number(s string) jinja.Value {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return jinja.NewInt(n)
	}
	f, _ := strconv.ParseFloat(s, 64)
	return jinja.NewFloat(f)
}

// text is Python's str(v), with nothing for an undefined value.
func text(v jinja.Value) string {
	switch {
	case v.IsString():
		return v.AsString()
	case v.IsUndefined(), v.IsCallable():
		return ""
	}
	return string(appendRepr(nil, v))
}

// appendRepr appends Python's repr(v).
func appendRepr(b []byte, v jinja.Value) []byte {
	switch {
	case v.IsNone():
		return append(b, "None"...)
	case v.IsUndefined():
		return append(b, "Undefined"...)
	case v.IsBool():
		if v.AsBool() {
			return append(b, "True"...)
		}
		return append(b, "False"...)
	case v.IsInt():
		return strconv.AppendInt(b, v.AsInt(), 10)
	case v.IsFloat():
		return appendFloat(b, v.AsFloat())
	case v.IsString():
		return appendQuoted(b, v.AsString())
	case v.IsList():
		b = append(b, '[')
		for i, item := range v.AsList().Items {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendRepr(b, item)
		}
		return append(b, ']')
	case v.IsDict():
		b = append(b, '{')
		for i, k := range v.AsDict().Keys {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(appendQuoted(b, k), ": "...)
			b = appendRepr(b, v.AsDict().Data[k])
		}
		return append(b, '}')
	}
	return append(b, "<function>"...)
}

// appendFloat appends the shortest form that reads back the same, as Python writes it: with a point or an
// exponent, the latter from 1e16 and below 1e-4.
func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	case math.IsNaN(f):
		return append(b, "nan"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if !slices.Contains(b[start:], '.') {
		b = append(b, ".0"...)
	}
	return b
}

// appendQuoted appends a string as Python's repr does: single quotes unless only those occur inside.
func appendQuoted(b []byte, s string) []byte {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	b = append(b, q)
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == Mark || r == ' ' || unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r < 0x100:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
	}
	return append(b, q)
}

// jsonStyle is how a template wants JSON written; the names are those of Python's json.dumps.
type jsonStyle struct {
	indent    int // negative: one line
	item, key string
	ascii     bool
	sortKeys  bool
	limit     int // bytes after which to add no more items, 0 for none
}

// appendJSON appends v as Python's json.dumps writes it, depth levels in.
func (j *jsonStyle) appendJSON(b []byte, v jinja.Value, depth int) []byte {
	switch {
	case v.IsBool():
		return strconv.AppendBool(b, v.AsBool())
	case v.IsInt():
		return strconv.AppendInt(b, v.AsInt(), 10)
	case v.IsFloat():
		f := v.AsFloat()
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return append(b, map[bool]string{true: "NaN", false: "Infinity"}[math.IsNaN(f)]...)
		}
		return appendFloat(b, f)
	case v.IsString():
		return j.appendString(b, v.AsString())
	case v.IsList():
		b = append(b, '[')
		for i, item := range v.AsList().Items {
			if j.limit > 0 && len(b) > j.limit {
				break
			}
			b = j.appendJSON(j.separate(b, i, depth+1), item, depth+1)
		}
		return append(j.finish(b, v.AsList().Len(), depth), ']')
	case v.IsDict():
		keys := v.AsDict().Keys
		if j.sortKeys {
			keys = slices.Sorted(slices.Values(keys))
		}
		b = append(b, '{')
		for i, k := range keys {
			if j.limit > 0 && len(b) > j.limit {
				break
			}
			b = append(j.appendString(j.separate(b, i, depth+1), k), j.key...)
			b = j.appendJSON(b, v.AsDict().Data[k], depth+1)
		}
		return append(j.finish(b, len(keys), depth), '}')
	}
	return append(b, "null"...)
}

func (j *jsonStyle) separate(b []byte, i, depth int) []byte {
	if i > 0 {
		b = append(b, j.item...)
	}
	return j.newline(b, depth)
}

func (j *jsonStyle) finish(b []byte, items, depth int) []byte {
	if items == 0 {
		return b
	}
	return j.newline(b, depth)
}

func (j *jsonStyle) newline(b []byte, depth int) []byte {
	if j.indent < 0 {
		return b
	}
	b = append(b, '\n')
	for range j.indent * depth {
		b = append(b, ' ')
	}
	return b
}

func (j *jsonStyle) appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r < 0x20, j.ascii && r > 0x7e && r < 0x10000 && r != Mark:
			b = fmt.Appendf(b, `\u%04x`, r)
		case j.ascii && r >= 0x10000:
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// equal is Python's ==.
func equal(a, b jinja.Value) bool {
	if x, ok := numeric(a); ok {
		y, ok := numeric(b)
		return ok && x == y
	}
	switch {
	case a.IsList() && b.IsList():
		return slices.EqualFunc(a.AsList().Items, b.AsList().Items, equal)
	case a.IsDict() && b.IsDict():
		x, y := a.AsDict(), b.AsDict()
		return x.Len() == y.Len() && !slices.ContainsFunc(x.Keys, func(k string) bool {
			v, ok := y.Get(k)
			return !ok || !equal(x.Data[k], v)
		})
	case a.IsString() && b.IsString():
		return a.AsString() == b.AsString()
	}
	return a.IsNone() && b.IsNone() || a.IsUndefined() && b.IsUndefined()
}

// order is Python's ordering of numbers, of strings and of lists; ok is false for what it does not order.
func order(a, b jinja.Value) (c int, ok bool) {
	if a.IsString() && b.IsString() {
		return strings.Compare(a.AsString(), b.AsString()), true
	}
	if a.IsList() && b.IsList() {
		x, y := a.AsList().Items, b.AsList().Items
		for i := range min(len(x), len(y)) {
			if !equal(x[i], y[i]) {
				return order(x[i], y[i])
			}
		}
		return cmp.Compare(len(x), len(y)), true
	}
	x, ok := numeric(a)
	y, ok2 := numeric(b)
	return cmp.Compare(x, y), ok && ok2
}

// numeric is the value of a number or, as in Python, of a boolean.
func numeric(v jinja.Value) (float64, bool) {
	switch {
	case v.IsInt():
		return float64(v.AsInt()), true
	case v.IsFloat():
		return v.AsFloat(), true
	case v.IsBool():
		return float64(toInt(v)), true
	}
	return 0, false
}

// toInt is v as an integer, 0 for what is none.
func toInt(v jinja.Value) int64 {
	switch {
	case v.IsInt():
		return v.AsInt()
	case v.IsFloat():
		return int64(v.AsFloat())
	case v.IsBool() && v.AsBool():
		return 1
	}
	return 0
}

func itoa(n int) string { return strconv.Itoa(n) }

func bytesText(n int) string { return fmt.Sprintf("%d MiB", n>>20) }
