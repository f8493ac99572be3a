package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Quantize writes src to dst as blocks of type t, as they lie in a model file.
// len(src) must be a multiple of the type's block and dst hold exactly that many
// weights. It rounds to the nearest step of the block's range: good enough for
// tests and tools, without the search for better scales that a publisher of
// models makes.
func Quantize(t Type, src []float32, dst []byte) error {
	elems, size, ok := t.Block()
	if !ok {
		return fmt.Errorf("tensor: cannot write %v", t)
	}
	if len(src)%elems != 0 || len(dst) != len(src)/elems*size {
		return fmt.Errorf("tensor: %d bytes do not hold %d weights of %v", len(dst), len(src), t)
	}
	for ; len(src) > 0; src, dst = src[elems:], dst[size:] {
		b := dst[:size]
		switch t {
		case F32:
			binary.LittleEndian.PutUint32(b, math.Float32bits(src[0]))
		case F16:
			putHalf(b, 0, src[0])
		case BF16:
			binary.LittleEndian.PutUint16(b, floatToBrain(src[0]))
		case Q4_0, Q4_1, Q5_0, Q5_1:
			quantizeLegacy(t, src[:32], b)
		case Q8_0:
			quantizeQ80(src[:32], b)
		case Q4_K, Q5_K:
			quantizeQ45K(t, src[:256], b)
		case Q6_K:
			quantizeQ6K(src[:256], b)
		}
	}
	return nil
}

// putHalf stores f as a binary16 number at b[i:] and returns what was stored.
func putHalf(b []byte, i int, f float32) float32 {
	h := floatToHalf(f)
	binary.LittleEndian.PutUint16(b[i:], h)
	return halfToFloat(h)
}

// step returns the whole number of steps of size d nearest to v, within low..high.
func step(v, d float32, low, high int) int {
	if d == 0 {
		return min(max(0, low), high)
	}
	return int(min(max(math.RoundToEven(float64(v)/float64(d)), float64(low)), float64(high)))
}

// extreme returns the value of the largest magnitude, with its sign.
func extreme(v []float32) float32 {
	top := float32(0)
	for _, x := range v {
		if math.Abs(float64(x)) > math.Abs(float64(top)) {
			top = x
		}
	}
	return top
}

// span returns the smallest and the largest value.
func span(v []float32) (low, high float32) {
	low, high = v[0], v[0]
	for _, x := range v[1:] {
		low, high = min(low, x), max(high, x)
	}
	return low, high
}

func quantizeQ80(v []float32, b []byte) {
	d := putHalf(b, 0, float32(math.Abs(float64(extreme(v))))/127)
	for i, x := range v {
		b[2+i] = byte(step(x, d, -127, 127))
	}
}

// quantizeLegacy maps the extreme value to the lowest step of the _0 types, which
// reach one step further down than up, and the span to all steps of the _1 types.
func quantizeLegacy(t Type, v []float32, b []byte) {
	steps, at := 16, 2
	if t == Q5_0 || t == Q5_1 {
		steps = 32
	}
	var d, low float32
	zero := 0
	if t == Q4_0 || t == Q5_0 {
		d = putHalf(b, 0, extreme(v)/float32(-steps/2))
		zero = steps / 2
	} else {
		smallest, largest := span(v)
		d = putHalf(b, 0, (largest-smallest)/float32(steps-1))
		low = putHalf(b, 2, smallest)
		at = 4
	}
	fifth := uint32(0)
	nibbles := b[at:]
	if steps == 32 {
		nibbles = b[at+4:]
	}
	for i := range 16 {
		lo := step(v[i]-low, d, -zero, steps-1-zero) + zero
		hi := step(v[i+16]-low, d, -zero, steps-1-zero) + zero
		nibbles[i] = byte(lo&15 | hi&15<<4)
		fifth |= uint32(lo>>4)<<i | uint32(hi>>4)<<(i+16)
	}
	if steps == 32 {
		binary.LittleEndian.PutUint32(b[at:], fifth)
	}
}

func quantizeQ45K(t Type, v []float32, b []byte) {
	steps, nibbles, fifth := 16, b[16:], []byte(nil)
	if t == Q5_K {
		steps, nibbles, fifth = 32, b[48:], b[16:48]
		clear(fifth)
	}
	var scale, low [8]float32
	for s := range 8 {
		smallest, largest := span(v[32*s:][:32])
		smallest = min(smallest, 0) // the minimum is stored as a number to subtract
		scale[s], low[s] = (largest-smallest)/float32(steps-1), -smallest
	}
	d := putHalf(b, 0, extreme(scale[:])/63)
	dmin := putHalf(b, 2, extreme(low[:])/63)
	clear(b[4:16])
	for s := range 8 {
		sc, m := step(scale[s], d, 0, 63), step(low[s], dmin, 0, 63)
		putScaleMin(b[4:16], s, byte(sc), byte(m))
		scale[s], low[s] = d*float32(sc), dmin*float32(m)
	}
	for s := range 8 {
		for i := range 32 {
			q := step(v[32*s+i]+low[s], scale[s], 0, steps-1)
			at := &nibbles[s/2*32+i]
			if s%2 == 0 {
				*at = byte(q & 15)
			} else {
				*at |= byte(q & 15 << 4)
			}
			if fifth != nil {
				fifth[i] |= byte(q >> 4 << s)
			}
		}
	}
}

// putScaleMin is the inverse of scaleMin on zeroed bytes.
func putScaleMin(b []byte, s int, scale, low byte) {
	if s < 4 {
		b[s] |= scale
		b[s+4] |= low
		return
	}
	b[s+4] = scale&15 | low<<4
	b[s-4] |= scale >> 4 << 6
	b[s] |= low >> 4 << 6
}

func quantizeQ6K(v []float32, b []byte) {
	clear(b)
	var scale [16]float32
	for s := range 16 {
		scale[s] = extreme(v[16*s:][:16]) / -32
	}
	d := putHalf(b, 208, extreme(scale[:])/-128)
	for s := range 16 {
		sc := step(scale[s], d, -128, 127)
		b[192+s] = byte(sc)
		scale[s] = d * float32(sc)
	}
	for k := range 256 {
		half, run, i := k/128, k%128/32, k%32
		q := step(v[k], scale[k/16], -32, 31) + 32
		b[half*64+run%2*32+i] |= byte(q & 15 << (run / 2 * 4))
		b[128+half*32+i] |= byte(q >> 4 << (run * 2))
	}
}
