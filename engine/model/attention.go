package model

import (
	"math"
	"sync/atomic"

	"onebit/engine/tensor"
)

// tileRows is about how many rows, queries of tokens times heads of a group,
// attention works on at a time.
const tileRows = 48

// task is one worker's piece of attention: the queries of some tokens and some
// heads of one group against the pages first to last-1.
type task struct {
	s           *Session
	pos         int // of the first token
	row         int // of the first token in the batch
	out         int // row of the first token in what attention returns
	n           int // tokens
	head        int // key head
	from, to    int // heads of the group; all of them unless n is 1
	first, last int // pages
	merge       int // index of the merge that the task belongs to, -1 = none
}

// rows returns the number of queries.
func (t *task) rows() int { return t.n * (t.to - t.from) }

// merge joins the results of tasks that differ in pages alone.
type merge struct {
	done atomic.Int32 // tasks that are done
	task task         // of all pages
	at   int          // where its results lie in the partials
	_    [32]byte
}

// plan is the attention of one layer: what there is to do, in no order.
type plan struct {
	window int
	tasks  []task
	merges []merge
}

// maxPartials bounds the results that are kept for merging, in floats.
const maxPartials = 4 << 20

// planAttention plans for all kinds of layers that the pass has.
func (p *pass) planAttention() {
	prm := p.m.p
	p.plans[0].window, p.plans[1].window = 0, prm.window
	p.plans[2].window = 0
	if prm.local[prm.layers-1] {
		p.plans[2].window = prm.window
	}
	need := p.plan(&p.plans[0], p.spans, false)
	if prm.window > 0 {
		need = max(need, p.plan(&p.plans[1], p.spans, false))
	}
	need = max(need, p.plan(&p.plans[2], p.ends, true))
	if ws := &p.m.work; need > len(ws.partials) {
		ws.partials = make([]float32, need)
	}
}

// planOf returns the plan of a layer.
func (p *pass) planOf(layer int) *plan {
	switch prm := p.m.p; {
	case layer == prm.layers-1:
		return &p.plans[2]
	case prm.local[layer]:
		return &p.plans[1]
	}
	return &p.plans[0]
}

// plan fills a plan and returns the floats of partial results it needs. What
// attention returns is dense in thin plans: without the rows between the spans.
func (p *pass) plan(pl *plan, spans []span, thin bool) int {
	prm := p.m.p
	group := prm.group()
	tokens := max(1, tileRows/group)
	pl.tasks, pl.merges = pl.tasks[:0], pl.merges[:0]
	units := 0
	for _, sp := range spans {
		units += (sp.n + tokens - 1) / tokens * prm.kvHeads
	}
	const perWorker = 3 // tasks that even out differences among them
	enough := units >= perWorker*p.workers
	need, dense := 0, 0
	for _, sp := range spans {
		out := sp.row
		if thin {
			out = dense
		}
		dense += sp.n
		// The last tokens see most and come first, so that no long task is left
		// to the end.
		for at := (sp.n - 1) / tokens * tokens; at >= 0; at -= tokens {
			t := task{s: sp.s, pos: sp.pos + at, row: sp.row + at, out: out + at, n: min(tokens, sp.n-at), merge: -1}
			t.last = (t.pos+t.n-1)/pageTokens + 1
			if pl.window > 0 {
				t.first = max(0, t.pos-pl.window+1) / pageTokens
			}
			need = p.unit(pl, t, enough, units, need)
		}
	}
	return need
}

// unit adds the tasks of one tile of tokens, for all heads. It returns need
// plus the floats of its partial results.
func (p *pass) unit(pl *plan, t task, enough bool, units, need int) int {
	prm := p.m.p
	group := prm.group()
	parts := (group + tileRows - 1) / tileRows // more than one only when t.n is 1
	pages := t.last - t.first
	size := t.n * group * (p.m.pages.panels*p.m.k.R + 2)
	split := !enough && pages > 1 && need+prm.kvHeads*pages*size <= maxPartials
	if have := units; t.n == 1 && !enough {
		if split {
			have *= pages
		}
		parts = max(parts, min(group, (p.workers+have-1)/have))
	}
	for t.head = range prm.kvHeads {
		for i := range parts {
			t.from, t.to = group*i/parts, group*(i+1)/parts
			if t.from == t.to {
				continue
			}
			t.merge = -1
			if !split {
				pl.tasks = append(pl.tasks, t)
				continue
			}
			need = pl.split(t, need, p.m.pages.panels*p.m.k.R)
		}
	}
	return need
}

