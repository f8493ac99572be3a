package tensor_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"onebit/engine/tensor"
)

// half reads a little-endian binary16 number.
func half(b []byte) float64 {
	var v [1]float32
	if err := tensor.Dequantize(tensor.F16, b[:2], v[:]); err != nil {
		panic(err)
	}
	return float64(v[0])
}

// termSize bounds the terms that make up a weight of a raw block.
func termSize(typ tensor.Type, b []byte) float64 {
	at := halves(typ)
	d, low := math.Abs(half(b[at[0]:])), 0.0
	if len(at) == 2 {
		low = math.Abs(half(b[at[1]:]))
	}
	switch typ {
	case tensor.Q4_0, tensor.Q4_1:
		return 15*d + low
	case tensor.Q5_0, tensor.Q5_1:
		return 31*d + low
	case tensor.Q8_0:
		return 128 * d
	case tensor.Q4_K:
		return 63 * (15*d + low)
	case tensor.Q5_K:
		return 63 * (31*d + low)
	}
	return 128 * 32 * d // Q6_K
}

// FuzzRawWeights feeds the blocks of a hostile file to every level. All must agree
// with the plain reading of the blocks; with scales that are no numbers they need
// only not crash.
func FuzzRawWeights(f *testing.F) {
	for i := range quantised {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), randomRaw(quantised[i], 512, rand.New(rand.NewPCG(12, uint64(i)))))
	}
	f.Add(uint8(5), []byte{0xff, 0xff, 0xff, 0x7c, 0xff})
	x := randomFloats(7*512, rand.New(rand.NewPCG(13, 13)))
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		typ := quantised[int(kind)%len(quantised)]
		elems, size, _ := typ.Block()
		p := quantProduct{typ: typ, rows: 9, cols: 512, tokens: 7, x: x}
		p.raw = make([]byte, p.rows*p.cols/elems*size)
		copy(p.raw, data)
		finite := true
		for b := 0; b < len(p.raw); b += size {
			s := termSize(typ, p.raw[b:])
			finite = finite && s-s == 0
		}
		for _, level := range tensor.Levels() {
			k, err := tensor.For(level)
			if err != nil {
				t.Fatal(err)
			}
			if finite {
				p.check(t, k, func(block []byte) float64 { return termSize(typ, block) })
			} else {
				p.run(t, k)
			}
		}
	})
}
