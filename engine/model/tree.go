package model

import (
	"fmt"
	"slices"
)

// Tree makes a step's tokens branches behind its session: each token sees the session, the tokens from its root down to
// it, and nothing else of the tree. The session is left with the tokens that it had. Its keys and values are read where
// they are, and those of the tree lie behind them, one behind the other, until the session is truncated or appended to;
// so a tree can be evaluated in pieces: a later one has the tokens of those before it again, and says how many. The logits of its first tokens,
// while each is the parent of the next, have the bits that they would have in a session; those of others differ from that
// by rounding, since sums are cut elsewhere.
type Tree struct {
	Parents []int // of each token the index of the one before it, which is lower; -1 is the session's last
	Logits  []int // the tokens that get logits, ascending
	From    int   // the first token to be evaluated; those before it were, by the last steps of the session
}

// check refuses a tree that is none of n tokens.
func (t *Tree) check(n int) error {
	if len(t.Parents) != n {
		return fmt.Errorf("a tree of %d parents for %d tokens", len(t.Parents), n)
	}
	for i, parent := range t.Parents {
		if parent < -1 || parent >= i {
			return fmt.Errorf("token %d of a tree has the parent %d", i, parent)
		}
	}
	if t.From < 0 || t.From >= n {
		return fmt.Errorf("token %d of a tree of %d is to be the first", t.From, n)
	}
	for i, at := range t.Logits {
		if at < t.From || at >= n || i > 0 && at <= t.Logits[i-1] {
			return fmt.Errorf("logits of token %d of a tree of %d, or out of order", at, n)
		}
	}
	return nil
}

// tree is a Tree that is evaluated. Its token i lies at place base+i of the session's pages.
type tree struct {
	base    int   // tokens of the session
	parents []int // as in Tree
	depth   []int // of each token, 0 for one right behind the session
	run     []int // the first of the tokens that lie one behind the other down to each
}

func newTree(base int, parents []int) *tree {
	t := &tree{base, parents, make([]int, len(parents)), make([]int, len(parents))}
	for i, parent := range parents {
		if t.run[i] = i; parent >= 0 {
			t.depth[i] = t.depth[parent] + 1
			if parent == i-1 {
				t.run[i] = t.run[parent]
			}
		}
	}
	return t
}

// wanted returns how many tokens of a step get logits.
func (st *Step) wanted() int {
	if st.Tree != nil {
		return len(st.Tree.Logits)
	}
	return st.Logits
}

// from returns the first token of a step that is to be evaluated.
func (st *Step) from() int {
	if st.Tree != nil {
		return st.Tree.From
	}
	return 0
}

// end returns the length of the longest text that a step makes of its session.
func (st *Step) end() int {
	if st.tree != nil {
		return st.tree.base + slices.Max(st.tree.depth) + 1
	}
	return st.Session.Len() + len(st.Tokens)
}

// addTree takes n tokens of a step that are branches, from index from on.
func (p *pass) addTree(st *Step, from, n int) {
	t, row := st.tree, len(p.ids)
	p.spans = append(p.spans, span{s: st.Session, at: t.base + from, row: row, n: n, tree: t})
	p.ids = append(p.ids, st.Tokens[from:from+n]...)
	for i := from; i < from+n; i++ {
		p.owner = append(p.owner, st.Session)
		p.at = append(p.at, t.base+i)
		p.pos = append(p.pos, t.base+t.depth[i])
	}
	first, _ := slices.BinarySearch(st.Tree.Logits, from)
	for k, i := range st.Tree.Logits[first:] {
		if i >= from+n {
			break
		}
		if k > 0 && i == st.Tree.Logits[first+k-1]+1 {
			p.ends[len(p.ends)-1].n++
		} else {
			p.ends = append(p.ends, span{s: st.Session, at: t.base + i, row: row + i - from, n: 1, tree: t})
		}
		p.rows = append(p.rows, row+i-from)
	}
}

// stretch is the numbers from to to-1.
type stretch struct{ from, to int }

// add appends the places from to to-1, so far as they lie from lo to hi-1, counted from lo. What ends where the last one
// begins makes that one longer.
func add(list []stretch, from, to, lo, hi int) []stretch {
	from, to = max(from, lo)-lo, min(to, hi)-lo
	last := len(list) - 1
	switch {
	case from >= to:
	case last >= 0 && list[last].from == to:
		list[last].from = from
	default:
		list = append(list, stretch{from, to})
	}
	return list
}

// seen appends the places from lo to hi-1 that a task's token i sees, counted from lo, the last ones first.
func (t *task) seen(list []stretch, i, lo, hi int) []stretch {
	tr := t.tree
	if tr == nil {
		return add(list, t.begin(t.at+i), t.at+i+1, lo, hi)
	}
	k := t.at + i - tr.base
	begin := t.begin(tr.base + tr.depth[k]) // of the text; the session's places are its positions
	for k >= 0 {
		run := tr.run[k]
		hidden := max(0, begin-tr.base-tr.depth[run])
		list = add(list, tr.base+run+hidden, tr.base+k+1, lo, hi)
		k = tr.parents[run]
	}
	return add(list, begin, tr.base, lo, hi)
}