// split adds one task for each page and the merge of them.
func (pl *plan) split(t task, need, width int) int {
	t.merge = len(pl.merges)
	if t.merge < cap(pl.merges) {
		pl.merges = pl.merges[:t.merge+1]
	} else {
		pl.merges = append(pl.merges, merge{})
	}
	mg := &pl.merges[t.merge]
	mg.task, mg.at = t, need
	mg.done.Store(0)
	for c := t.first; c < t.last; c++ {
		one := t
		one.first, one.last = c, c+1
		pl.tasks = append(pl.tasks, one)
	}
	return need + (t.last-t.first)*t.rows()*(width+2)
}

// attention is the memory of one worker for attention.
type attention struct {
	scores []float32 // [rows][scoreStride] of one page
	acc    results   // of all pages so far
	one    results   // of one page
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

func newAttention(a *tensor.Arena, p *params, l layout) attention {
	rows := max(tileRows, 1)
	width := l.panels * l.r
	return attention{
		scores: a.Floats(rows * scoreStride),
		acc:    newResults(a.Floats(rows*(width+2)), rows, width),
		one:    newResults(a.Floats(rows*(width+2)), rows, width),
	}
}

// attend mixes the values of a layer for all rows of its plan.
func (p *pass) attend(w *tensor.Worker, b *bench, layer int) {
	pl := p.planOf(layer)
	each(w, len(pl.tasks), func(i int) { p.runTask(b, pl, &pl.tasks[i], layer) })
	w.Barrier()
}

// runTask runs one task, and the merge it belongs to when it is the last.
func (p *pass) runTask(b *bench, pl *plan, t *task, layer int) {
	rows := t.rows()
	if t.merge < 0 {
		acc := b.acc
		for c := t.first; c < t.last; c++ {
			if c == t.first {
				p.page(b, t, layer, c, pl.window, acc)
				continue
			}
			p.page(b, t, layer, c, pl.window, b.one)
			p.fold(acc, b.one, rows)
		}
		p.store(t, acc)
		return
	}
	mg := &pl.merges[t.merge]
	p.page(b, t, layer, t.first, pl.window, p.partial(mg, t.first))
	if int(mg.done.Add(1)) < mg.task.last-mg.task.first {
		return
	}
	mg.done.Store(0)
	acc := p.partial(mg, mg.task.first)
	for c := mg.task.first + 1; c < mg.task.last; c++ {
		p.fold(acc, p.partial(mg, c), rows)
	}
	p.store(&mg.task, acc)
}

// partial returns the place of the results of one page of a merge.
func (p *pass) partial(mg *merge, page int) results {
	rows, width := mg.task.rows(), p.m.pages.panels*p.m.k.R
	at := mg.at + (page-mg.task.first)*rows*(width+2)
	return newResults(p.m.work.partials[at:], rows, width)
}

// page computes the results of a task's rows against one page.
func (p *pass) page(b *bench, t *task, layer, c, window int, res results) {
	m := p.m
	k, r, dim := m.k, m.k.R, m.p.headDim
	heads, rows := t.to-t.from, t.rows()
	base := c * pageTokens
	// The tile sees positions lo to hi-1 of the page; panels begin at a block.
	lo, hi := 0, min(pageTokens, t.pos+t.n-base)
	if window > 0 {
		lo = max(0, t.pos-window+1-base) / r * r
	}
	blocks := (hi - lo + r - 1) / r
	keys, values := m.pages.parts(t.s.pages[c], layer, t.head)
	group := m.p.group()
	x := m.work.turned[((t.head*maxBatch+t.row)*group+t.from)*dim:]
	k.MatMulF16(b.scores, scoreStride, keys[lo*dim:], blocks, dim, dim*r, x, dim, rows)
	for row := range rows {
		pos := t.pos + row/heads
		from, to := 0, min(pageTokens, pos+1-base)-lo
		if window > 0 {
			from = max(0, pos-window+1-base-lo)
		}
		s := b.scores[row*scoreStride:][:hi-lo]
		if from >= to {
			res.sum[row], res.top[row] = -1, 0
			clear(s)
			continue
		}
		seen := s[from:to]
		res.top[row] = k.Max(seen)
		res.sum[row] = k.ExpSum(seen, res.top[row])
		clear(s[:from])
		clear(s[to:])
	}
	k.MatMulF16(res.values, res.width, values[lo*r:], m.pages.panels, hi-lo, pageTokens*r, b.scores, scoreStride, rows)
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
		pos := p.pos[row]
		p.turn(layer, key, pos)
		keys, _ := m.pages.parts(p.owner[row].pages[pos/pageTokens], layer, head)
		at := pos % pageTokens
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
		pos := p.pos[row]
		_, values := m.pages.parts(p.owner[row].pages[pos/pageTokens], layer, head)
		at := pos % pageTokens * r
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
