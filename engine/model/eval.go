package model

import (
	"context"
	"errors"
	"fmt"
)

const (
	// maxBatch is the number of tokens of one pass. It bounds the memory that
	// passes work in, and how long a cancelled Eval goes on.
	maxBatch = 256
	// smallBatch is the largest pass that runs with the decode workers.
	smallBatch = 8
	// leanBatch is the largest pass in which every worker does the work
	// between two products for itself, which saves barriers.
	leanBatch = 4
)

// Step is what one session contributes to an Eval.
type Step struct {
	Session *Session
	Tokens  []int32 // to append, at least one
	Logits  int     // how many of the last tokens get logits
	Tree    *Tree   // not nil: the tokens are branches, and nothing is appended
	// Out is set by Eval: Logits rows of Vocab values, the row of the last
	// token last, or a row for each of Tree's. The rows may be modified, and are
	// valid until the model's next Eval.
	Out [][]float32

	tree *tree // of Tree, set by check
}

// Eval appends the tokens of all steps to their sessions, but those of trees, and
// computes the logits that they ask for. Each session may be in one step. Nothing is changed
// when a step is refused: by a *ContextError when its tokens do not fit, by
// ErrClosed, or for a token that the vocabulary does not have. A cancelled Eval
// returns the context's error between two passes of 256 tokens; sessions then
// hold the tokens of the passes that were done, and Out is nil.
func (m *Model) Eval(ctx context.Context, steps []Step) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(steps); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.eval(ctx, steps)
}

// eval is Eval of checked steps, with the mutex held.
func (m *Model) eval(ctx context.Context, steps []Step) error {
	rows, last := 0, 0
	for i := range steps {
		st := &steps[i]
		st.Out = nil
		if err := st.Session.reserve(st.Session.Len() + len(st.Tokens)); err != nil {
			return err
		}
		last = max(last, st.end())
		rows += st.wanted()
	}
	m.ropes.reserve(last)
	p := &m.work.pass
	p.begin(m, rows)
	for i := range steps {
		st := &steps[i]
		for done := st.from(); done < len(st.Tokens); {
			if len(p.ids) == maxBatch {
				m.runPass(p)
				if err := ctx.Err(); err != nil {
					return err
				}
			}
			n := min(len(st.Tokens)-done, maxBatch-len(p.ids))
			p.add(st, done, n)
			done += n
		}
	}
	m.runPass(p)
	p.handOut(steps)
	return nil
}

// check refuses steps that cannot be evaluated.
func (m *Model) check(steps []Step) error {
	if m.closed {
		return ErrClosed
	}
	if len(steps) == 0 {
		return errors.New("no steps to evaluate")
	}
	for i := range steps {
		st := &steps[i]
		s := st.Session
		switch {
		case s == nil || s.m != m:
			return fmt.Errorf("step %d has no session of this model", i)
		case s.closed:
			return ErrClosed
		case len(st.Tokens) == 0:
			return fmt.Errorf("step %d has no tokens", i)
		case st.Logits < 0 || st.Logits > len(st.Tokens):
			return fmt.Errorf("step %d wants logits of %d tokens out of %d", i, st.Logits, len(st.Tokens))
		}
		if st.tree = nil; st.Tree != nil {
			if err := st.Tree.check(len(st.Tokens)); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
			st.tree = newTree(s.Len(), st.Tree.Parents)
		}
		if n := st.end(); n > m.Capacity() {
			return &ContextError{Tokens: n, Capacity: m.Capacity()}
		}
		for _, id := range st.Tokens {
			if id < 0 || int(id) >= m.p.vocab {
				return fmt.Errorf("token %d is not one of the vocabulary's %d", id, m.p.vocab)
			}
		}
		for j := range i {
			if steps[j].Session == s {
				return fmt.Errorf("steps %d and %d have the same session", j, i)
			}
		}
	}
	return nil
}

// span is the tokens of one session in a pass.
type span struct {
	s    *Session
	at   int // place of the first token in the session's pages
	row  int // of the first token in the batch
	n    int
	tree *tree // that they are of, nil for tokens that follow each other
}

// pass is one forward pass. It is filled, run, and used again.
type pass struct {
	m     *Model
	ids   []int32
	owner []*Session // of each row
	at    []int      // the place of each row in its session's pages
	pos   []int      // the position of each row in its text: at, but in trees
	spans []span
	rows  []int  // the rows that get logits, ascending
	ends  []span // the same as spans; row is that of the batch

	logits []float32 // [rows of the whole Eval][stride]
	stride int
	first  int // row of logits where this pass begins

	workers int
	lean    bool
	plans   [3]plan // attention that sees everything, a window, and the last layer's
}

// begin prepares for an Eval with the given number of logit rows.
func (p *pass) begin(m *Model, rows int) {
	p.m = m
	p.stride = m.head.mats[0].PaddedRows()
	if n := rows * p.stride; n > cap(p.logits) {
		p.logits = make([]float32, n)
	} else {
		p.logits = p.logits[:n]
	}
	p.first = 0
	p.clear()
}

// clear forgets the tokens.
func (p *pass) clear() {
	clear(p.owner)
	clear(p.spans)
	clear(p.ends)
	p.ids, p.owner, p.at, p.pos = p.ids[:0], p.owner[:0], p.at[:0], p.pos[:0]
	p.spans, p.rows, p.ends = p.spans[:0], p.rows[:0], p.ends[:0]
}

// add takes n tokens of a step, from index from on, and appends them to the session.
func (p *pass) add(st *Step, from, n int) {
	if st.Tree != nil {
		p.addTree(st, from, n)
		return
	}
	s := st.Session
	sp := span{s: s, at: s.Len(), row: len(p.ids), n: n}
	p.spans = append(p.spans, sp)
	s.ids = append(s.ids, st.Tokens[from:from+n]...)
	p.ids = append(p.ids, st.Tokens[from:from+n]...)
	for i := range n {
		p.owner = append(p.owner, s)
		p.at = append(p.at, sp.at+i)
		p.pos = append(p.pos, sp.at+i)
	}
	silent := min(max(len(st.Tokens)-st.Logits-from, 0), n)
	if silent == n {
		return
	}
	p.ends = append(p.ends, span{s: s, at: sp.at + silent, row: sp.row + silent, n: n - silent})
	for i := silent; i < n; i++ {
		p.rows = append(p.rows, sp.row+i)
	}
}

// runPass runs what was added and clears it.
func (m *Model) runPass(p *pass) {
	p.workers = m.prefill
	if len(p.ids) <= smallBatch {
		p.workers = m.decode
	}
	p.lean = len(p.ids) <= leanBatch
	p.planAttention()
	m.work.begin()
	m.team.RunN(p.workers, p.run)
	p.first += len(p.rows)
	p.clear()
}

// handOut gives the steps their rows of logits.
func (p *pass) handOut(steps []Step) {
	row := 0
	for i := range steps {
		st := &steps[i]
		for range st.wanted() {
			st.Out = append(st.Out, p.logits[row*p.stride:][:p.m.p.vocab:p.m.p.vocab])
			row++
		}
	}
}
