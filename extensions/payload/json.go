// Package payload reads and writes the JSON of the contract laya_v1 (ABI.md): requests, decisions, manifests and the
// operator's configuration. Readers are strict: they take a value whole or not at all, and say where it fails.
package payload

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"onebit/extensions/abi"
)

// Error says what is wrong with a payload and what its author can do.
type Error struct {
	What   string // "manifest", "decision", "configuration"
	Path   string // "candidates[2]"; empty for the whole
	Reason string
	Remedy string
}

func (e *Error) Error() string {
	at := e.What
	if e.Path != "" {
		at += ": " + e.Path
	}
	if e.Remedy == "" {
		return at + ": " + e.Reason
	}
	return at + ": " + e.Reason + "; " + e.Remedy
}

// reader walks one JSON text. It stops at the first failure; what it returns then is of no use. It holds every object to
// distinct names, all text to UTF-8, all numbers to what a float64 can hold, and nesting to abi.MaxDepth.
type reader struct {
	what  string
	b     []byte
	p     int
	depth int
	path  []byte
	err   *Error
}

func newReader(what string, b []byte) *reader { return &reader{what: what, b: b} }

// fail records the first failure.
func (r *reader) fail(remedy, format string, args ...any) {
	if r.err == nil {
		r.err = &Error{r.what, r.place(), fmt.Sprintf(format, args...), remedy}
	}
}

// place writes the path for a line of a log: a stranger chose the names in it.
func (r *reader) place() string {
	p := string(r.path[:min(len(r.path), 200)])
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, p)
}

const badJSON = "write it with a JSON library"

// next returns the byte that a value or sign begins with, without taking it; 0 at the end.
func (r *reader) next() byte {
	for r.p < len(r.b) {
		switch c := r.b[r.p]; c {
		case ' ', '\t', '\n', '\r':
			r.p++
		default:
			return c
		}
	}
	return 0
}

// take takes a sign that must stand there.
func (r *reader) take(c byte) {
	if r.err != nil {
		return
	}
	if r.next(); r.p == len(r.b) {
		r.fail(badJSON, "the text ends too early")
		return
	}
	if r.b[r.p] != c {
		r.fail(badJSON, "byte %d is not %q", r.p, c)
		return
	}
	r.p++
}

// end demands that nothing follows, and returns the failure.
func (r *reader) end() error {
	if r.err == nil && (r.next() != 0 || r.p < len(r.b)) {
		r.fail(badJSON, "something follows at byte %d", r.p)
	}
	if r.err != nil {
		return r.err
	}
	return nil
}

func (r *reader) down() bool {
	r.depth++
	if r.depth > abi.MaxDepth {
		r.fail("make it flatter", "nested deeper than %d", abi.MaxDepth)
	}
	return r.err == nil
}

// is tells whether a value of the form comes next, by its first byte: '{', '[', '"', 't' for booleans, '0' for numbers,
// 'n' for null.
func (r *reader) is(form byte) bool {
	c := r.next()
	switch form {
	case 't':
		return c == 't' || c == 'f'
	case '0':
		return c == '-' || c >= '0' && c <= '9'
	}
	return c == form
}

func (r *reader) want(form byte, name string) bool {
	if r.err == nil && !r.is(form) {
		r.fail("", "this is not %s", name)
	}
	return r.err == nil
}

// object calls member for each name. member takes the value.
func (r *reader) object(member func(name string)) {
	if !r.want('{', "an object") || !r.down() {
		return
	}
	r.take('{')
	seen := make([]string, 0, 16)
	var many map[string]bool
	at := len(r.path)
	for n := 0; r.err == nil && r.next() != '}'; n++ {
		r.path = r.path[:at]
		if n > 0 {
			r.take(',')
		}
		name := r.text()
		r.path = append(r.path[:at], name...)
		if at > 0 {
			r.path = append(append(r.path[:at], '.'), name...)
		}
		if repeated(&seen, &many, name) {
			r.fail("name it once", "this name occurs twice")
		}
		r.take(':')
		if r.err == nil {
			member(name)
		}
	}
	r.path = r.path[:at]
	r.take('}')
	r.depth--
}

