package tensor

import (
	"encoding/binary"
)

// packPanel packs up to R rows, which lie in src one after another. Rows that
// the matrix does not have keep dst's zeroes: weights of zero in every format,
// because their scales are zero.
func packPanel(m *Matrix, dst, src []byte, rowBytes int) {
	pack := rowPacker(m.typ)
	for r := 0; r*rowBytes < len(src); r++ {
		pack(dst, src[r*rowBytes:][:rowBytes], m.r, r)
	}
}

// rowPacker returns the function that packs one row of type t as row r of a
// panel of R rows.
func rowPacker(t Type) func(dst, src []byte, R, r int) {
	switch t {
	case F32:
		return packFloat32
	case F16, BF16:
		return packFloat16
	case Q8_0:
		return packQ80
	case Q4_0:
		return func(dst, src []byte, R, r int) { packLegacy(dst, src, R, r, 1, false) }
	case Q4_1:
		return func(dst, src []byte, R, r int) { packLegacy(dst, src, R, r, 2, false) }
	case Q5_0:
		return func(dst, src []byte, R, r int) { packLegacy(dst, src, R, r, 1, true) }
	case Q5_1:
		return func(dst, src []byte, R, r int) { packLegacy(dst, src, R, r, 2, true) }
	case Q4_K:
		return func(dst, src []byte, R, r int) { packQ45K(dst, src, R, r, false) }
	case Q5_K:
		return func(dst, src []byte, R, r int) { packQ45K(dst, src, R, r, true) }
	case Q6_K:
		return func(dst, src []byte, R, r int) { packQ6K(dst, src, R, r) }
	}
	panic("tensor: no packing for " + t.String())
}

// packFloat32 spreads a row over its panel: [column][R].
func packFloat32(dst, src []byte, R, r int) {
	for k := 0; k*4 < len(src); k++ {
		copy(dst[(k*R+r)*4:][:4], src[k*4:][:4])
	}
}

// packFloat16 is packFloat32 for two-byte weights.
func packFloat16(dst, src []byte, R, r int) {
	for k := 0; k*2 < len(src); k++ {
		copy(dst[(k*R+r)*2:][:2], src[k*2:][:2])
	}
}

// words views the first 4*n bytes of b, which may lie anywhere, as little-endian
// words through get and put. Both check bounds once, by the slice expression.
func get32(b []byte, i int) uint32    { return binary.LittleEndian.Uint32(b[i:]) }
func put32(b []byte, i int, v uint32) { binary.LittleEndian.PutUint32(b[i:], v) }

// packQ80 packs blocks of d and 32 int8, to which it adds 128.
func packQ80(dst, src []byte, R, r int) {
	const flip = 0x80808080
	for ; len(src) > 0; src, dst = src[34:], dst[34*R:] {
		s, d := src[:34], dst[:34*R]
		d[2*r], d[2*r+1] = s[0], s[1]
		q := d[2*R+4*r:]
		for g := range 8 {
			put32(q, 4*R*g, get32(s, 2+4*g)^flip)
		}
	}
}

// packLegacy packs the 32-blocks with nibbles: halves is the number of binary16
// numbers in front. Raw nibbles are in the panel's order already.
func packLegacy(dst, src []byte, R, r, halves int, fifth bool) {
	size, at := 2*halves+16, 2*halves
	if fifth {
		size, at = size+4, at+4
	}
	for ; len(src) > 0; src, dst = src[size:], dst[size*R:] {
		s, d := src[:size], dst[:size*R]
		for h := range halves {
			d[2*(h*R+r)], d[2*(h*R+r)+1] = s[2*h], s[2*h+1]
		}
		q := d[2*halves*R+4*r:]
		for j := range 4 {
			put32(q, 4*R*j, get32(s, at+4*j))
		}
		if fifth {
			put32(q, 4*R*4, spreadFifth(get32(s, at-4)))
		}
	}
}

// spreadFifth moves bit 4g+i to bit 8i+g: a transposition of 8x4 bits.
func spreadFifth(b uint32) uint32 {
	v := uint32(0)
	for g := range 8 {
		n := b >> (4 * g) & 15
		v |= (n & 1 << g) | n>>1&1<<(8+g) | n>>2&1<<(16+g) | n>>3<<(24+g)
	}
	return v
}

// packQ45K packs 256-blocks with six-bit scales and minima.
func packQ45K(dst, src []byte, R, r int, fifth bool) {
	size, block, at := 144, 18, 16
	if fifth {
		size, block, at = 176, 22, 48
	}
	for ; len(src) > 0; src, dst = src[size:], dst[(4+8*block)*R:] {
		s, d := src[:size], dst[:(4+8*block)*R]
		d[2*r], d[2*r+1] = s[0], s[1]
		d[2*(R+r)], d[2*(R+r)+1] = s[2], s[3]
		for sub := range 8 {
			b := d[(4+sub*block)*R:][:block*R]
			b[r], b[R+r] = scaleMin(s[4:16], sub)
			packNibbles(b[2*R+4*r:], R, s[at+sub/2*32:], uint(sub%2*4))
			if !fifth {
				continue
			}
			v := uint32(0)
			for g := range 8 {
				v |= get32(s, 16+4*g) >> sub & 0x01010101 << g
			}
			put32(b, 18*R+4*r, v)
		}
	}
}

// packNibbles gathers 32 nibbles, the low (shift 0) or high (shift 4) halves of
// 32 bytes, to four words: word j holds group j low and group j+4 high.
func packNibbles(dst []byte, R int, src []byte, shift uint) {
	const mask = 0x0f0f0f0f
	for j := range 4 {
		lo := get32(src, 4*j) >> shift & mask
		hi := get32(src, 4*j+16) >> shift & mask
		put32(dst, 4*R*j, lo|hi<<4)
	}
}

// packQ6K packs 256-blocks of six-bit weights with int8 scales per 16.
func packQ6K(dst, src []byte, R, r int) {
	const size, block = 210, 26
	for ; len(src) > 0; src, dst = src[size:], dst[size*R:] {
		s, d := src[:size], dst[:size*R]
		d[2*r], d[2*r+1] = s[208], s[209]
		for sub := range 8 {
			b := d[(2+sub*block)*R:][:block*R]
			b[r], b[R+r] = s[192+2*sub], s[193+2*sub]
			half, run := sub/4, sub%4
			packNibbles(b[2*R+4*r:], R, s[half*64+run%2*32:], uint(run/2*4))
			for j := range 2 {
				v := uint32(0)
				for i := range 4 {
					v |= get32(s, 128+half*32+4*(j+2*i)) >> (2 * run) & 0x03030303 << (2 * i)
				}
				put32(b, 18*R+4*R*j+4*r, v)
			}
		}
	}
}
