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
	gate    []float32 // [maxBatch][padded ffn], also the input of down
	up      []float32 // [maxBatch][padded ffn]
	packed  []byte    // input of a product, quantised

	partials []float32 // of attention that is shared out by chunks
	missing  []counter // rows of each head that are not projected yet: queries, keys, values
	own      []bench
}

// counter is an atomic number alone on its cache line.
type counter struct {
	atomic.Int32
	_ [60]byte
}

// bench is the memory of one worker.
type bench struct {
	x      []float32 // [leanBatch][width]
	norm   []float32 // [leanBatch][width]
	packed []byte
	attention
}

// init takes the memory from the model's arena.
func (ws *workspace) init(m *Model) {
	p, a, k := m.p, m.scratch, m.k
	pad := func(n int) int { return (n + k.R - 1) / k.R * k.R }
	most := max(p.width, p.queryWidth(), p.ffn)
	packed := func(tokens int) int {
		return k.ActivationBytes(tensor.Q8_0, tokens, (most+31)/32*32)
	}
	floats := func(n int) []float32 { return a.Floats(maxBatch * n) }
	ws.x, ws.y, ws.norm = floats(p.width), floats(p.width), floats(p.width)
	ws.q, ws.k, ws.v = floats(pad(p.queryWidth())), floats(pad(p.kvWidth())), floats(pad(p.kvWidth()))
	ws.turned, ws.mixed = floats(p.queryWidth()), floats(p.queryWidth())
	ws.added = floats(pad(p.width))
	ws.gate, ws.up = floats(pad(p.ffn)), floats(pad(p.ffn))
	ws.packed = a.Bytes(packed(maxBatch))
	ws.missing = make([]counter, p.heads+2*p.kvHeads)
	ws.own = make([]bench, m.team.Size())
	for i := range ws.own {
		b := &ws.own[i]
		b.x, b.norm = a.Floats(leanBatch*p.width), a.Floats(leanBatch*p.width)
		b.packed = a.Bytes(packed(leanBatch))
		b.attention = newAttention(a, m.p, m.pages)
	}
}

// begin prepares for a pass.
func (ws *workspace) begin() {
	for i := range ws.missing {
		ws.missing[i].Store(0)
	}
}

// joint is what happens between two blocks: what the one computed is added
// to the stream, and the other gets the stream normalised.
type joint struct {
	embed bool      // the stream begins here
	bias  []float32 // of what was computed, nil = none
	post  []float32 // its norm, nil = none
	norm  []float32 // of the stream
}

// join does a joint for one row: x is the row's stream before, to the stream
// after, out the normalised stream.
func (p *pass) join(j *joint, id int32, x, to, added, out []float32) {
	m := p.m
	k, eps := m.k, m.p.eps
	switch {
	case j.embed:
		m.embed.read(id, to)
		if s := m.p.embedScale; s != 1 {
			k.Scale(to, s)
		}
	case j.bias != nil || j.post != nil:
		copy(out, added)
		if j.bias != nil {
			k.Add(out, j.bias)
		}
		if j.post != nil {
			k.RMSNorm(out, out, j.post, eps)
		}
		copy(to, x)
		k.Add(to, out)
	default:
		if &to[0] != &x[0] {
			copy(to, x)
		}
		k.Add(to, added)
	}
	k.RMSNorm(out, to, j.norm, eps)
}

// run is a worker's part of the pass.
func (p *pass) run(w *tensor.Worker) {
	m := p.m
	b := &m.work.own[w.ID]
	last := len(m.layers) - 1
	j := joint{embed: true}
	for i := range m.layers {
		l := &m.layers[i]
		j.norm = l.attnNorm
		p.project(w, b, i, &j)
		if i == last && len(p.rows) == 0 {
			return // only keys and values were wanted
		}
		p.attend(w, b, i)
		n := len(p.ids)
		if i == last {
			n = len(p.rows)
		}
		ws := &m.work
		in := p.pack(w, b, &l.out, n, ws.mixed, m.p.queryWidth())
		p.multiply(w, &l.out, in, n, [3]output{{ws.added, l.out.mats[0].PaddedRows()}}, nil)
		w.Barrier()
		p.feedForward(w, b, i, n)
		j = joint{bias: l.downBias, post: l.ffnPost}
	}
	j.norm = m.outNorm
	p.logitRows(w, b, &j)
}

