package tensor

import "unsafe"

// chunkBytes is about how many bytes of weights stay in a core's cache while
// every tile of the activations passes over them.
const chunkBytes = 200 << 10

// MatMul computes dst[t*ldc+row] = sum over the columns of m[row] * token t for
// the rows of the panels panelFrom..panelTo-1. Whole panels are written: ldc
// must be at least m.PaddedRows(), and dst hold all tokens. For quantised types
// act.Packed must hold every tile of this number of tokens, packed at the same
// level; otherwise act.X is read. A row's result has the same bits whatever the
// number of tokens. Calls for different panels may run at the same time.
func (k *Kernels) MatMul(dst []float32, ldc int, m *Matrix, act Activations, tokens, panelFrom, panelTo int) {
	if tokens <= 0 || panelFrom >= panelTo {
		return
	}
	if m.level != k.Level || panelFrom < 0 || panelTo > m.Panels() {
		panic("tensor: MatMul of a foreign matrix or of panels out of range")
	}
	_ = dst[(tokens-1)*ldc+panelTo*m.r-1]
	if m.typ.isFloat() {
		k.matMulFloat(m.typ, floatJob{
			dst: dst[panelFrom*m.r:], ldc: ldc,
			w: unsafe.Pointer(&m.data[panelFrom*m.panel]), panels: panelTo - panelFrom,
			depth: m.cols, stride: m.cols * m.r,
			x: act.X, lda: act.Stride, tokens: tokens,
		})
		return
	}
	done := panelFrom // panels before it are done for the full tiles
	if full := k.wideTiles(tokens); full > 0 && m.typ == Q8_0 {
		done += (panelTo - panelFrom) &^ (widePanels - 1)
		k.mulWide(dst, ldc, m, act.Packed, full, panelFrom, done)
		k.mulTiles(dst, ldc, m, act.Packed, tokens, full, panelFrom, done)
	}
	k.mulTiles(dst, ldc, m, act.Packed, tokens, 0, done, panelTo)
}

// mulTiles multiplies the panels panelFrom..panelTo-1 by the tiles of a batch, beginning with tile first.
func (k *Kernels) mulTiles(dst []float32, ldc int, m *Matrix, packed []byte, tokens, first, panelFrom, panelTo int) {
	step := max(1, chunkBytes/m.panel)
	for p := panelFrom; p < panelTo; p += step {
		n := min(step, panelTo-p)
		w := m.data[p*m.panel:][:n*m.panel]
		for i := first; i < k.Tiles(tokens); i++ {
			t := k.tile(tokens, i)
			a := packed[k.packedBytes(t.from, m.cols):][:t.n*(m.cols/32)*actWords*4]
			k.mulTile(dst[t.from/k.parts*ldc+p*m.r:], ldc, m, w, a, t.n)
		}
	}
}

// mulTile multiplies the panels in w by a tile of n rows.
func (k *Kernels) mulTile(dst []float32, ldc int, m *Matrix, w, a []byte, n int) {
	kernel, blocks, panels := k.quant.mul[m.typ][n], m.cols/32, len(w)/m.panel
	if k.parts == 1 {
		kernel(unsafe.SliceData(w), unsafe.SliceData(a), &dst[0], blocks, panels, ldc*4, k.quant.ahead)
		return
	}
	s := k.scratch.Get().(*scratch)
	defer k.scratch.Put(s)
	k.rows(s, dst, ldc, panels*k.R, n, func(c *float32, ldc int) {
		kernel(unsafe.SliceData(w), unsafe.SliceData(a), c, blocks, panels, ldc*4, k.quant.ahead)
	})
}
