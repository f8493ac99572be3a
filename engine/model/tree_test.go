package model_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onebit/engine/model"
	"onebit/engine/tensor"
)

// randomTree returns a tree of n tokens: stems that go on, and branches anywhere.
func randomTree(seed uint64, n int) *model.Tree {
	rng := rand.New(rand.NewPCG(seed, 1))
	t := &model.Tree{}
	for i := range n {
		parent := i - 1
		if rng.IntN(4) == 0 {
			parent = rng.IntN(i+1) - 1
		}
		t.Parents = append(t.Parents, parent)
		if rng.IntN(3) == 0 {
			t.Logits = append(t.Logits, i)
		}
	}
	return t
}

// path returns the tokens down to token i of a tree.
func path(tree *model.Tree, ids []int32, i int) (p []int32) {
	for ; i >= 0; i = tree.Parents[i] {
		p = append(p, ids[i])
	}
	slices.Reverse(p)
	return p
}

// near wants rows of logits that differ by rounding alone.
func near(t *testing.T, name string, got, want []float32) {
	t.Helper()
	for i := range want {
		if d := math.Abs(float64(got[i] - want[i])); !(d < 2e-4) {
			t.Fatalf("%s: logit %d is %v, want %v", name, i, got[i], want[i])
		}
	}
}

// TestTree: each token of a tree gets the logits that it has behind its own beginning alone, wherever pages, windows,
// and passes of 256 tokens end, and leaves the session as it was.
func TestTree(t *testing.T) {
	levels(t, func(t *testing.T, level tensor.Level) {
		for _, arch := range []string{"llama", "gemma3"} {
			s := windowed(small(arch, tensor.F32))
			m := load(t, s.file(t), model.Config{Level: level, Context: 4096, Sessions: 4, Threads: 2, BatchThreads: 3})
			for _, c := range []struct{ held, tokens int }{{0, 9}, {1, 3}, {255, 40}, {256, 7}, {190, 120}, {300, 400}} {
				if level == tensor.Generic && c.held+c.tokens > 320 {
					continue // slow
				}
				t.Run(fmt.Sprintf("%s/%d behind %d", arch, c.tokens, c.held), func(t *testing.T) {
					base, other, plain := m.NewSession(), m.NewSession(), m.NewSession()
					defer base.Close()
					defer other.Close()
					defer plain.Close()
					text := tokens(1, c.held, s.vocab)
					if c.held > 0 {
						eval(t, m, base, text, 0)
					}
					before := saved(t, m, base)
					tree, ids := randomTree(uint64(c.held), c.tokens), tokens(2, c.tokens, s.vocab)
					more := tokens(3, 20, s.vocab)
					steps := []model.Step{{Session: other, Tokens: more, Logits: 3}, {Session: base, Tokens: ids, Tree: tree}}
					if err := m.Eval(t.Context(), steps); err != nil {
						t.Fatal(err)
					}
					if len(steps[1].Out) != len(tree.Logits) {
						t.Fatalf("%d rows of logits", len(steps[1].Out))
					}
					got, company := clone(steps[1].Out), clone(steps[0].Out)
					compareBits(t, "in pieces", inPiecesOf(t, m, base, ids, tree, 23), got)
					for row, at := range tree.Logits {
						if row > 25 && row < len(tree.Logits)-25 {
							continue // enough of them
						}
						alone := path(tree, ids, at)
						plain.Truncate(c.held)
						if plain.Len() < c.held {
							eval(t, m, plain, text[plain.Len():], 0)
						}
						near(t, fmt.Sprintf("token %d", at), got[row], eval(t, m, plain, alone, 1)[0])
					}
					plain.Truncate(0)
					compareBits(t, "what is evaluated with a tree", company, eval(t, m, plain, more, 3))
					base.Truncate(c.held)
					if base.Len() != c.held || !bytes.Equal(saved(t, m, base), before) {
						t.Error("the session is not as it was")
					}
				})
			}
		}
	})
}

// inPiecesOf evaluates a tree some tokens at a time.
func inPiecesOf(t *testing.T, m *model.Model, s *model.Session, ids []int32, tree *model.Tree, size int) (rows [][]float32) {
	t.Helper()
	for from := 0; from < len(ids); from += size {
		to := min(from+size, len(ids))
		first, _ := slices.BinarySearch(tree.Logits, from)
		last, _ := slices.BinarySearch(tree.Logits, to)
		steps := []model.Step{{Session: s, Tokens: ids[:to], Tree: &model.Tree{Parents: tree.Parents[:to], Logits: tree.Logits[first:last], From: from}}}
		if err := m.Eval(t.Context(), steps); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, clone(steps[0].Out)...)
	}
	return rows
}