// project computes the queries, keys and values of a layer: queries end up
// rotated in turned, keys and values in the sessions' pages.
func (p *pass) project(w *tensor.Worker, b *bench, layer int, j *joint) {
	m, ws := p.m, &p.m.work
	l := &m.layers[layer]
	n := len(p.ids)
	in := p.joined(w, b, &l.qkv, n, j, false)
	outs := [3]output{}
	for i, dst := range [][]float32{ws.q, ws.k, ws.v} {
		outs[i] = output{dst, l.qkv.mats[i].PaddedRows()}
	}
	if !p.lean {
		p.multiply(w, &l.qkv, in, n, outs, nil)
		w.Barrier()
		const tokens = 8
		w.Each(n, tokens, func(from, to int) {
			for head := range m.p.heads {
				p.finishQuery(layer, head, from, to)
			}
			for head := range m.p.kvHeads {
				p.finishKey(layer, head, from, to)
				p.finishValue(layer, head, from, to)
			}
		})
		w.Barrier()
		return
	}
	p.multiply(w, &l.qkv, in, n, outs, func(s share, _, _ int) { p.finishHeads(layer, s) })
	w.Barrier()
}

// finishHeads finishes the heads whose last rows are in a share. Whoever
// projects the last row of a head finishes it.
func (p *pass) finishHeads(layer int, s share) {
	m := p.m
	r, dim := m.k.R, m.p.headDim
	heads, base := m.p.heads, 0
	if s.mat > 0 {
		heads, base = m.p.kvHeads, m.p.heads+(s.mat-1)*m.p.kvHeads
	}
	from, to := s.from*r, min(s.to*r, heads*dim)
	for h := from / dim; h*dim < to; h++ {
		rows := min(to, (h+1)*dim) - max(from, h*dim)
		c := &m.work.missing[base+h]
		if c.Add(int32(rows)) < int32(dim) {
			continue
		}
		c.Store(0)
		switch s.mat {
		case 0:
			p.finishQuery(layer, h, 0, len(p.ids))
		case 1:
			p.finishKey(layer, h, 0, len(p.ids))
		default:
			p.finishValue(layer, h, 0, len(p.ids))
		}
	}
}

