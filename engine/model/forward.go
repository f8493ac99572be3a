package model

import "onebit/engine/tensor"

// run is a worker's part of the pass.
func (p *pass) run(w *tensor.Worker) {
	m := p.m
	h := &m.work.hands[w.ID]
	h.pass, h.w = p, w
	last := len(m.layers) - 1
	j := joint{embed: true}
	n := len(p.ids)
	for i := range m.layers {
		l := &m.layers[i]
		j.norm = l.attnNorm
		h.project(i, &j)
		if i == last {
			// From here on there are only the rows that get logits.
			if n = len(p.rows); n == 0 {
				return
			}
		}
		h.attend(i)
		h.attentionOut(l, n)
		h.feedForward(l, n, i == last)
		j = joint{bias: l.downBias, post: l.ffnPost}
	}
	j.norm = m.outNorm
	h.logitRows(&j)
}

// project computes the queries, keys and values of a layer: queries end up
// rotated in turned, keys and values in the sessions' pages.
func (h *hand) project(layer int, j *joint) {
	m, ws := h.m, &h.m.work
	o := &m.layers[layer].qkv
	pr := product{op: o, n: len(h.ids), in: h.joined(o, len(h.ids), j)}
	for i, dst := range [][]float32{ws.q, ws.k, ws.v} {
		pr.out[i] = output{dst, o.mats[i].PaddedRows()}
	}
	if len(h.ids) <= smallBatch {
		h.multiply(&pr, func(s share, _, _ int) { h.finishHeads(layer, s) })
		h.w.Barrier()
		return
	}
	h.multiply(&pr, nil)
	h.w.Barrier()
	const tokens = 8
	heads := m.p.heads + 2*m.p.kvHeads
	chunks := (pr.n + tokens - 1) / tokens
	parts := h.parts(chunks, heads)
	h.each(chunks*parts, func(i int) {
		from := i / parts * tokens
		to := min(from+tokens, pr.n)
		for at := heads * (i % parts) / parts; at < heads*(i%parts+1)/parts; at++ {
			h.finishHead(layer, at, from, to)
		}
	})
	h.w.Barrier()
}

// parts says into how many parts to cut each of some pieces of work, at most most,
// so that there are enough for all workers.
func (h *hand) parts(pieces, most int) int {
	const perWorker = 3
	return min(most, (perWorker*h.w.N+pieces-1)/pieces)
}

// finishHeads finishes the heads whose last rows are in a share. Whoever
// projects the last row of a head finishes it.
func (h *hand) finishHeads(layer int, s share) {
	m := h.m
	r, dim := m.k.R, m.p.headDim
	heads, base := m.p.heads, 0
	if s.mat > 0 {
		heads, base = m.p.kvHeads, m.p.heads+(s.mat-1)*m.p.kvHeads
	}
	from, to := s.from*r, min(s.to*r, heads*dim)
	for head := from / dim; head*dim < to; head++ {
		rows := min(to, (head+1)*dim) - max(from, head*dim)
		c := &m.work.ready[base+head]
		if c.Add(int32(rows)) < int32(dim) {
			continue
		}
		c.Store(0)
		h.finishHead(layer, base+head, 0, len(h.ids))
	}
}

// finishHead finishes the rows from..to-1 of one head; heads are numbered
// through queries, keys and values.
func (h *hand) finishHead(layer, head, from, to int) {
	prm := h.m.p
	switch {
	case head < prm.heads:
		h.finishQuery(layer, head, from, to)
	case head < prm.heads+prm.kvHeads:
		h.finishKey(layer, head-prm.heads, from, to)
	default:
		h.finishValue(layer, head-prm.heads-prm.kvHeads, from, to)
	}
}

// attentionOut projects n rows of what attention mixed.
func (h *hand) attentionOut(l *layer, n int) {
	ws := &h.m.work
	pr := product{op: &l.out, n: n, in: h.pack(&l.out, n, ws.mixed, h.m.p.queryWidth())}
	pr.out[0] = output{ws.added, l.out.mats[0].PaddedRows()}
	h.multiply(&pr, nil)
	h.w.Barrier()
}

// feedForward runs the second half of a layer on n rows. With thin set, they
// are those that get logits.
func (h *hand) feedForward(l *layer, n int, thin bool) {
	ws := &h.m.work
	ld := l.gateUp.mats[0].PaddedRows()
	j := joint{bias: l.oBias, post: l.attnPost, norm: l.ffnNorm, thin: thin}
	pr := product{op: &l.gateUp, n: n, in: h.joined(&l.gateUp, n, &j)}
	pr.out[0], pr.out[1] = output{ws.gate, ld}, output{ws.up, ld}
	h.multiply(&pr, func(s share, from, to int) {
		for row := from; row < to; row++ {
			h.gate(l, s, row)
		}
		if l.down.packs {
			h.packGate(&l.down, s, n, from, to)
		}
	})
	h.w.Barrier()
	down := product{op: &l.down, n: n, in: tensor.Activations{X: ws.gate, Stride: ld, Packed: ws.gated}}
	down.out[0] = output{ws.added, l.down.mats[0].PaddedRows()}
	h.multiply(&down, nil)
	h.w.Barrier()
}

