package tensor

import (
	"encoding/binary"
	"unsafe"
)

// ReferenceActivations is PackActivations by the portable quantiser.
func (k *Kernels) ReferenceActivations(dst []byte, x []float32, stride, tokens, cols, index int) {
	slow := *k
	slow.quant.activation = genericQuantTable(k.Level).activation
	if k.quant.wide != nil {
		slow.quant.wide = &wideTable{spread: genericSpread}
	}
	slow.PackActivations(dst, x, stride, tokens, cols, index)
}

// PackedBytes returns the packed weights.
func (m *Matrix) PackedBytes() []byte { return m.data }

// genericSpread is the reference of wideTable.spread.
func genericSpread(dst, src *byte, nblk int) {
	const n, plain, wide = wideTokens, wideTokens * actWords * 4, wideTokens * wideWords * 4
	from, to := unsafe.Slice(src, nblk*plain), unsafe.Slice(dst, nblk*wide)
	for ; len(from) > 0; from, to = from[plain:], to[wide:] {
		for t := range n {
			var turned [2]uint32
			put := func(word int, v uint32) { binary.LittleEndian.PutUint32(to[4*(word*n+t):], v) }
			start := int32(0)
			for g := range 8 {
				var sizes, signs uint32
				q := from[4*((actQuants+g)*n+t):][:4]
				for p := range 2 {
					first, second := int32(int8(q[2*p])), int32(int8(q[2*p+1]))
					sign := int32(1)
					if first < 0 {
						sign = -1
					}
					if (first < 0) != (second < 0) {
						turned[g/4] |= 32 << (p + g%4*8)
						start -= second
					}
					sizes |= uint32(uint8(max(first, -first)))<<(16*p) | uint32(uint8(max(second, -second)))<<(16*p+8)
					signs |= uint32(uint16(sign)) << (16 * p)
				}
				put(wideGroups+2*g, sizes)
				put(wideGroups+2*g+1, signs)
			}
			put(wideTurned, turned[0])
			put(wideTurned+1, turned[1])
			put(wideScale, binary.LittleEndian.Uint32(from[4*(actScale*n+t):]))
			put(wideStart, uint32(start))
		}
	}
}
