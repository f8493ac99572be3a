package tensor

import (
	"encoding/binary"
	"math"
	"sync"
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
	c.scratch = &sync.Pool{New: func() any { return new(scratch) }}
	return &c
}

// scratch is what one call works in.
type scratch struct {
	rows []float32
	one  []byte
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

// mulSplit multiplies the panels in w by one tile of n rows and adds each pair of results.
func (k *Kernels) mulSplit(dst []float32, ldc int, kernel quantKernel, w, a []byte, blocks, panels, n int) {
	s := k.scratch.Get().(*scratch)
	defer k.scratch.Put(s)
	width := panels * k.R
	c := s.floats(n * width)
	kernel(unsafe.SliceData(w), unsafe.SliceData(a), &c[0], blocks, panels, width*4, k.quant.ahead)
	for t := range n / 2 {
		row := dst[t*ldc:][:width]
		copy(row, c[2*t*width:][:width])
		k.ops.add(row, c[(2*t+1)*width:][:width])
	}
}