// gate applies the activation to a share of one row, in place of the gate.
func (h *hand) gate(l *layer, s share, row int) {
	m := h.m
	ld := l.gateUp.mats[0].PaddedRows()
	from, to := s.from*m.k.R, min(s.to*m.k.R, m.p.ffn)
	gate, up := m.work.gate[row*ld+from:row*ld+to], m.work.up[row*ld+from:row*ld+to]
	if l.gateBias != nil {
		m.k.Add(gate, l.gateBias[from:to])
	}
	if l.upBias != nil {
		m.k.Add(up, l.upBias[from:to])
	}
	if m.p.gelu {
		m.k.GELUMul(gate, gate, up)
	} else {
		m.k.SiLUMul(gate, gate, up)
	}
}

// packGate quantises a share of the rows from..to-1 of n, which are whole tiles,
// as the input of an op while it is still in the worker's cache.
func (h *hand) packGate(o *op, s share, n, from, to int) {
	m := h.m
	ld := m.layers[0].gateUp.mats[0].PaddedRows()
	_, full := m.k.TileSpan(maxBatch, 0)
	for i := from / full; i < m.k.Tiles(n); i++ {
		if first, _ := m.k.TileSpan(n, i); first >= to {
			return
		}
		m.packer(o).PackColumns(m.work.gated, m.work.gate, ld, n, m.p.ffn, i, s.from*m.k.R, min(s.to*m.k.R, m.p.ffn))
	}
}

// logitRows computes the logits of the rows that want them.
func (h *hand) logitRows(j *joint) {
	m := h.m
	n := len(h.rows)
	dst := h.logits[h.first*h.stride:]
	pr := product{op: &m.head, n: n, in: h.joined(&m.head, n, j)}
	pr.out[0] = output{dst, h.stride}
	h.multiply(&pr, func(s share, first, last int) {
		if m.head.bias == nil && m.p.logitCap == 0 {
			return
		}
		from, to := s.from*m.k.R, min(s.to*m.k.R, m.p.vocab)
		for row := first; row < last; row++ {
			part := dst[row*h.stride+from : row*h.stride+to]
			if m.head.bias != nil {
				m.k.Add(part, m.head.bias[from:to])
			}
			if m.p.logitCap != 0 {
				m.k.Softcap(part, m.p.logitCap)
			}
		}
	})
}

// joint is what happens between two blocks: what the one computed is added
// to the stream, and the other gets the stream normalised.
type joint struct {
	embed bool      // the stream begins here
	thin  bool      // row i goes on with the stream of the i-th row that gets logits
	bias  []float32 // of what was computed, nil = none
	post  []float32 // its norm, nil = none
	norm  []float32 // of the stream
}

// stream is one row at a joint.
type stream struct {
	id    int32
	x, to []float32 // before and after
	added []float32 // what the block computed
	norm  []float32 // what the next block gets
}

// join does a joint for one row.
func (m *Model) join(j *joint, s stream) {
	k, eps := m.k, m.p.eps
	switch {
	case j.embed:
		m.embed.read(s.id, s.to)
		if scale := m.p.embedScale; scale != 1 {
			k.Scale(s.to, scale)
		}
	case j.bias != nil || j.post != nil:
		copy(s.norm, s.added)
		if j.bias != nil {
			k.Add(s.norm, j.bias)
		}
		if j.post != nil {
			k.RMSNorm(s.norm, s.norm, j.post, eps)
		}
		copy(s.to, s.x)
		k.Add(s.to, s.norm)
	default:
		copy(s.to, s.x)
		k.Add(s.to, s.added)
	}
	k.RMSNorm(s.norm, s.to, j.norm, eps)
}

