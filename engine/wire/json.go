package wire

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// members walks the members of one JSON object in their order and allocates nothing. It trusts that brackets and
// quotes pair up, no more; what is not an object, or does not pair up, ends with bad set.
type members struct {
	raw   []byte
	at    int // the next byte to look at
	first bool
	end   bool
	bad   bool

	key        []byte // without quotes, escapes resolved
	value      []byte // a span of raw
	start, off int    // the value's place: raw[start:off]
	keyAt      int    // where the member begins
}

func newMembers(raw []byte) members {
	m := members{raw: raw, first: true}
	m.at = skipSpace(raw, 0)
	if m.at >= len(raw) || raw[m.at] != '{' {
		m.end, m.bad = true, true
		return m
	}
	m.at++
	return m
}

// next moves to the next member and reports whether there is one.
func (m *members) next() bool {
	if m.end {
		return false
	}
	m.at = skipSpace(m.raw, m.at)
	if m.at < len(m.raw) && m.raw[m.at] == '}' {
		m.end = true
		m.bad = skipSpace(m.raw, m.at+1) != len(m.raw)
		return false
	}
	if !m.first && !m.take(',') {
		return m.fail()
	}
	m.first = false
	m.at = skipSpace(m.raw, m.at)
	keyEnd := skipString(m.raw, m.at)
	if keyEnd < 0 {
		return m.fail()
	}
	m.key, m.keyAt = plain(m.raw[m.at:keyEnd]), m.at
	m.at = skipSpace(m.raw, keyEnd)
	if !m.take(':') {
		return m.fail()
	}
	m.start = skipSpace(m.raw, m.at)
	m.off = skipValue(m.raw, m.start)
	if m.off < 0 {
		return m.fail()
	}
	m.value, m.at = m.raw[m.start:m.off], m.off
	return true
}

func (m *members) take(c byte) bool {
	if m.at < len(m.raw) && m.raw[m.at] == c {
		m.at++
		return true
	}
	return false
}

func (m *members) fail() bool {
	m.end, m.bad = true, true
	return false
}

// elements calls f for each element of a JSON array, in order, until f returns false. It reports whether raw is an array.
func elements(raw []byte, f func(i int, value []byte) bool) bool {
	return spans(raw, func(i, start, end int) bool { return f(i, raw[start:end]) })
}

// spans does what elements does and gives the places of the elements in raw.
func spans(raw []byte, f func(i, start, end int) bool) bool {
	if len(raw) == 0 || raw[0] != '[' {
		return false
	}
	at := skipSpace(raw, 1)
	if at < len(raw) && raw[at] == ']' {
		return true
	}
	for i := 0; ; i++ {
		at = skipSpace(raw, at)
		end := skipValue(raw, at)
		if end < 0 {
			return false
		}
		if !f(i, at, end) {
			return true
		}
		at = skipSpace(raw, end)
		if at >= len(raw) || raw[at] != ',' {
			return at < len(raw) && raw[at] == ']'
		}
		at++
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the place after the string that begins at i, or -1.
func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for at := i + 1; ; at++ {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			return -1
		}
		at += n
		slashes := 0
		for b[at-1-slashes] == '\\' {
			slashes++ // stops at the opening quote at the latest
		}
		if slashes%2 == 0 {
			return at + 1
		}
	}
}

// skipValue returns the place after the value that begins at i, or -1.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	at := i
	for at < len(b) && b[at] != ',' && b[at] != '}' && b[at] != ']' && b[at] > ' ' {
		at++
	}
	if at == i {
		return -1
	}
	return at
}

func skipNested(b []byte, i int) int {
	depth := 0
	for at := i; at < len(b); at++ {
		switch b[at] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return at + 1
			}
		case '"':
			end := skipString(b, at)
			if end < 0 {
				return -1
			}
			at = end - 1
		}
	}
	return -1
}

// plain returns the text of a quoted JSON string; it allocates only when the string holds an escape.
func plain(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return inner
	}
	return []byte(s)
}

// text returns the text of a JSON value that is a string.
func text(value []byte) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	return string(plain(value)), true
}

func isNull(value []byte) bool { return string(value) == "null" }

// clean returns raw as it is when it is valid UTF-8, else a copy with U+FFFD for what is not.
func clean(raw []byte) []byte {
	if utf8.Valid(raw) {
		return raw
	}
	return bytes.ToValidUTF8(raw, []byte("\uFFFD"))
}
