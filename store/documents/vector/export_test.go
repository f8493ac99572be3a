package vector

import (
	"bytes"
	"unsafe"
)

// Holds tells whether the bytes stand anywhere in the codes in memory.
func (s *Slab) Holds(codes []byte) bool {
	for _, b := range s.blocks {
		if bytes.Contains(unsafe.Slice((*byte)(unsafe.Pointer(&b.codes[0])), len(b.codes)), codes) {
			return true
		}
	}
	return false
}
