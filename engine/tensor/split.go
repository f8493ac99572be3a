package tensor

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// Split returns kernels that quantise activations in two parts: a vector becomes the int8 form of itself and the int8
// form of what that leaves over, so that its error is about 250 times smaller. Products with quantised weights take
// the parts as two tokens and add their results; that doubles the arithmetic, not the bytes of weights that are read,
// so that one token costs hardly more. Small models want it: rounding errors average out over the width of a model,
// and theirs is small. Matrices are the same for both kinds; packed activations are not.
func (k *Kernels) Split() *Kernels {
	c := *k
	c.parts = 2
	return &c
}

// scratch is what one call works in.
type scratch struct {
	rows []float32
	one  []byte
	work []byte
}

// floats returns n floats of any content.
func (s *scratch) floats(n int) []float32 {
	if cap(s.rows) < n {
		s.rows = make([]float32, n)
	}
	return s.rows[:n]
}

// bytes returns n bytes of any content.
func (s *scratch) bytes(n int) []byte {
	if cap(s.one) < n {
		s.one = make([]byte, n)
	}
	return s.one[:n]
}

// packSplit packs a tile of n rows, which are n/2 tokens of x and what quantising leaves of each.
func (k *Kernels) packSplit(dst []byte, x []float32, stride, cols, n int) {
	s := k.scratch.Get().(*scratch)
	defer k.scratch.Put(s)
	rows, one := s.floats(n*cols), s.bytes(cols/32*actWords*4)
	for t := range n / 2 {
		row, rest := rows[2*t*cols:][:cols], rows[(2*t+1)*cols:][:cols]
		copy(row, x[t*stride:][:cols])
		k.quant.activation(one, row, cols, cols, 1)
		remainder(rest, row, one)
	}
	k.quant.activation(dst, rows, cols, cols, n)
}

// remainder stores in rest what the packed form of one token lacks of x. Where it is not a number, the packed form
// says so already.
func remainder(rest, x []float32, packed []byte) {
	for ; len(x) >= 32; x, rest, packed = x[32:], rest[32:], packed[actWords*4:] {
		d := math.Float32frombits(binary.LittleEndian.Uint32(packed[actScale*4:]))
		q := (*[32]int8)(unsafe.Pointer(&packed[actQuants*4]))
		from, to := (*[32]float32)(x), (*[32]float32)(rest)
		if d-d != 0 { // infinite or NaN
			*to = [32]float32{}
			continue
		}
		for i, v := range from {
			to[i] = v - d*float32(q[i])
		}
	}
}

// rows calls mul, which computes n rows of width values ldc floats apart, and stores them in dst: as they are, or
// the sums of pairs where activations have two parts.
func (k *Kernels) rows(s *scratch, dst []float32, ldc, width, n int, mul func(c *float32, ldc int)) {
	if k.parts == 1 {
		mul(&dst[0], ldc)
		return
	}
	c := s.floats(n * width)
	mul(&c[0], width)
	for t := range n / 2 {
		row := dst[t*ldc:][:width]
		copy(row, c[2*t*width:][:width])
		k.ops.add(row, c[(2*t+1)*width:][:width])
	}
}