// TestTreeOfOne: a tree that is no more than a row of tokens has the bits of a session.
func TestTreeOfOne(t *testing.T) {
	levels(t, func(t *testing.T, level tensor.Level) {
		for _, arch := range architectures {
			s := windowed(small(arch, mixes["both"]...))
			m := load(t, s.file(t), model.Config{Level: level, Context: 1024, Sessions: 2})
			base, plain := m.NewSession(), m.NewSession()
			defer base.Close()
			defer plain.Close()
			text, ids := tokens(1, 240, s.vocab), tokens(2, 30, s.vocab)
			eval(t, m, base, text, 0)
			step := model.Step{Session: base, Tokens: ids, Tree: &model.Tree{}}
			for i := range ids {
				step.Tree.Parents = append(step.Tree.Parents, i-1)
				step.Tree.Logits = append(step.Tree.Logits, i)
			}
			steps := []model.Step{step}
			if err := m.Eval(t.Context(), steps); err != nil {
				t.Fatal(err)
			}
			got := clone(steps[0].Out)
			compareBits(t, arch, got, eval(t, m, plain, slices.Concat(text, ids), len(ids)))
		}
	})
}

func clone(rows [][]float32) (list [][]float32) {
	for _, r := range rows {
		list = append(list, slices.Clone(r))
	}
	return list
}

// TestTreeRefusals: what is no tree is refused, and the context bounds its longest branch, not all of it.
func TestTreeRefusals(t *testing.T) {
	s := small("llama")
	m := load(t, s.file(t), model.Config{Level: tensor.Levels()[0], Context: 16})
	base := m.NewSession()
	defer base.Close()
	eval(t, m, base, tokens(1, 10, s.vocab), 0)
	before := m.CacheBytes()
	for _, c := range []struct {
		tree model.Tree
		want string
	}{
		{model.Tree{Parents: []int{-1}}, "1 parents for 3 tokens"},
		{model.Tree{Parents: []int{-1, 1, 0}}, "token 1"},
		{model.Tree{Parents: []int{-1, -2, 0}}, "token 1"},
		{model.Tree{Parents: []int{-1, 0, 0}, Logits: []int{1, 1}}, "out of order"},
		{model.Tree{Parents: []int{-1, 0, 0}, Logits: []int{3}}, "token 3"},
		{model.Tree{Parents: []int{-1, 0, 0}, Logits: []int{0}, From: 1}, "token 0"},
		{model.Tree{Parents: []int{-1, 0, 0}, From: 3}, "token 3"},
	} {
		err := m.Eval(t.Context(), []model.Step{{Session: base, Tokens: []int32{1, 2, 3}, Tree: &c.tree}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.tree, err)
		}
	}
	wide := model.Step{Session: base, Tokens: tokens(2, 600, s.vocab), Tree: &model.Tree{Parents: slices.Repeat([]int{-1}, 600), Logits: []int{599}}}
	if err := m.Eval(t.Context(), []model.Step{wide}); err != nil {
		t.Errorf("600 branches: %v", err)
	}
	deep := model.Step{Session: base, Tokens: tokens(2, 7, s.vocab), Tree: &model.Tree{Parents: []int{-1, 0, 1, 2, 3, 4, 5}}}
	if err, ok := errors.AsType[*model.ContextError](m.Eval(t.Context(), []model.Step{deep})); !ok || err.Tokens != 17 {
		t.Errorf("a branch that does not fit: %v", err)
	}
	after := m.CacheBytes()
	for range 5 {
		base.Truncate(10)
		other := m.NewSession()
		eval(t, m, other, tokens(1, 16, s.vocab), 0) // takes a page that the tree had
		other.Close()
		if err := m.Eval(t.Context(), []model.Step{wide}); err != nil {
			t.Fatal(err)
		}
	}
	if m.CacheBytes() != after || base.Len() != 10 {
		t.Errorf("%d, then %d, then %d bytes of keys and values, %d tokens", before, after, m.CacheBytes(), base.Len())
	}
}
