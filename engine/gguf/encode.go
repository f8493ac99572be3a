package gguf

import (
	"encoding/binary"
	"fmt"
)

// kindOf returns the kind under which a Go value is written.
func kindOf(v any) (k kind, array, ok bool) {
	switch v.(type) {
	case uint8:
		return kindUint8, false, true
	case []uint8:
		return kindUint8, true, true
	case int8:
		return kindInt8, false, true
	case []int8:
		return kindInt8, true, true
	case uint16:
		return kindUint16, false, true
	case []uint16:
		return kindUint16, true, true
	case int16:
		return kindInt16, false, true
	case []int16:
		return kindInt16, true, true
	case uint32:
		return kindUint32, false, true
	case []uint32:
		return kindUint32, true, true
	case int32:
		return kindInt32, false, true
	case []int32:
		return kindInt32, true, true
	case uint64:
		return kindUint64, false, true
	case []uint64:
		return kindUint64, true, true
	case int64:
		return kindInt64, false, true
	case []int64:
		return kindInt64, true, true
	case float32:
		return kindFloat32, false, true
	case []float32:
		return kindFloat32, true, true
	case float64:
		return kindFloat64, false, true
	case []float64:
		return kindFloat64, true, true
	case bool:
		return kindBool, false, true
	case []bool:
		return kindBool, true, true
	case string:
		return kindString, false, true
	case []string:
		return kindString, true, true
	}
	return 0, false, false
}

// lenOf returns the number of elements of an array of kind k.
func lenOf(k kind, v any) int {
	if list, ok := v.([]string); ok {
		return len(list)
	}
	return binary.Size(v) / k.width()
}

// appendValue appends kind, count and content of a value that kindOf knows.
func appendValue(b []byte, v any) []byte {
	k, array, _ := kindOf(v)
	le := binary.LittleEndian
	if array {
		b = le.AppendUint32(b, uint32(kindArray))
	}
	b = le.AppendUint32(b, uint32(k))
	switch v := v.(type) {
	case string:
		return appendString(b, v)
	case []string:
		b = le.AppendUint64(b, uint64(len(v)))
		for _, s := range v {
			b = appendString(b, s)
		}
		return b
	}
	if array {
		b = le.AppendUint64(b, uint64(lenOf(k, v)))
	}
	b, err := binary.Append(b, le, v)
	if err != nil {
		panic(fmt.Sprintf("gguf: encoding %T: %v", v, err))
	}
	return b
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}
