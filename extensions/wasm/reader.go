// Package wasm knows the binary form of a core WebAssembly module: numbers, sections, and the operands of each
// instruction of the profile that guests may use. It judges nothing beyond what it needs to read on safely: package
// module refuses, package meter rewrites.
package wasm

import (
	"fmt"
	"unicode/utf8"
)

// Header opens every core module of version 1.
const Header = "\x00asm\x01\x00\x00\x00"

// Section ids, in the order of the specification (DataCount stands before Code in a file).
const (
	Custom = iota
	Type
	Import
	Function
	Table
	Memory
	Global
	Export
	Start
	Element
	Code
	Data
	DataCount
)

// Value types.
const (
	I32     = 0x7f
	I64     = 0x7e
	F32     = 0x7d
	F64     = 0x7c
	V128    = 0x7b
	FuncRef = 0x70
)

// PageSize is the unit of linear memory, in bytes.
const PageSize = 65536

// Order gives a section's place in a file; sections appear at most once and in rising order, custom ones (0) anywhere.
func Order(id byte) int {
	if id == DataCount {
		return 2*Code - 1
	}
	return 2 * int(id)
}

// ReadError tells where reading stopped.
type ReadError struct {
	Offset int // bytes from the start of what the reader was given
	What   string
}

func (e *ReadError) Error() string { return fmt.Sprintf("at byte %d: %s", e.Offset, e.What) }

// Reader reads numbers and bytes from front to back. The first error sticks: from then on every method returns zero
// values, so a caller may read several things and ask Err once. Loops whose count comes from the bytes must ask Err
// in each round. A Reader never allocates, except for names.
type Reader struct {
	b   []byte
	p   int
	err error
}

// NewReader reads b, which it does not change.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Pos returns the offset of the next byte.
func (r *Reader) Pos() int { return r.p }

// Left returns how many bytes are unread; 0 after an error.
func (r *Reader) Left() int {
	if r.err != nil {
		return 0
	}
	return len(r.b) - r.p
}

// Since returns the bytes from offset from to the next byte.
func (r *Reader) Since(from int) []byte { return r.b[from:r.p] }

// Fail makes the reader fail with these words, unless it failed before.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = &ReadError{r.p, fmt.Sprintf(format, args...)}
	}
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if r.err != nil {
		return 0
	}
	if r.p >= len(r.b) {
		r.Fail("the bytes end early")
		return 0
	}
	r.p++
	return r.b[r.p-1]
}

// U32 reads an unsigned number of at most 32 bits in LEB128.
func (r *Reader) U32() uint32 {
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		c := r.Byte()
		if r.err != nil {
			return 0
		}
		if shift == 28 && c > 0x0f {
			break
		}
		v |= uint32(c&0x7f) << shift
		if c&0x80 == 0 {
			return v
		}
	}
	r.Fail("a number over 32 bits")
	return 0
}

// S64 reads a signed number of at most bits bits (32, 33 or 64) in LEB128.
func (r *Reader) S64(bits int) int64 {
	var v int64
	for shift := 0; shift < bits; shift += 7 {
		c := r.Byte()
		if r.err != nil {
			return 0
		}
		v |= int64(c&0x7f) << shift
		if c&0x80 != 0 {
			continue
		}
		if shift+7 < 64 {
			v = v << (64 - shift - 7) >> (64 - shift - 7)
		} else if c != 0 && c != 0x7f {
			break // the tenth byte has one bit of its own; the others repeat it
		}
		if limit := int64(1) << (bits - 1); bits < 64 && (v < -limit || v >= limit) {
			break
		}
		return v
	}
	r.Fail("a signed number over %d bits", bits)
	return 0
}

// Take returns the next n bytes, uncopied.
func (r *Reader) Take(n uint32) []byte {
	if uint64(n) > uint64(r.Left()) {
		r.Fail("%d bytes are announced, %d are left", n, r.Left())
		return nil
	}
	r.p += int(n)
	return r.b[r.p-int(n) : r.p]
}

// Name reads a name of at most limit bytes, which must be UTF-8.
func (r *Reader) Name(limit int) string {
	n := r.U32()
	if uint64(n) > uint64(limit) {
		r.Fail("a name of %d bytes, at most %d", n, limit)
		return ""
	}
	b := r.Take(n)
	if !utf8.Valid(b) {
		r.Fail("a name that is not UTF-8")
		return ""
	}
	return string(b)
}

// AppendU32 appends v in LEB128.
func AppendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// AppendS64 appends v in signed LEB128.
func AppendS64(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// AppendName appends a name with its length.
func AppendName(b []byte, name string) []byte {
	return append(AppendU32(b, uint32(len(name))), name...)
}

// AppendSection appends a whole section.
func AppendSection(b []byte, id byte, body []byte) []byte {
	return append(AppendU32(append(b, id), uint32(len(body))), body...)
}
