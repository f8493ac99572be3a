package model

import (
	"math"
	"slices"

	"onebit/engine/tensor"
)

// encoderRows is how many rows go through the products of a block one after another: few enough that what lies between
// two products stays in a worker's second-level cache, and some full tiles of every level.
const encoderRows = 48

// encoderPass is the memory that passes work in, and the pass under way. Rows are the tokens of all texts.
type encoderPass struct {
	e     *Encoder
	arena *tensor.Arena

	x     []float32 // [rows][width] residual stream
	qkv   []float32 // [rows][ld] as projected
	mixed []float32 // [rows][width] what attention returns
	ld    int
	at    [3]int // of the queries, keys and values of all heads in a row of qkv
	pad   int    // width in whole panels
	wide  int    // ffn in whole panels
	hands []encoderHand

	texts  []Text
	first  []int // row of each text's first token
	order  []int // texts, the longest first, so that no long task is left to the end
	ids    []int32
	pos    []int // of each row in its text
	side   []int // of each row: 1 in the second part of a pair
	each   int   // rows of a block
	shared bool  // workers share every product of a block, and not the blocks
}

// encoderHand is one worker with memory of its own.
type encoderHand struct {
	*encoderPass
	w *tensor.Worker

	room   *blockRoom // its own, or in a shared pass that of the first worker
	own    blockRoom
	keys   []float32 // [block][headDim][R] of one head and text
	values []float32 // [panel][tokens][R]
	scores []float32 // [encoderRows][stride]
	out    []float32 // [encoderRows][headDim in whole panels]
}

// blockRoom is what a block of rows works in.
type blockRoom struct {
	packed   []byte    // input of a product, quantised
	added    []float32 // [encoderRows][pad] what a product adds to the stream
	up, gate []float32 // [encoderRows][wide]
}

// init takes the memory for a pass. What is never used takes no physical memory.
func (p *encoderPass) init(e *Encoder) {
	k, prm := e.k, e.p
	pad := func(n int) int { return (n + k.R - 1) / k.R * k.R }
	p.e, p.arena = e, tensor.NewArena()
	p.pad, p.wide = pad(prm.width), pad(prm.ffn)
	p.ld, p.at = 3*p.pad, [3]int{0, p.pad, 2 * p.pad}
	if len(e.layers[0].qkv.mats) == 1 {
		p.ld, p.at = pad(3*prm.width), [3]int{0, prm.width, 2 * prm.width}
	}
	rows := max(e.passTokens(), prm.context)
	p.x, p.mixed, p.qkv = p.arena.Floats(rows*prm.width), p.arena.Floats(rows*prm.width), p.arena.Floats(rows*p.ld)
	blocks := func(n int) int { return (n + blockRows - 1) / blockRows * blockRows }
	p.hands = make([]encoderHand, e.team.Size())
	for i := range p.hands {
		h := &p.hands[i]
		h.encoderPass = p
		h.own = blockRoom{
			packed: p.arena.Bytes(e.fine.ActivationBytes(tensor.Q8_0, encoderRows, blocks(max(prm.width, prm.ffn)))),
			added:  p.arena.Floats(encoderRows * p.pad), up: p.arena.Floats(encoderRows * p.wide),
		}
		if prm.gated {
			h.own.gate = p.arena.Floats(encoderRows * p.wide)
		}
		h.keys, h.values = p.arena.Floats(pad(prm.context)*prm.headDim), p.arena.Floats(prm.context*pad(prm.headDim))
		h.scores, h.out = p.arena.Floats(encoderRows*scoreWidth(prm.context, k.R)), p.arena.Floats(encoderRows*pad(prm.headDim))
	}
}

func (p *encoderPass) close() {
	if p.arena != nil {
		p.arena.Close()
	}
}

// scoreWidth is the length of a row of scores of a text, which keeps rows from falling on the same cache sets.
func scoreWidth(tokens, r int) int { return (tokens+r-1)/r*r + 16 }

// run is one pass over texts that have so many tokens in all.
func (e *Encoder) run(texts []Text, tokens int) {
	p := &e.pass
	p.texts = texts
	p.first, p.order, p.ids, p.pos, p.side = p.first[:0], p.order[:0], p.ids[:0], p.pos[:0], p.side[:0]
	longest := 0
	for i, t := range texts {
		p.first, p.order = append(p.first, len(p.ids)), append(p.order, i)
		p.ids = append(p.ids, t.Tokens...)
		for at := range t.Tokens {
			side := 0
			if t.Second > 0 && at >= t.Second && len(e.kinds) > e.p.width {
				side = 1
			}
			p.pos, p.side = append(p.pos, at), append(p.side, side)
		}
		longest = max(longest, len(t.Tokens))
	}
	slices.SortStableFunc(p.order, func(a, b int) int { return len(texts[b].Tokens) - len(texts[a].Tokens) })
	if e.p.rotates {
		e.turns.reserve(longest)
	}
	_, tile := e.k.TileSpan(encoderRows, 0)
	const perWorker = 3 // blocks that even out differences among them
	p.shared = tokens < tile*e.active && e.active > 1
	p.each = min(encoderRows, ((tokens+perWorker*e.active-1)/(perWorker*e.active)+tile-1)/tile*tile)
	if p.shared {
		p.each = encoderRows
	}
	e.team.RunN(e.active, p.work)
	for i := range texts {
		e.pool(&texts[i], p.x[p.first[i]*e.p.width:])
	}
	p.texts = nil
}

