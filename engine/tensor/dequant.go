package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Dequantize writes the weights of src, blocks of type t as they lie in a model
// file, to dst. len(dst) must be a multiple of the type's block and src must
// hold exactly that many weights. It is plain Go: the oracle of the kernels.
func Dequantize(t Type, src []byte, dst []float32) error {
	elems, size, ok := t.Block()
	if !ok {
		return fmt.Errorf("tensor: cannot read %v", t)
	}
	if len(dst)%elems != 0 || len(src) != len(dst)/elems*size {
		return fmt.Errorf("tensor: %d bytes are not %d weights of %v", len(src), len(dst), t)
	}
	for ; len(dst) > 0; src, dst = src[size:], dst[elems:] {
		switch t {
		case F32:
			dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src))
		case F16:
			dst[0] = halfAt(src, 0)
		case BF16:
			dst[0] = brainToFloat(binary.LittleEndian.Uint16(src))
		case Q4_0, Q4_1, Q5_0, Q5_1:
			dequantizeLegacy(t, src, dst)
		case Q8_0:
			d := halfAt(src, 0)
			for i := range 32 {
				dst[i] = d * float32(int8(src[2+i]))
			}
		case Q4_K, Q5_K:
			dequantizeQ45K(t, src, dst)
		case Q6_K:
			dequantizeQ6K(src, dst)
		}
	}
	return nil
}

// halfAt reads the binary16 number at b[i:].
func halfAt(b []byte, i int) float32 {
	return halfToFloat(binary.LittleEndian.Uint16(b[i:]))
}

// dequantizeLegacy reads one 32-block: d, the minimum of the _1 types, the
// fifth bits of the Q5 types, 16 bytes of nibbles (element i low, i+16 high).
func dequantizeLegacy(t Type, b []byte, dst []float32) {
	d, at := halfAt(b, 0), 2
	var low float32
	switch t {
	case Q4_0:
		low = -8 * d
	case Q5_0:
		low = -16 * d
	default:
		low = halfAt(b, 2)
		at = 4
	}
	fifth := uint32(0)
	if t == Q5_0 || t == Q5_1 {
		fifth = binary.LittleEndian.Uint32(b[at:])
		at += 4
	}
	for i := range 16 {
		lo := uint32(b[at+i]&15) | fifth>>i&1<<4
		hi := uint32(b[at+i]>>4) | fifth>>(i+16)&1<<4
		dst[i] = d*float32(lo) + low
		dst[i+16] = d*float32(hi) + low
	}
}

// scaleMin returns the six-bit scale and minimum of sub-block s of Q4_K and
// Q5_K from their 12 packed bytes.
func scaleMin(b []byte, s int) (scale, low byte) {
	if s < 4 {
		return b[s] & 63, b[s+4] & 63
	}
	return b[s+4]&15 | b[s-4]>>6<<4, b[s+4]>>4 | b[s]>>6<<4
}

// dequantizeQ45K reads one 256-block: d, dmin, 12 bytes of scales, for Q5_K 32
// bytes of fifth bits (bit s belongs to sub-block s), 128 bytes of nibbles.
func dequantizeQ45K(t Type, b []byte, dst []float32) {
	d, dmin := halfAt(b, 0), halfAt(b, 2)
	fifth, nibbles := []byte(nil), b[16:]
	if t == Q5_K {
		fifth, nibbles = b[16:48], b[48:]
	}
	for s := range 8 {
		sc, m := scaleMin(b[4:16], s)
		scale, low := d*float32(sc), dmin*float32(m)
		for i := range 32 {
			q := nibbles[s/2*32+i] >> (s % 2 * 4) & 15
			if fifth != nil {
				q |= fifth[i] >> s & 1 << 4
			}
			dst[s*32+i] = scale*float32(q) - low
		}
	}
}

// dequantizeQ6K reads one 256-block: 128 bytes of nibbles, 64 bytes of upper
// bit pairs, 16 int8 scales, d. Each half of 128 weights is four runs of 32.
func dequantizeQ6K(b []byte, dst []float32) {
	d := halfAt(b, 208)
	for k := range 256 {
		half, run, i := k/128, k%128/32, k%32
		q := b[half*64+run%2*32+i] >> (run / 2 * 4) & 15
		q |= b[128+half*32+i] >> (run * 2) & 3 << 4
		dst[k] = d * float32(int8(b[192+k/16])) * float32(int(q)-32)
	}
}
