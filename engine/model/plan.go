package model

import "sync/atomic"

// tileRows is about how many rows, queries of tokens times heads of a group,
// attention works on at a time.
const tileRows = 48

// task is one worker's piece of attention: the queries of some tokens and some
// heads of one group against the pages first to last-1.
type task struct {
	s           *Session
	tree        *tree // that the tokens are of, or nil
	at          int   // place of the first token in the session's pages
	row         int   // of the first token in the batch
	out         int   // row of the first token in what attention returns
	n           int   // tokens
	head        int   // key head
	from, to    int   // heads of the group; all of them unless n is 1
	window      int   // positions that a token sees, 0 = all before it
	first, last int   // pages
	merge       int   // index of the merge that the task belongs to, -1 = none
}

// rows returns the number of queries.
func (t *task) rows() int { return t.n * (t.to - t.from) }

// begin returns the first position that the token at a position sees.
func (t *task) begin(pos int) int {
	if t.window == 0 {
		return 0
	}
	return max(0, pos-t.window+1)
}

// low returns the first place that the tokens of a task see.
func (t *task) low() int {
	if t.tree != nil {
		return t.begin(t.tree.base) // what is deeper sees no more
	}
	return t.begin(t.at)
}

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

	units  int  // tiles of tokens times key heads
	enough bool // units keep all workers busy
	need   int  // floats of the results to be merged
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
	const perWorker = 3 // tasks that even out differences among them
	prm := p.m.p
	tokens := max(1, tileRows/prm.group())
	pl.tasks, pl.merges, pl.need, pl.units = pl.tasks[:0], pl.merges[:0], 0, 0
	for _, sp := range spans {
		pl.units += (sp.n + tokens - 1) / tokens * prm.kvHeads
	}
	pl.enough = pl.units >= perWorker*p.workers
	dense := 0
	for _, sp := range spans {
		out := sp.row
		if thin {
			out = dense
		}
		dense += sp.n
		// The last tokens see most and come first, so that no long task is left
		// to the end.
		for at := (sp.n - 1) / tokens * tokens; at >= 0; at -= tokens {
			t := task{s: sp.s, tree: sp.tree, at: sp.at + at, row: sp.row + at, out: out + at, n: min(tokens, sp.n-at), window: pl.window}
			t.first, t.last = t.low()/pageTokens, (t.at+t.n-1)/pageTokens+1
			p.unit(pl, t)
		}
	}
	return pl.need
}

// unit adds the tasks of one tile of tokens, for all heads. Where there are too
// few tiles for the workers, it splits them by pages, and single tokens by the
// heads of a group too.
func (p *pass) unit(pl *plan, t task) {
	prm, width := p.m.p, p.m.pages.panels*p.m.k.R
	group := prm.group()
	parts := (group + tileRows - 1) / tileRows // more than one only when t.n is 1
	pages := t.last - t.first
	size := t.n * group * (width + 2)
	split := !pl.enough && pages > 1 && pl.need+prm.kvHeads*pages*size <= maxPartials
	if have := pl.units; t.n == 1 && !pl.enough {
		if split {
			have *= pages
		}
		parts = max(parts, min(group, (p.workers+have-1)/have))
	}
	for t.head = range prm.kvHeads {
		for i := range parts {
			t.from, t.to, t.merge = group*i/parts, group*(i+1)/parts, -1
			if split {
				pl.split(t, width)
			} else {
				pl.tasks = append(pl.tasks, t)
			}
		}
	}
}

// split adds one task for each page and the merge of them.
func (pl *plan) split(t task, width int) {
	t.merge = len(pl.merges)
	if t.merge < cap(pl.merges) {
		pl.merges = pl.merges[:t.merge+1]
	} else {
		pl.merges = append(pl.merges, merge{})
	}
	mg := &pl.merges[t.merge]
	mg.task, mg.at = t, pl.need
	mg.done.Store(0)
	for c := t.first; c < t.last; c++ {
		one := t
		one.first, one.last = c, c+1
		pl.tasks = append(pl.tasks, one)
	}
	pl.need += (t.last - t.first) * t.rows() * (width + 2)
}