// repeated remembers a name, and tells whether it was there before.
func repeated(few *[]string, many *map[string]bool, name string) bool {
	if *many == nil {
		for _, s := range *few {
			if s == name {
				return true
			}
		}
		if *few = append(*few, name); len(*few) == cap(*few) {
			*many = map[string]bool{}
			for _, s := range *few {
				(*many)[s] = true
			}
		}
		return false
	}
	was := (*many)[name]
	(*many)[name] = true
	return was
}

// array calls item for each place. item takes the value.
func (r *reader) array(item func(i int)) {
	if !r.want('[', "an array") || !r.down() {
		return
	}
	r.take('[')
	at := len(r.path)
	for n := 0; r.err == nil && r.next() != ']'; n++ {
		r.path = r.path[:at]
		if n > 0 {
			r.take(',')
		}
		r.path = append(strconv.AppendInt(append(r.path[:at], '['), int64(n), 10), ']')
		if r.err == nil {
			item(n)
		}
	}
	r.path = r.path[:at]
	r.take(']')
	r.depth--
}

// text takes a string.
func (r *reader) text() string {
	if !r.want('"', "a string") {
		return ""
	}
	r.p++
	from := r.p
	for r.p < len(r.b) && r.b[r.p] != '"' && r.b[r.p] != '\\' && r.b[r.p] >= ' ' {
		r.p++
	}
	if r.p < len(r.b) && r.b[r.p] == '"' { // nothing to unescape
		s := string(r.b[from:r.p])
		r.p++
		if !utf8.ValidString(s) {
			r.fail(badJSON, "the text is not UTF-8")
		}
		return s
	}
	s := append([]byte(nil), r.b[from:r.p]...)
	for r.err == nil {
		switch {
		case r.p >= len(r.b):
			r.fail(badJSON, "a string has no end")
		case r.b[r.p] < ' ':
			r.fail(badJSON, "a control character in a string at byte %d", r.p)
		case r.b[r.p] == '"':
			r.p++
			if !utf8.Valid(s) {
				r.fail(badJSON, "the text is not UTF-8")
			}
			return string(s)
		case r.b[r.p] == '\\':
			s = r.escape(s)
		default:
			s = append(s, r.b[r.p])
			r.p++
		}
	}
	return ""
}

// escape takes one escape and appends what it stands for.
func (r *reader) escape(s []byte) []byte {
	r.p++
	if r.p >= len(r.b) {
		r.fail(badJSON, "a string has no end")
		return s
	}
	c := r.b[r.p]
	r.p++
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		return append(s, "\"\\/\b\f\n\r\t"[i])
	}
	if c != 'u' {
		r.fail(badJSON, "an unknown escape at byte %d", r.p-1)
		return s
	}
	v := r.hex()
	if utf16.IsSurrogate(v) {
		if r.p+1 >= len(r.b) || r.b[r.p] != '\\' || r.b[r.p+1] != 'u' {
			r.fail(badJSON, "half of a character at byte %d", r.p)
			return s
		}
		r.p += 2
		if v = utf16.DecodeRune(v, r.hex()); v == utf8.RuneError {
			r.fail(badJSON, "half of a character at byte %d", r.p)
		}
	}
	return utf8.AppendRune(s, v)
}

func (r *reader) hex() rune {
	if r.p+4 > len(r.b) {
		r.fail(badJSON, "a string has no end")
		return 0
	}
	v, err := strconv.ParseUint(string(r.b[r.p:r.p+4]), 16, 32)
	if err != nil {
		r.fail(badJSON, "an unknown escape at byte %d", r.p)
	}
	r.p += 4
	return rune(v)
}

