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
	first, wide := 0, (panelTo-panelFrom)&^(widePanels-1) // what the wide kernel does: tiles before first of so many panels
	if k.quant.wide != nil && m.typ == Q8_0 && wide > 0 && tokens*k.parts/wideTokens >= wideLeast {
		first = tokens * k.parts / wideTokens
		k.mulWide(dst[panelFrom*m.r:], ldc, m, m.data[panelFrom*m.panel:][:wide*m.panel], act.Packed, first)
	}
	step := max(1, chunkBytes/m.panel)
	for p := panelFrom; p < panelTo; {
		if p == panelFrom+wide {
			first = 0
		}
		n := min(step, panelTo-p)
		if p < panelFrom+wide {
			n = min(n, panelFrom+wide-p)
		}
		k.mulQuant(dst[p*m.r:], ldc, m, m.data[p*m.panel:][:n*m.panel], act.Packed, tokens, first)
		p += n
	}
}

// mulQuant multiplies the panels in w by the tiles of a batch, beginning with tile first.
func (k *Kernels) mulQuant(dst []float32, ldc int, m *Matrix, w, packed []byte, tokens, first int) {
	if len(w) == 0 {
		return
	}
	for i := first; i < k.Tiles(tokens); i++ {
		t := k.tile(tokens, i)
		a := packed[k.packedBytes(t.from, m.cols):][:t.n*(m.cols/32)*actWords*4]
		kernel := k.quant.mul[m.typ][t.n]
		if k.parts == 2 {
			k.mulSplit(dst[t.from/2*ldc:], ldc, kernel, w, a, m.cols/32, len(w)/m.panel, t.n)
			continue
		}
		kernel(unsafe.SliceData(w), unsafe.SliceData(a), &dst[t.from*ldc], m.cols/32, len(w)/m.panel, ldc*4, k.quant.ahead)
	}
}

// mulSplit multiplies panels by one tile whose activations have two parts.
func (k *Kernels) mulSplit(dst []float32, ldc int, kernel quantKernel, w, a []byte, blocks, panels, n int) {
	s := k.scratch.Get().(*scratch)
	defer k.scratch.Put(s)
	k.rows(s, dst, ldc, panels*k.R, n, func(c *float32, ldc int) {
		kernel(unsafe.SliceData(w), unsafe.SliceData(a), c, blocks, panels, ldc*4, k.quant.ahead)
	})
}