// work is a worker's part of the pass.
func (p *encoderPass) work(w *tensor.Worker) {
	h := &p.hands[w.ID]
	h.w, h.room = w, &h.own
	if p.shared {
		h.room = &p.hands[0].own
	}
	h.blocks(func(from, to int) {
		h.rows(from, to, h.begin)
		h.project(0, from, to)
	})
	for i := range p.e.layers {
		heads := p.e.p.heads
		w.Each(len(p.texts)*heads, 1, func(at, _ int) { h.attend(p.order[at/heads], at%heads) })
		w.Barrier()
		h.blocks(func(from, to int) {
			h.layer(&p.e.layers[i], from, to)
			if i+1 < len(p.e.layers) {
				h.project(i+1, from, to)
			}
		})
	}
}

// blocks calls f for all blocks of rows. The workers share the blocks, or do each of them together.
func (h *encoderHand) blocks(f func(from, to int)) {
	n := len(h.ids)
	if h.shared {
		for from := 0; from < n; from += h.each {
			f(from, min(from+h.each, n))
		}
		return
	}
	h.w.Each((n+h.each-1)/h.each, 1, func(i, _ int) { f(i*h.each, min((i+1)*h.each, n)) })
	h.w.Barrier()
}

// part calls f for ranges of n that together are all of it, in this worker alone or shared out.
func (h *encoderHand) part(n, grain int, f func(from, to int)) {
	if !h.shared {
		f(0, n)
		return
	}
	h.w.Each(n, grain, f)
	h.w.Barrier()
}

// rows calls f for every row of from..to-1, the first of which is row 0 of the block.
func (h *encoderHand) rows(from, to int, f func(row, inBlock int)) {
	h.part(to-from, 1, func(a, b int) {
		for i := a; i < b; i++ {
			f(from+i, i)
		}
	})
}

// stream returns a row of the residual stream.
func (p *encoderPass) stream(row int) []float32 { return p.x[row*p.e.p.width:][:p.e.p.width] }

// begin makes the vector of a token.
func (h *encoderHand) begin(row, _ int) {
	e, x := h.e, h.stream(row)
	e.embed.read(h.ids[row], x)
	if e.positions != nil {
		e.k.Add(x, e.positions[h.pos[row]*e.p.width:])
	}
	if e.kinds != nil {
		e.k.Add(x, e.kinds[h.side[row]*e.p.width:])
	}
	e.k.LayerNorm(x, x, e.norm.w, e.norm.b, e.p.eps)
}

// product multiplies n rows of x by the matrices of an op; row t of the i-th goes to dst[t*ld+at[i]:].
func (h *encoderHand) product(o *encoderOp, x []float32, stride, n int, dst []float32, ld int, at ...int) {
	in := tensor.Activations{X: x, Stride: stride, Packed: h.room.packed}
	if o.packs {
		k := o.packer
		h.part(k.Tiles(n), 1, func(from, to int) {
			for i := from; i < to; i++ {
				k.PackActivations(in.Packed, x, stride, n, o.cols(), i)
			}
		})
	}
	for i, m := range o.mats {
		const perWorker = 2
		grain := (m.Panels()/(perWorker*h.w.N)/o.together + 1) * o.together
		h.part(m.Panels(), grain, func(from, to int) { o.k.MatMul(dst[at[i]:], ld, m, in, n, from, to) })
	}
}

// project computes the queries, keys and values of a layer.
func (h *encoderHand) project(layer, from, to int) {
	e := h.e
	ly, width := &e.layers[layer], e.p.width
	scale := float32(1 / math.Sqrt(float64(e.p.headDim)))
	h.product(&ly.qkv, h.x[from*width:], width, to-from, h.qkv[from*h.ld:], h.ld, h.at[:]...)
	h.rows(from, to, func(row, _ int) {
		all := h.qkv[row*h.ld:][:h.ld]
		if ly.qkvBias != nil {
			e.k.Add(all[:len(ly.qkvBias)], ly.qkvBias)
		}
		if e.p.rotates {
			cos, sin := e.turns.kinds[0].at(h.pos[row])
			for head := range e.p.heads {
				e.k.RoPENeox(all[h.at[0]+head*e.p.headDim:][:e.p.headDim], cos, sin)
				e.k.RoPENeox(all[h.at[1]+head*e.p.headDim:][:e.p.headDim], cos, sin)
			}
		}
		e.k.Scale(all[:width], scale)
	})
}

