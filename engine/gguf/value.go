package gguf

import (
	"encoding/binary"
	"math"
)

// kind is the type of a metadata value, with the numbers of the file format.
type kind uint32

const (
	kindUint8   kind = 0
	kindInt8    kind = 1
	kindUint16  kind = 2
	kindInt16   kind = 3
	kindUint32  kind = 4
	kindInt32   kind = 5
	kindFloat32 kind = 6
	kindBool    kind = 7
	kindString  kind = 8
	kindArray   kind = 9
	kindUint64  kind = 10
	kindInt64   kind = 11
	kindFloat64 kind = 12
)

// width returns the bytes that one value takes; 0 for strings, arrays and
// unknown kinds.
func (k kind) width() int {
	switch k {
	case kindUint8, kindInt8, kindBool:
		return 1
	case kindUint16, kindInt16:
		return 2
	case kindUint32, kindInt32, kindFloat32:
		return 4
	case kindUint64, kindInt64, kindFloat64:
		return 8
	}
	return 0
}

func (k kind) integer() bool {
	return k.width() > 0 && k != kindFloat32 && k != kindFloat64 && k != kindBool
}

// value is one metadata value, still in the bytes of the file. The parser has
// proved that raw holds exactly what kind and count say.
type value struct {
	kind  kind
	array bool
	count int    // elements; 1 unless array
	raw   []byte // elements one after another; a single string without its length
}

// number returns element i widened to uint64, int64 or float64; nil when the
// value holds no numbers.
func (v value) number(i int) any {
	le, b := binary.LittleEndian, v.raw
	switch v.kind {
	case kindUint8:
		return uint64(b[i])
	case kindInt8:
		return int64(int8(b[i]))
	case kindUint16:
		return uint64(le.Uint16(b[2*i:]))
	case kindInt16:
		return int64(int16(le.Uint16(b[2*i:])))
	case kindUint32:
		return uint64(le.Uint32(b[4*i:]))
	case kindInt32:
		return int64(int32(le.Uint32(b[4*i:])))
	case kindUint64:
		return le.Uint64(b[8*i:])
	case kindInt64:
		return int64(le.Uint64(b[8*i:]))
	case kindFloat32:
		return float64(math.Float32frombits(le.Uint32(b[4*i:])))
	case kindFloat64:
		return math.Float64frombits(le.Uint64(b[8*i:]))
	}
	return nil
}

// strings returns the elements of an array of strings. They share one copy of
// the array's bytes.
func (v value) strings() []string {
	all := string(v.raw)
	list := make([]string, v.count)
	at := 0
	for i := range list {
		n := int(binary.LittleEndian.Uint64(v.raw[at:]))
		list[i] = all[at+8 : at+8+n]
		at += 8 + n
	}
	return list
}

// decode returns the value as a Go value of the same width.
func (v value) decode() any {
	switch v.kind {
	case kindUint8:
		return elements[uint8](v)
	case kindInt8:
		return elements[int8](v)
	case kindUint16:
		return elements[uint16](v)
	case kindInt16:
		return elements[int16](v)
	case kindUint32:
		return elements[uint32](v)
	case kindInt32:
		return elements[int32](v)
	case kindUint64:
		return elements[uint64](v)
	case kindInt64:
		return elements[int64](v)
	case kindFloat32:
		return elements[float32](v)
	case kindFloat64:
		return elements[float64](v)
	case kindBool:
		if !v.array {
			return v.raw[0] != 0
		}
		list := make([]bool, v.count)
		for i := range list {
			list[i] = v.raw[i] != 0
		}
		return list
	}
	if v.array {
		return v.strings()
	}
	return string(v.raw)
}

// elements returns a T, or a []T for an array.
func elements[T uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64](v value) any {
	list := make([]T, v.count)
	// The lengths agree: the parser took count times the width of T.
	if _, err := binary.Decode(v.raw, binary.LittleEndian, list); err != nil {
		panic("gguf: value does not hold what was parsed: " + err.Error())
	}
	if !v.array {
		return list[0]
	}
	return list
}
