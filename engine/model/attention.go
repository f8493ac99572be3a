package model

import (
	"math"

	"onebit/engine/tensor"
)

// attention is the memory of one worker for attention.
type attention struct {
	scores []float32 // [rows][scoreStride] of one page
	acc    results   // of all pages so far
	one    results   // of one page
	seen   []stretch // of one page by one token
}

// scoreStride keeps rows of scores from falling on the same cache sets.
const scoreStride = pageTokens + 16

// results are, for each row, the values weighted by exp(score - top), the sum
// of the weights and the largest score. A row that sees none of the
// positions has a negative sum.
type results struct {
	values   []float32 // [rows][width]
	sum, top []float32
	width    int
}

// newResults takes memory for rows of width values.
func newResults(floats []float32, rows, width int) results {
	n := rows * width
	return results{floats[:n], floats[n : n+rows], floats[n+rows : n+2*rows], width}
}

func newAttention(a *tensor.Arena, l layout) attention {
	width := l.panels * l.r
	return attention{
		scores: a.Floats(tileRows * scoreStride),
		acc:    newResults(a.Floats(tileRows*(width+2)), tileRows, width),
		one:    newResults(a.Floats(tileRows*(width+2)), tileRows, width),
	}
}

// attend mixes the values of a layer for all rows of its plan.
func (h *hand) attend(layer int) {
	pl := h.planOf(layer)
	h.each(len(pl.tasks), func(i int) { h.runTask(pl, &pl.tasks[i], layer) })
	h.w.Barrier()
}

// runTask runs one task, and the merge it belongs to when it is the last.
func (h *hand) runTask(pl *plan, t *task, layer int) {
	rows := t.rows()
	if t.merge < 0 {
		h.page(t, layer, t.first, h.acc)
		for c := t.first + 1; c < t.last; c++ {
			h.page(t, layer, c, h.one)
			h.fold(h.acc, h.one, rows)
		}
		h.store(t, h.acc)
		return
	}
	mg := &pl.merges[t.merge]
	h.page(t, layer, t.first, h.partial(mg, t.first))
	if int(mg.done.Add(1)) < mg.task.last-mg.task.first {
		return
	}
	mg.done.Store(0)
	acc := h.partial(mg, mg.task.first)
	for c := mg.task.first + 1; c < mg.task.last; c++ {
		h.fold(acc, h.partial(mg, c), rows)
	}
	h.store(&mg.task, acc)
}

// partial returns the place of the results of one page of a merge.
func (p *pass) partial(mg *merge, c int) results {
	rows, width := mg.task.rows(), p.m.pages.panels*p.m.k.R
	at := mg.at + (c-mg.task.first)*rows*(width+2)
	return newResults(p.m.work.partials[at:], rows, width)
}

// page computes the results of a task's rows against page c.
func (h *hand) page(t *task, layer, c int, res results) {
	m := h.m
	k, r, dim := m.k, m.k.R, m.p.headDim
	base := c * pageTokens
	// The tile sees places lo to hi-1 of the page, or fewer; panels begin at a block.
	lo, hi := max(0, t.low()-base)/r*r, min(pageTokens, t.at+t.n-base)
	blocks := (hi - lo + r - 1) / r
	keys, values := m.pages.parts(t.s.pages[c], layer, t.head)
	x := m.work.turned[((t.head*maxBatch+t.row)*m.p.group()+t.from)*dim:]
	k.MatMulF16(h.scores, scoreStride, keys[lo*dim:], blocks, dim, dim*r, x, dim, t.rows())
	heads := t.to - t.from
	for row := range t.rows() {
		if row%heads == 0 {
			h.seen = t.seen(h.seen[:0], row/heads, base+lo, base+hi)
		}
		s := h.scores[row*scoreStride:][:hi-lo]
		res.sum[row], res.top[row] = weigh(k, s, h.seen)
	}
	k.MatMulF16(res.values, res.width, values[lo*r:], m.pages.panels, hi-lo, pageTokens*r, h.scores, scoreStride, t.rows())
}

// weigh turns the scores of what a row sees into exp(score - top) and all others into 0, and returns the sum and the
// top. The sum of a row that sees nothing is negative.
func weigh(k *tensor.Kernels, scores []float32, seen []stretch) (sum, top float32) {
	if len(seen) == 0 {
		clear(scores)
		return -1, 0
	}
	top = float32(math.Inf(-1))
	for _, s := range seen {
		top = max(top, k.Max(scores[s.from:s.to]))
	}
	end := len(scores)
	for _, s := range seen { // the last ones first
		sum += k.ExpSum(scores[s.from:s.to], top)
		clear(scores[s.to:end])
		end = s.from
	}
	clear(scores[:end])
	return sum, top
}