// feedForward runs the second half of a layer on n rows.
func (p *pass) feedForward(w *tensor.Worker, b *bench, layer, n int) {
	m, ws := p.m, &p.m.work
	l := &m.layers[layer]
	ld := l.gateUp.mats[0].PaddedRows()
	j := joint{bias: l.oBias, post: l.attnPost, norm: l.ffnNorm}
	in := p.joined(w, b, &l.gateUp, n, &j, layer == len(m.layers)-1)
	p.multiply(w, &l.gateUp, in, n, [3]output{{ws.gate, ld}, {ws.up, ld}}, func(s share, first, last int) {
		from, to := s.from*m.k.R, min(s.to*m.k.R, m.p.ffn)
		for row := first; row < last; row++ {
			gate, up := ws.gate[row*ld+from:row*ld+to], ws.up[row*ld+from:row*ld+to]
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
	})
	w.Barrier()
	in = p.pack(w, b, &l.down, n, ws.gate, ld)
	p.multiply(w, &l.down, in, n, [3]output{{ws.added, l.down.mats[0].PaddedRows()}}, nil)
	w.Barrier()
}

// logitRows computes the logits of the rows that want them.
func (p *pass) logitRows(w *tensor.Worker, b *bench, j *joint) {
	m := p.m
	n := len(p.rows)
	in := p.joined(w, b, &m.head, n, j, false)
	dst := p.logits[p.first*p.stride:]
	p.multiply(w, &m.head, in, n, [3]output{{dst, p.stride}}, func(s share, first, last int) {
		if m.head.bias == nil && m.p.logitCap == 0 {
			return
		}
		from, to := s.from*m.k.R, min(s.to*m.k.R, m.p.vocab)
		for row := first; row < last; row++ {
			part := dst[row*p.stride+from : row*p.stride+to]
			if m.head.bias != nil {
				m.k.Add(part, m.head.bias[from:to])
			}
			if m.p.logitCap != 0 {
				m.k.Softcap(part, m.p.logitCap)
			}
		}
	})
}

// joined does a joint for n rows and returns the input of an op. With thin
// set, row i continues the stream of the i-th row that gets logits. Every
// worker of a lean pass keeps the whole stream for itself; otherwise workers
// share the rows tile by tile.
func (p *pass) joined(w *tensor.Worker, b *bench, o *op, n int, j *joint, thin bool) tensor.Activations {
	m, ws := p.m, &p.m.work
	width, ld := m.p.width, m.layers[0].out.mats[0].PaddedRows()
	x, to, norm, packed := ws.x, ws.x, ws.norm, ws.packed
	switch {
	case p.lean:
		x, to, norm, packed = b.x, b.x, b.norm, b.packed
	case thin:
		to = ws.y
	case o == &m.head:
		x, to = ws.y, ws.y
	}
	row := func(r int) {
		from := r
		if thin {
			from = p.rows[r] // never before r, so that a lean pass moves rows down
		}
		p.join(j, p.ids[r], x[from*width:][:width], to[r*width:][:width], ws.added[r*ld:][:width], norm[r*width:][:width])
	}
	if p.lean {
		for r := range n {
			row(r)
		}
		for i := range p.tiles(o, n) {
			m.k.PackActivations(packed, norm, width, n, width, i)
		}
		return tensor.Activations{X: norm, Stride: width, Packed: packed}
	}
	each(w, m.k.Tiles(n), func(i int) {
		for r, end := m.k.TileSpan(n, i); r < end; r++ {
			row(r)
		}
		if o.packs {
			m.k.PackActivations(packed, norm, width, n, width, i)
		}
	})
	w.Barrier()
	return tensor.Activations{X: norm, Stride: width, Packed: packed}
}

// tiles is how many tiles of activations an op wants packed for n rows.
func (p *pass) tiles(o *op, n int) int {
	if !o.packs {
		return 0
	}
	return p.m.k.Tiles(n)
}

// pack returns n rows of x as the input of an op.
func (p *pass) pack(w *tensor.Worker, b *bench, o *op, n int, x []float32, stride int) tensor.Activations {
	k := p.m.k
	if !o.packs {
		return tensor.Activations{X: x, Stride: stride}
	}
	if p.lean {
		for i := range k.Tiles(n) {
			k.PackActivations(b.packed, x, stride, n, o.cols(), i)
		}
		return tensor.Activations{X: x, Stride: stride, Packed: b.packed}
	}
	packed := p.m.work.packed
	each(w, k.Tiles(n), func(i int) { k.PackActivations(packed, x, stride, n, o.cols(), i) })
	w.Barrier()
	return tensor.Activations{X: x, Stride: stride, Packed: packed}
}

// output is where the rows of a product go.
type output struct {
	dst []float32
	ld  int // floats from one row to the next
}

// multiply computes the products of an op with n rows of input. done, when
// set, is called for each share and the rows of it that are finished.
func (p *pass) multiply(w *tensor.Worker, o *op, in tensor.Activations, n int, outs [3]output, done func(s share, from, to int)) {
	shares := o.prefill
	if len(p.ids) <= smallBatch {
		shares = o.decode
	}
	blocks, rows := p.blocks(o, n)
	each(w, len(shares)*blocks, func(i int) {
		s, from := shares[i/blocks], i%blocks*rows
		to := min(from+rows, n)
		p.product(o, s.mat, s, in, from, to, outs)
		if o.twins {
			p.product(o, 1, s, in, from, to, outs)
		}
		if done != nil {
			done(s, from, to)
		}
	})
}

// each calls f for every number below n. The first ones belong to the workers
// in turn: everybody has to come by anyway, and asks nobody. The rest go to
// whoever is free.
func each(w *tensor.Worker, n int, f func(i int)) {
	if w.ID < n {
		f(w.ID)
	}
	w.Each(max(0, n-w.N), 1, func(i, _ int) { f(i + w.N) })
}

// blocks says into how many blocks of how many rows the input of an op is cut,
// because its panels alone are too few to keep the workers busy. A block is
// some full tiles, so that its tiles are those of the whole batch.
func (p *pass) blocks(o *op, n int) (blocks, rows int) {
	if p.lean {
		return 1, n // whoever has the last panels of a head finishes all its rows
	}
	const perWorker = 6
	_, tile := p.m.k.TileSpan(maxBatch, 0)
	tiles := (n + tile - 1) / tile
	want := min(tiles, (perWorker*p.workers+o.panels()-1)/o.panels())
	each := (tiles + want - 1) / want
	return (tiles + each - 1) / each, each * tile
}

// product multiplies the panels of a share of one matrix by some rows, which
// begin with a tile.
func (p *pass) product(o *op, mat int, s share, in tensor.Activations, from, to int, outs [3]output) {
	k, m, out := p.m.k, o.mats[mat], outs[mat]
	if from > 0 {
		in.X = in.X[from*in.Stride:]
		if o.packs {
			in.Packed = in.Packed[k.ActivationBytes(tensor.Q8_0, from, m.Cols()):]
		}
	}
	k.MatMul(out.dst[from*out.ld:], out.ld, m, in, to-from, s.from, s.to)
}
