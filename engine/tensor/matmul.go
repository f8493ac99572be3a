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
	step := max(1, chunkBytes/m.panel)
	for p := panelFrom; p < panelTo; p += step {
		n := min(step, panelTo-p)
		w := m.data[p*m.panel:][:n*m.panel]
		k.mulQuant(dst[p*m.r:], ldc, m, w, act.Packed, tokens)
	}
}

// mulQuant multiplies the panels in w by all tiles of a batch.
func (k *Kernels) mulQuant(dst []float32, ldc int, m *Matrix, w, packed []byte, tokens int) {
	perToken := m.cols / 32 * actWords * 4
	for i := range k.Tiles(tokens) {
		t := k.tile(tokens, i)
		a := packed[t.from*perToken:][:t.n*perToken]
		kernel := k.quant.mul[m.typ][t.n]
		if k.parts == 2 {
			k.mulSplit(dst[t.from/2*ldc:], ldc, kernel, w, a, m.cols/32, len(w)/m.panel, t.n)
			continue
		}
		kernel(unsafe.SliceData(w), unsafe.SliceData(a), &dst[t.from*ldc], m.cols/32, len(w)/m.panel, ldc*4, k.quant.ahead)
	}
}