// fold adds the results of a later page to those of the earlier ones.
func (p *pass) fold(acc, next results, rows int) {
	k := p.m.k
	for row := range rows {
		switch {
		case next.sum[row] < 0:
			continue
		case acc.sum[row] < 0:
			copy(acc.values[row*acc.width:][:acc.width], next.values[row*acc.width:])
			acc.sum[row], acc.top[row] = next.sum[row], next.top[row]
			continue
		}
		to, from := acc.values[row*acc.width:][:acc.width], next.values[row*acc.width:][:acc.width]
		if next.top[row] <= acc.top[row] {
			s := exp(next.top[row] - acc.top[row])
			k.AddScaled(to, from, s)
			acc.sum[row] += next.sum[row] * s
			continue
		}
		s := exp(acc.top[row] - next.top[row])
		k.ScaleAdd(to, s, from)
		acc.sum[row] = acc.sum[row]*s + next.sum[row]
		acc.top[row] = next.top[row]
	}
}

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }

// store writes the finished rows of a task.
func (p *pass) store(t *task, acc results) {
	m := p.m
	dim, heads := m.p.headDim, t.to-t.from
	for row := range t.rows() {
		head := t.head*m.p.group() + t.from + row%heads
		dst := m.work.mixed[(t.out+row/heads)*m.p.queryWidth()+head*dim:][:dim]
		copy(dst, acc.values[row*acc.width:])
		m.k.Scale(dst, 1/acc.sum[row])
	}
}

// finishQuery takes one head's queries of the rows from..to-1 as projected,
// normalises, rotates and scales them.
func (p *pass) finishQuery(layer, head, from, to int) {
	m := p.m
	l, dim, group := &m.layers[layer], m.p.headDim, m.p.group()
	ld := l.qkv.mats[0].PaddedRows()
	for row := from; row < to; row++ {
		src := m.work.q[row*ld+head*dim:][:dim]
		dst := m.work.turned[((head/group*maxBatch+row)*group+head%group)*dim:][:dim]
		if l.qBias != nil {
			m.k.Add(src, l.qBias[head*dim:])
		}
		if l.qNorm != nil {
			m.k.RMSNorm(dst, src, l.qNorm, m.p.eps)
		} else {
			copy(dst, src)
		}
		p.turn(layer, dst, p.pos[row])
		m.k.Scale(dst, m.p.attnScale)
	}
}

// finishKey normalises and rotates one head's keys and stores them.
func (p *pass) finishKey(layer, head, from, to int) {
	m := p.m
	l, dim, r := &m.layers[layer], m.p.headDim, m.k.R
	ld := l.qkv.mats[1].PaddedRows()
	for row := from; row < to; row++ {
		key := m.work.k[row*ld+head*dim:][:dim]
		if l.kBias != nil {
			m.k.Add(key, l.kBias[head*dim:])
		}
		if l.kNorm != nil {
			m.k.RMSNorm(key, key, l.kNorm, m.p.eps)
		}
		p.turn(layer, key, p.pos[row])
		keys, _ := m.pages.parts(p.owner[row].pages[p.at[row]/pageTokens], layer, head)
		at := p.at[row] % pageTokens
		m.k.ScatterF16(keys[at/r*r*dim+at%r:], r, key)
	}
}

// finishValue stores one head's values.
func (p *pass) finishValue(layer, head, from, to int) {
	m := p.m
	l, dim, r := &m.layers[layer], m.p.headDim, m.k.R
	ld := l.qkv.mats[2].PaddedRows()
	for row := from; row < to; row++ {
		value := m.work.v[row*ld+head*dim:][:dim]
		if l.vBias != nil {
			m.k.Add(value, l.vBias[head*dim:])
		}
		_, values := m.pages.parts(p.owner[row].pages[p.at[row]/pageTokens], layer, head)
		at := p.at[row] % pageTokens * r
		for d := 0; d < dim; d += r {
			n := min(r, dim-d)
			m.k.ToF16(values[at:at+n], value[d:d+n])
			at += pageTokens * r
		}
	}
}

// turn rotates one head in place.
func (p *pass) turn(layer int, head []float32, pos int) {
	m := p.m
	t := &m.ropes.kinds[0]
	if m.p.local[layer] {
		t = &m.ropes.kinds[1]
	}
	cos, sin := t.at(pos)
	if m.p.pairs {
		m.k.RoPENorm(head, cos, sin)
	} else {
		m.k.RoPENeox(head, cos, sin)
	}
}
