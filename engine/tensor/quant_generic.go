package tensor

import "unsafe"

// quantKernel multiplies npanel panels of quantised weights at w by one tile of
// activations at a: nblk blocks of 32 columns. Token t's values go to c plus t
// times ldc bytes, R floats a panel. Weights are prefetched ahead bytes before
// they are needed.
type quantKernel func(w, a *byte, c *float32, nblk, npanel, ldc, ahead int)

// quantTable holds the functions of one level on quantised weights.
type quantTable struct {
	mul quantKernels
	// activation quantises a tile of n tokens, which lie in x stride floats apart.
	activation func(dst []byte, x []float32, stride, cols, n int)
	// wide is for many tokens; nil if the level has nothing of the kind.
	wide *wideTable
	// ahead is the distance in bytes at which this processor's kernels prefetch.
	ahead int
}

// quantKernels holds the kernels of each quantised type.
type quantKernels [Q6_K + 1]quantTiles

// quantTiles holds a kernel for each tile size; a nil one is a size without kernel.
type quantTiles [largestQuantTile + 1]quantKernel

const largestQuantTile = 12

// genericQuantTable computes on the panels of any level.
func genericQuantTable(level Level) quantTable {
	table := quantTable{activation: genericActivation(level)}
	for _, t := range Types() {
		if t.isFloat() {
			continue
		}
		for _, n := range []int{1, 2, 3, 4, 6, 8, 12} {
			table.mul[t][n] = genericQuantMul(level, t, n)
		}
	}
	return table
}

func genericActivation(level Level) func(dst []byte, x []float32, stride, cols, n int) {
	return func(dst []byte, x []float32, stride, cols, n int) {
		for i := range n {
			quantizeActivation(level, dst, x[i*stride:][:cols], n, i)
		}
	}
}

func genericQuantMul(level Level, t Type, n int) quantKernel {
	R := level.PanelRows()
	return func(w, a *byte, c *float32, nblk, npanel, ldc, _ int) {
		f := t.packedFormat()
		panel := R * (nblk*f.block + nblk/8*f.head)
		act := unsafe.Slice(a, nblk*actWords*4*n)
		for p := range npanel {
			var acc [largestQuantTile][largestR]float32
			weights := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(w), p*panel)), panel)
			genericPanel(&acc, t, R, weights, act, nblk, n)
			for i := range n {
				copy(unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(c), i*ldc+p*R*4)), R), acc[i][:R])
			}
		}
	}
}

// largestR is the most rows in a panel at any level.
const largestR = 16

// genericBlock is one block of a panel, decoded.
type genericBlock struct {
	q     [largestR][32]int32 // weights before scaling
	scale [2][largestR]float32
	low   [largestR]float32 // what to add times the activations' sum
}

// genericPanel adds the products of one panel of R rows to acc.
func genericPanel(acc *[largestQuantTile][largestR]float32, t Type, R int, w, act []byte, nblk, n int) {
	f := t.packedFormat()
	var b genericBlock
	var head []byte
	for k := range nblk {
		if f.head != 0 && k%8 == 0 {
			head, w = w[:R*f.head], w[R*f.head:]
		}
		b.decode(t, R, head, w[:R*f.block])
		w = w[R*f.block:]
		a := act[k*actWords*4*n:][:actWords*4*n]
		for i := range n {
			var q [32]int32
			for k := range q {
				q[k] = int32(int8(a[4*((actQuants+k/4)*n+i)+k%4]))
			}
			d, sum := floatAt(a, actScale*n+i), floatAt(a, actSum*n+i)
			for r := range R {
				first, second := dotHalves(&b.q[r], &q)
				if t == Q6_K {
					v := float32(first)*b.scale[0][r] + float32(second)*b.scale[1][r]
					acc[i][r] += v * d
					continue
				}
				acc[i][r] += float32(first+second) * b.scale[0][r] * d
				acc[i][r] += b.low[r] * sum
			}
		}
	}
}

// dotHalves returns the dot products of the first and of the last 16 elements.
func dotHalves(a, b *[32]int32) (first, second int32) {
	for i := range 16 {
		first += a[i] * b[i]
		second += a[i+16] * b[i+16]
	}
	return first, second
}

func floatAt(b []byte, i int) float32 {
	return *(*float32)(unsafe.Pointer(&b[4*i]))
}

// decode unpacks one block.
func (b *genericBlock) decode(t Type, R int, head, w []byte) {
	offset, quants := int32(0), w[2*R:]
	for r := range R {
		switch t {
		case Q4_0, Q5_0, Q8_0:
			b.scale[0][r] = halfAt(w, 2*r)
		case Q4_1, Q5_1:
			b.scale[0][r], b.low[r] = halfAt(w, 2*r), halfAt(w, 2*(R+r))
		case Q4_K, Q5_K:
			b.scale[0][r] = halfAt(head, 2*r) * float32(w[r])
			b.low[r] = -halfAt(head, 2*(R+r)) * float32(w[R+r])
		case Q6_K:
			d := halfAt(head, 2*r)
			b.scale[0][r], b.scale[1][r] = d*float32(int8(w[r])), d*float32(int8(w[R+r]))
		}
	}
	switch t {
	case Q4_0:
		offset = 8
	case Q5_0:
		offset = 16
	case Q6_K:
		offset = 32
	case Q8_0:
		offset = 128
	case Q4_1, Q5_1:
		quants = w[4*R:]
	}
	upper := quants
	switch t {
	case Q5_0, Q5_1, Q5_K:
		quants = quants[4*R:]
	case Q6_K:
		quants = quants[8*R:]
	}
	for r := range R {
		for k := range 32 {
			b.q[r][k] = quantAt(t, upper, quants, R, r, k) - offset
		}
	}
}

// quantAt returns the quant of row r and column k of a block, whose nibbles or
// bytes are in quants and further bits in upper.
func quantAt(t Type, upper, quants []byte, R, r, k int) int32 {
	g, at := k/4, 4*r+k%4
	if t == Q8_0 {
		return int32(quants[4*R*g+at])
	}
	q := int32(quants[4*R*(g%4)+at] >> (g / 4 * 4) & 15)
	switch t {
	case Q5_0, Q5_1, Q5_K:
		q |= int32(upper[at]>>g&1) << 4
	case Q6_K:
		q |= int32(upper[4*R*(g%2)+at]>>(g/2*2)&3) << 4
	}
	return q
}
