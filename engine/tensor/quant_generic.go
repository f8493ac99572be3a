package tensor

import "unsafe"

// quantKernel multiplies npanel panels of quantised weights at w by one tile of
// activations at a: nblk blocks of 32 columns. Token t's values go to c plus t
// times ldc bytes, R floats a panel; only the first rows tokens are stored.
type quantKernel func(w, a *byte, c *float32, nblk, npanel, ldc, rows int)

// quantTable holds the functions of one level on quantised weights.
type quantTable struct {
	mul quantKernels
	// activation quantises the live tokens of a tile, which lie in x stride
	// floats apart.
	activation func(dst []byte, x []float32, stride, cols int, t tile)
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

func genericActivation(level Level) func(dst []byte, x []float32, stride, cols int, t tile) {
	return func(dst []byte, x []float32, stride, cols int, t tile) {
		for i := range t.live {
			quantizeActivation(level, dst, x[i*stride:][:cols], t.n, i)
		}
	}
}

func genericQuantMul(level Level, t Type, n int) quantKernel {
	R := level.PanelRows()
	return func(w, a *byte, c *float32, nblk, npanel, ldc, rows int) {
		f := t.packedFormat()
		panel := R * (nblk*f.block + nblk/8*f.head)
		act := unsafe.Slice(a, nblk*actWords*4*n)
		for p := range npanel {
			weights := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(w), p*panel)), panel)
			for i := range rows {
				out := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(c), i*ldc+p*R*4)), R)
				clear(out)
			}
			genericPanel(level, t, weights, act, nblk, n, func(i, r int) *float32 {
				return (*float32)(unsafe.Add(unsafe.Pointer(c), i*ldc+p*R*4+r*4))
			}, rows)
		}
	}
}

// genericBlock is one block of a panel, decoded.
type genericBlock struct {
	q     [32][16]int32 // weights before scaling, by column and row
	scale [2][16]float32
	low   [16]float32 // what to add times the activations' sum
}

// genericPanel adds the products of one panel to the values that at points to.
func genericPanel(level Level, t Type, w, act []byte, nblk, n int, at func(i, r int) *float32, rows int) {
	f, R := t.packedFormat(), level.PanelRows()
	var b genericBlock
	var head []byte
	for k := range nblk {
		if f.head != 0 && k%8 == 0 {
			head, w = w[:R*f.head], w[R*f.head:]
		}
		b.decode(level, t, head, w[:R*f.block])
		w = w[R*f.block:]
		a := act[k*actWords*4*n:][:actWords*4*n]
		for i := range rows {
			d, sum := floatAt(a, actScale*n+i), floatAt(a, actSum*n+i)
			for r := range R {
				var dot [2]int32
				for g := range 8 {
					q := a[4*((actQuants+g)*n+i):][:4]
					dot[g/4] += b.q[4*g][r]*int32(int8(q[0])) + b.q[4*g+1][r]*int32(int8(q[1])) +
						b.q[4*g+2][r]*int32(int8(q[2])) + b.q[4*g+3][r]*int32(int8(q[3]))
				}
				c := at(i, r)
				if t == Q6_K {
					v := float32(dot[0])*b.scale[0][r] + float32(dot[1])*b.scale[1][r]
					*c += v * d
					continue
				}
				*c += float32(dot[0]+dot[1]) * b.scale[0][r] * d
				*c += b.low[r] * sum
			}
		}
	}
}

func floatAt(b []byte, i int) float32 {
	return *(*float32)(unsafe.Pointer(&b[4*i]))
}

// decode unpacks one block.
func (b *genericBlock) decode(level Level, t Type, head, w []byte) {
	R := level.PanelRows()
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
	case Q4_1, Q5_1:
		quants = w[4*R:]
	}
	for k := range 32 {
		g, i := k/4, k%4
		for r := range R {
			at := 4*r + i
			if t == Q8_0 {
				b.q[k][r] = int32(quants[4*R*g+at]) - 128
				continue
			}
			q := int32(quants[4*R*(g%4)+at] >> (g / 4 * 4) & 15)
			switch t {
			case Q5_0, Q5_1, Q5_K:
				q |= int32(quants[16*R+at]>>g&1) << 4
			case Q6_K:
				q |= int32(quants[16*R+4*R*(g%2)+at]>>(g/2*2)&3) << 4
			}
			b.q[k][r] = q - offset
		}
	}
}