// layer runs what follows attention on a block of rows.
func (h *encoderHand) layer(ly *encoderLayer, from, to int) {
	e, n, room := h.e, to-from, h.room
	width := e.p.width
	join := func(bias []float32, norm layerNorm) func(row, i int) {
		return func(row, i int) {
			x, added := h.stream(row), room.added[i*h.pad:][:width]
			if bias != nil {
				e.k.Add(added, bias)
			}
			e.k.Add(x, added)
			e.k.LayerNorm(x, x, norm.w, norm.b, e.p.eps)
		}
	}
	h.product(&ly.out, h.mixed[from*width:], width, n, room.added, h.pad, 0)
	h.rows(from, to, join(ly.outBias, ly.attnNorm))
	h.product(&ly.up, h.x[from*width:], width, n, room.up, h.wide, 0)
	if e.p.gated {
		h.product(&ly.gate, h.x[from*width:], width, n, room.gate, h.wide, 0)
	}
	h.rows(from, to, func(_, i int) {
		up := room.up[i*h.wide:][:e.p.ffn]
		if ly.upBias != nil {
			e.k.Add(up, ly.upBias)
		}
		if e.p.gated {
			e.k.SiLUMul(up, room.gate[i*h.wide:], up)
		} else {
			e.k.GELUErf(up, up)
		}
	})
	h.product(&ly.down, room.up, h.wide, n, room.added, h.pad, 0)
	h.rows(from, to, join(ly.downBias, ly.ffnNorm))
}

// attend mixes the values of one head over all tokens of a text.
func (h *encoderHand) attend(text, head int) {
	e, k := h.e, h.e.k
	n, dim, r := len(h.texts[text].Tokens), e.p.headDim, k.R
	blocks, panels := (n+r-1)/r, (dim+r-1)/r
	h.gather(text, head)
	stride := scoreWidth(n, r)
	for from := 0; from < n; from += encoderRows {
		rows := min(encoderRows, n-from)
		query := h.qkv[(h.first[text]+from)*h.ld+h.at[0]+head*dim:]
		k.MatMulF32(h.scores, stride, h.keys, blocks, dim, dim*r, query, h.ld, rows)
		for i := range rows {
			s := h.scores[i*stride:][:n]
			k.Scale(s, 1/k.ExpSum(s, k.Max(s)))
		}
		k.MatMulF32(h.out, panels*r, h.values, panels, n, n*r, h.scores, stride, rows)
		for i := range rows {
			copy(h.mixed[(h.first[text]+from+i)*e.p.width+head*dim:][:dim], h.out[i*panels*r:])
		}
	}
}

// gather lays the keys and values of one head of a text out in panels.
func (h *encoderHand) gather(text, head int) {
	n, dim, r := len(h.texts[text].Tokens), h.e.p.headDim, h.e.k.R
	for i := range n {
		row := h.qkv[(h.first[text]+i)*h.ld+head*dim:]
		key, value := row[h.at[1]:][:dim], row[h.at[2]:][:dim]
		for d := 0; d < dim; d += r {
			copy(h.values[(d/r*n+i)*r:][:r], value[d:min(d+r, dim)])
		}
		lane := h.keys[i/r*r*dim+i%r:][:(dim-1)*r+1]
		for d, at := 0, 0; d < len(key); d, at = d+1, at+r {
			lane[at] = key[d]
		}
	}
}

// pool sets what a text asked for, from the rows of its tokens.
func (e *Encoder) pool(t *Text, rows []float32) {
	width, n := e.p.width, len(t.Tokens)
	rows = rows[:n*width]
	pooling := e.p.pooling
	if t.Each {
		pooling = PoolNone
	}
	switch pooling {
	case PoolNone:
		t.Out = slices.Clone(rows)
	case PoolMean:
		t.Out = slices.Clone(rows[:width])
		for at := width; at < len(rows); at += width {
			e.k.Add(t.Out, rows[at:])
		}
		e.k.Scale(t.Out, 1/float32(n))
	case PoolLast:
		t.Out = slices.Clone(rows[len(rows)-width:])
	case PoolCLS:
		t.Out = slices.Clone(rows[:width])
	case PoolRank:
		t.Out = e.judge.scoresOf(e, rows[:width])
	}
}

// scoresOf returns the scores of one vector.
func (j *head) scoresOf(e *Encoder, x []float32) []float32 {
	multiply := func(o *encoderOp, x, bias []float32, rows int) []float32 {
		m := o.mats[0]
		in := tensor.Activations{X: x, Stride: len(x)}
		if o.packs {
			in.Packed = make([]byte, o.packer.ActivationBytes(m.Type(), 1, len(x)))
			for i := range o.packer.Tiles(1) {
				o.packer.PackActivations(in.Packed, x, len(x), 1, len(x), i)
			}
		}
		out := make([]float32, m.PaddedRows())
		o.k.MatMul(out, len(out), m, in, 1, 0, m.Panels())
		if bias != nil {
			e.k.Add(out[:rows], bias)
		}
		return out[:rows]
	}
	if len(j.dense.mats) > 0 {
		x = multiply(&j.dense, x, j.denseBias, len(x))
		for i, v := range x {
			x[i] = float32(math.Tanh(float64(v)))
		}
	}
	return multiply(&j.out, x, j.outBias, j.scores)
}
