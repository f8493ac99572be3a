package model

import (
	"sync/atomic"

	"onebit/engine/tensor"
)

// workspace is the memory that passes work in. Rows are tokens of the batch.
type workspace struct {
	pass pass

	x, y    []float32 // [maxBatch][width] residual stream; y from the last layer's middle on
	norm    []float32 // [maxBatch][width]
	q, k, v []float32 // [maxBatch][padded rows] as projected
	turned  []float32 // [kvHeads][maxBatch][group][headDim] queries, rotated and scaled
	mixed   []float32 // [maxBatch][queryWidth] what attention returns
	added   []float32 // [maxBatch][padded width] what a block adds to the stream
	gate    []float32 // [maxBatch][padded ffn], also the input of down when that is float
	up      []float32 // [maxBatch][padded ffn]
	packed  []byte    // input of a product, quantised
	gated   []byte    // input of down, quantised

	partials []float32 // of attention that is shared out by pages
	ready    []counter // projected rows of each head: queries, keys, values
	hands    []hand
}

// counter is an atomic number alone on its cache line.
type counter struct {
	atomic.Int32
	_ [60]byte
}

// hand is one worker with the pass it works on and memory of its own.
type hand struct {
	*pass
	w *tensor.Worker

	x      []float32 // [leanBatch][width]
	norm   []float32 // [leanBatch][width]
	packed []byte
	attention
}

// init takes the memory from the model's arena.
func (ws *workspace) init(m *Model) {
	p, a, k := m.p, m.scratch, m.k
	pad := func(n int) int { return (n + k.R - 1) / k.R * k.R }
	packed := func(tokens, cols int) int {
		return k.ActivationBytes(tensor.Q8_0, tokens, (cols+blockRows-1)/blockRows*blockRows)
	}
	most := max(p.width, p.queryWidth())
	floats := func(n int) []float32 { return a.Floats(maxBatch * n) }
	ws.x, ws.y, ws.norm = floats(p.width), floats(p.width), floats(p.width)
	ws.q, ws.k, ws.v = floats(pad(p.queryWidth())), floats(pad(p.kvWidth())), floats(pad(p.kvWidth()))
	ws.turned, ws.mixed = floats(p.queryWidth()), floats(p.queryWidth())
	ws.added = floats(pad(p.width))
	ws.gate, ws.up = floats(pad(p.ffn)), floats(pad(p.ffn))
	ws.packed, ws.gated = a.Bytes(packed(maxBatch, most)), a.Bytes(packed(maxBatch, p.ffn))
	ws.ready = make([]counter, p.heads+2*p.kvHeads)
	ws.hands = make([]hand, m.team.Size())
	for i := range ws.hands {
		h := &ws.hands[i]
		h.x, h.norm = a.Floats(leanBatch*p.width), a.Floats(leanBatch*p.width)
		h.packed = a.Bytes(packed(leanBatch, most))
		h.attention = newAttention(a, m.pages)
	}
}

// begin prepares for a pass.
func (ws *workspace) begin() {
	for i := range ws.ready {
		ws.ready[i].Store(0)
	}
}

// each calls f for every number below n. The first ones belong to the workers
// in turn: everybody has to come by anyway, and asks nobody. The rest go to
// whoever is free.
func (h *hand) each(n int, f func(i int)) {
	if h.w.ID < n {
		f(h.w.ID)
	}
	h.w.Each(max(0, n-h.w.N), 1, func(i, _ int) { f(i + h.w.N) })
}