// digits takes one digit or more.
func (r *reader) digits() {
	from := r.p
	for r.p < len(r.b) && r.b[r.p] >= '0' && r.b[r.p] <= '9' {
		r.p++
	}
	if r.p == from {
		r.fail(badJSON, "a digit is missing at byte %d", r.p)
	}
}

// number takes a number.
func (r *reader) number() float64 {
	if !r.want('0', "a number") {
		return 0
	}
	from := r.p
	if r.b[r.p] == '-' {
		r.p++
	}
	if r.p < len(r.b) && r.b[r.p] == '0' {
		r.p++
	} else {
		r.digits()
	}
	if r.p < len(r.b) && r.b[r.p] == '.' {
		r.p++
		r.digits()
	}
	if r.p < len(r.b) && r.b[r.p]|0x20 == 'e' {
		r.p++
		if r.p < len(r.b) && (r.b[r.p] == '+' || r.b[r.p] == '-') {
			r.p++
		}
		r.digits()
	}
	if r.err != nil {
		return 0
	}
	v, err := strconv.ParseFloat(string(r.b[from:r.p]), 64)
	if err != nil {
		r.fail("", "the number is out of range")
	}
	return v
}

// between takes a number from low to high.
func (r *reader) between(low, high float64) float64 {
	v := r.number()
	if r.err == nil && !(v >= low && v <= high) {
		r.fail("", "%v is not from %v to %v", v, low, high)
	}
	return v
}

// whole takes a whole number from low to high, which are exact as float64.
func (r *reader) whole(low, high float64) int64 {
	v := r.between(low, high)
	if r.err == nil && v != math.Trunc(v) {
		r.fail("", "%v is not a whole number", v)
	}
	if r.err != nil {
		return 0
	}
	return int64(v)
}

func (r *reader) word(w string) {
	if r.err == nil && !strings.HasPrefix(string(r.b[r.p:min(len(r.b), r.p+len(w))]), w) {
		r.fail(badJSON, "an unknown word at byte %d", r.p)
	}
	r.p += len(w)
}

// boolean takes true or false.
func (r *reader) boolean() bool {
	if !r.want('t', "true or false") {
		return false
	}
	if r.b[r.p] == 't' {
		r.word("true")
		return true
	}
	r.word("false")
	return false
}

// raw takes any value and returns its bytes, which are checked like all others.
func (r *reader) raw() json.RawMessage {
	r.next()
	from := r.p
	r.skip()
	if r.err != nil {
		return nil
	}
	return append(json.RawMessage(nil), r.b[from:r.p]...)
}

// skip takes any value.
func (r *reader) skip() {
	if r.err != nil {
		return
	}
	switch {
	case r.is('{'):
		r.object(func(string) { r.skip() })
	case r.is('['):
		r.array(func(int) { r.skip() })
	case r.is('"'):
		r.text()
	case r.is('t'):
		r.boolean()
	case r.is('n'):
		r.word("null")
	default:
		r.number()
	}
}

// texts takes an array of distinct strings, each of which passes ok.
func (r *reader) texts(most int, ok func(string) string) []string {
	var out []string
	var few = make([]string, 0, 16)
	var many map[string]bool
	r.array(func(i int) {
		s := r.text()
		switch why := ok(s); {
		case i >= most:
			r.fail("", "more than %d", most)
		case why != "":
			r.fail("", "%q %s", s, why)
		case repeated(&few, &many, s):
			r.fail("", "%q occurs twice", s)
		}
		out = append(out, s)
	})
	return out
}

// numbers takes an object of numbers, each of whose names passes ok.
func (r *reader) numbers(ok func(string) string) map[string]float64 {
	out := map[string]float64{}
	r.object(func(name string) {
		if why := ok(name); why != "" {
			r.fail("", "%q %s", name, why)
		}
		out[name] = r.number()
	})
	return out
}