// joined does a joint for n rows and returns the input of an op. Every worker
// of a lean pass keeps the whole stream for itself; otherwise workers share
// the rows, tile by tile where there are enough of them.
func (h *hand) joined(o *op, n int, j *joint) tensor.Activations {
	m, ws := h.m, &h.m.work
	width, ld := m.p.width, m.layers[0].out.mats[0].PaddedRows()
	x, to, norm, packed := ws.x, ws.x, ws.norm, ws.packed
	switch {
	case h.lean:
		x, to, norm, packed = h.x, h.x, h.norm, h.packed
	case j.thin:
		to = ws.y
	case o == &m.head:
		x, to = ws.y, ws.y
	}
	row := func(r int) {
		from := r
		if j.thin {
			from = h.rows[r] // never before r, so that a lean pass moves rows down
		}
		m.join(j, stream{
			id: h.ids[r], x: x[from*width:][:width], to: to[r*width:][:width],
			added: ws.added[r*ld:][:width], norm: norm[r*width:][:width],
		})
	}
	in := tensor.Activations{X: norm, Stride: width, Packed: packed}
	if h.lean {
		for r := range n {
			row(r)
		}
		for i := range h.tiles(o, n) {
			m.packer(o).PackActivations(packed, norm, width, n, width, i)
		}
		return in
	}
	tiles := m.k.Tiles(n)
	if tiles < h.w.N { // too few to keep the workers busy
		h.each(n, row)
		h.w.Barrier()
		if o.packs {
			h.packShared(o, norm, width, n)
		}
		return in
	}
	h.each(tiles, func(i int) {
		for r, end := m.k.TileSpan(n, i); r < end; r++ {
			row(r)
		}
		if o.packs {
			m.packer(o).PackActivations(packed, norm, width, n, width, i)
		}
	})
	h.w.Barrier()
	return in
}

// tiles is how many tiles of activations an op wants packed for n rows.
func (p *pass) tiles(o *op, n int) int {
	if !o.packs {
		return 0
	}
	return p.m.k.Tiles(n)
}

// pack returns n rows of x, stride floats apart, as the input of an op.
func (h *hand) pack(o *op, n int, x []float32, stride int) tensor.Activations {
	k := h.m.packer(o)
	in := tensor.Activations{X: x, Stride: stride, Packed: h.m.work.packed}
	switch {
	case !o.packs:
	case h.lean:
		in.Packed = h.packed
		for i := range k.Tiles(n) {
			k.PackActivations(in.Packed, x, stride, n, o.cols(), i)
		}
	default:
		h.packShared(o, x, stride, n)
	}
	return in
}

// packShared quantises n rows of x as the input of an op, shared out among the workers.
func (h *hand) packShared(o *op, x []float32, stride, n int) {
	const least = 4 * blockRows // columns that are worth a turn
	k, cols := h.m.packer(o), o.cols()
	tiles := k.Tiles(n)
	parts := h.parts(tiles, max(1, cols/least))
	blocks := cols / blockRows
	h.each(tiles*parts, func(i int) {
		part := i % parts
		k.PackColumns(h.m.work.packed, x, stride, n, cols, i/parts, blocks*part/parts*blockRows, blocks*(part+1)/parts*blockRows)
	})
	h.w.Barrier()
}

// product is the products of an op with n rows of input.
type product struct {
	op  *op
	in  tensor.Activations
	n   int
	out [3]output // of each matrix
}

// output is where the rows of a product go.
type output struct {
	dst []float32
	ld  int // floats from one row to the next
}

// multiply computes products. done, when set, is called for each share and
// the rows of it that are finished.
func (h *hand) multiply(pr *product, done func(s share, from, to int)) {
	shares := pr.op.prefill
	if len(h.ids) <= smallBatch {
		shares = pr.op.decode
	}
	blocks, rows := h.blocks(pr)
	h.each(len(shares)*blocks, func(i int) {
		s, from := shares[i/blocks], i%blocks*rows
		to := min(from+rows, pr.n)
		pr.compute(h.m.k, s, from, to)
		if pr.op.twins {
			s.mat = 1
			pr.compute(h.m.k, s, from, to)
		}
		if done != nil {
			done(s, from, to)
		}
	})
}

// blocks says into how many blocks of how many rows the input of an op is cut,
// because its panels alone are too few to keep the workers busy. A block is
// some full tiles, so that its tiles are those of the whole batch. A small pass is
// never cut: it counts the finished rows of a head, not those of each token.
func (p *pass) blocks(pr *product) (blocks, rows int) {
	const perWorker = 6
	if len(p.ids) <= smallBatch {
		return 1, pr.n
	}
	_, tile := p.m.k.TileSpan(maxBatch, 0)
	tiles, panels := (pr.n+tile-1)/tile, max(1, pr.op.panels()/pr.op.together)
	want := min(tiles, (perWorker*p.workers+panels-1)/panels)
	each := (tiles + want - 1) / want
	return (tiles + each - 1) / each, each * tile
}

// compute multiplies the panels of a share by some rows, which begin with a tile.
func (pr *product) compute(k *tensor.Kernels, s share, from, to int) {
	m, out, in := pr.op.mats[s.mat], pr.out[s.mat], pr.in
	if from > 0 {
		in.X = in.X[from*in.Stride:]
		if pr.op.packs {
			in.Packed = in.Packed[k.ActivationBytes(tensor.Q8_0, from, m.Cols()):]
		}
	}
	k.MatMul(out.dst[from*out.ld:], out.ld, m, in, to-from, s.from, s.to)
}
