package model_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onebit/engine/model"
	"onebit/engine/tensor"
)

// mixes are weight types that together use every kernel.
var mixes = map[string][]tensor.Type{
	"legacy": {tensor.Q8_0, tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1},
	"k":      {tensor.Q5_0, tensor.Q6_K, tensor.Q4_K, tensor.Q8_0, tensor.Q5_K},
	"float":  {tensor.F32, tensor.F16, tensor.BF16},
	"both":   {tensor.F16, tensor.Q8_0, tensor.F32, tensor.Q4_K},
}

// windowed gives the gemma3 models of these tests local layers whose window
// crosses pages.
func windowed(s spec) spec {
	if s.arch == "gemma3" {
		s.layers = 3
		s.meta["attention.sliding_window"] = uint32(200)
		s.meta["attention.sliding_window_pattern"] = uint32(3)
	}
	return s
}

// TestSameBits evaluates the same tokens in different ways and wants the same
// bits of every row of logits.
func TestSameBits(t *testing.T) {
	levels(t, func(t *testing.T, level tensor.Level) {
		for i, arch := range architectures {
			for name, types := range mixes {
				if (level == tensor.Generic || testing.Short()) && name != []string{"legacy", "k", "float", "both"}[i] {
					continue // slow: one mix for each architecture
				}
				t.Run(arch+"/"+name, func(t *testing.T) {
					cfg := model.Config{Level: level, Threads: 3, BatchThreads: 3, Rounding: model.RoundOnce}
					sameBits(t, windowed(small(arch, types...)), cfg)
				})
			}
			if level != tensor.Generic && (arch == "gemma3" || !testing.Short()) {
				t.Run(arch+"/rounded twice", func(t *testing.T) {
					cfg := model.Config{Level: level, Threads: 3, BatchThreads: 3, Rounding: model.RoundTwice}
					sameBits(t, windowed(small(arch, mixes["k"]...)), cfg)
				})
			}
		}
	})
}

func sameBits(t *testing.T, s spec, cfg model.Config) {
	m := load(t, s.file(t), cfg)
	n := 300
	if testing.Short() && cfg.Level == tensor.Generic {
		n = 60 // the race detector, for which this is, makes portable code ten times slower
	}
	ids := tokens(1, n, s.vocab)
	a := m.NewSession()
	defer a.Close()
	want := eval(t, m, a, ids, len(ids))
	for i, row := range want {
		if v := row[i%len(row)]; v != v {
			t.Fatalf("row %d is not a number", i)
		}
	}
	for _, way := range []struct {
		name            string
		decode, prefill int // workers
		sizes           []int
		company         bool // other sessions in the same passes
	}{
		{"one by one", 3, 1, []int{1}, false},
		{"sevens", 3, 3, []int{7}, false},
		{"small ones", 1, 2, []int{2, 3, 4, 5, 8, 9}, false},
		{"fewer tiles than workers", 3, 3, []int{17, 11, 25}, false},
		{"large ones", 2, 2, []int{100, 13, 40}, false},
		{"in company", 2, 2, []int{1, 5, 1, 1, 30, 2}, true},
	} {
		m.SetThreads(way.decode, way.prefill)
		b := m.NewSession()
		got := inPieces(t, m, b, ids, way.sizes, way.company)
		b.Close()
		compareBits(t, way.name, got, want)
	}
}

// inPieces evaluates ids in pieces of the given sizes, in turn, and returns
// all rows.
func inPieces(t *testing.T, m *model.Model, s *model.Session, ids []int32, sizes []int, company bool) [][]float32 {
	t.Helper()
	var rows [][]float32
	rng := rand.New(rand.NewPCG(3, 3))
	var others [3]*model.Session
	for i := range others {
		others[i] = m.NewSession()
		defer others[i].Close()
	}
	for i := 0; len(rows) < len(ids); i++ {
		n := min(sizes[i%len(sizes)], len(ids)-len(rows))
		steps := []model.Step{{Session: s, Tokens: ids[len(rows) : len(rows)+n], Logits: n}}
		for _, o := range others {
			if !company || rng.IntN(3) == 0 {
				continue
			}
			if o.Len() > 500 {
				o.Truncate(rng.IntN(300))
			}
			more := tokens(rng.Uint64(), 1+rng.IntN(40), m.Vocab())
			steps = append(steps, model.Step{Session: o, Tokens: more, Logits: rng.IntN(2)})
		}
		rng.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		if err := m.Eval(t.Context(), steps); err != nil {
			t.Fatal(err)
		}
		mine := slices.IndexFunc(steps, func(st model.Step) bool { return st.Session == s })
		rows = append(rows, copyRows(steps[mine].Out)...)
	}
	return rows
}

func compareBits(t *testing.T, name string, got, want [][]float32) {
	t.Helper()
	for i := range want {
		for j := range want[i] {
			if math.Float32bits(got[i][j]) != math.Float32bits(want[i][j]) {
				t.Errorf("%s: logit %d of token %d is %v, was %v", name, j, i, got[i][j], want[i][j])
				return
			}
		}
	}
}

// TestLastRowOnly wants the same bits when only the last token gets logits:
// the last layer then computes one row.
func TestLastRowOnly(t *testing.T) {
	levels(t, func(t *testing.T, level tensor.Level) {
		archs, lengths := architectures, []int{1, 2, 3, 4, 5, 40, 256, 257, 300}
		if level == tensor.Generic { // slow
			archs, lengths = []string{"gemma3"}, []int{1, 5, 257}
		}
		for _, arch := range archs {
			s := windowed(small(arch, tensor.Q8_0))
			m := load(t, s.file(t), model.Config{Level: level})
			for _, n := range lengths {
				ids := tokens(uint64(n), n, s.vocab)
				a, b := m.NewSession(), m.NewSession()
				all := eval(t, m, a, ids, n)
				for _, rows := range []int{1, min(3, n)} {
					b.Truncate(0)
					compareBits(t, fmt.Sprintf("%s, %d rows of %d", arch, rows, n), eval(t, m, b, ids, rows), all[n-rows:])
				}
				// Keys and values must be there even when nothing else is wanted.
				b.Truncate(0)
				if rows := eval(t, m, b, ids, 0); len(rows) != 0 {
					t.Fatalf("%d rows, want none", len(rows))
				}
				next := []int32{5}
				compareBits(t, arch+" without logits", eval(t, m, b, next, 1), eval(t, m, a, next, 1))
				a.Close()
				b.Close()
			}
		}
	})
}

// TestTruncate drops tokens and evaluates others, and wants what a fresh
// session computes.
func TestTruncate(t *testing.T) {
	levels(t, func(t *testing.T, level tensor.Level) {
		s := windowed(small("gemma3", tensor.Q8_0))
		m := load(t, s.file(t), model.Config{Level: level})
		a := m.NewSession()
		ids := tokens(1, 600, s.vocab)
		eval(t, m, a, ids, 0)
		cuts := []int{599, 513, 512, 511, 300, 256, 255, 17, 1, 0}
		if level == tensor.Generic { // slow
			cuts = []int{511, 256, 17, 0}
		}
		for _, n := range cuts {
			a.Truncate(n)
			if a.Len() != n || !slices.Equal(a.Tokens(), ids[:n]) {
				t.Fatalf("%d tokens after Truncate(%d)", a.Len(), n)
			}
			more := tokens(uint64(n), 20, s.vocab)
			got := eval(t, m, a, more, len(more))
			b := m.NewSession()
			want := eval(t, m, b, append(slices.Clone(ids[:n]), more...), len(more))
			compareBits(t, fmt.Sprintf("after Truncate(%d)", n), got, want)
			b.Close()
			a.Truncate(n)
		}
		a.Truncate(5)
		if a.Len() != 0 {
			t.Errorf("Truncate made %d tokens out of none", a.Len())
		}
	})
}

// TestPagesAreRecycled wants memory for keys and values to stay what the
// largest use took.
func TestPagesAreRecycled(t *testing.T) {
	s := small("llama")
	m := load(t, s.file(t), model.Config{Level: tensor.Detect(), Sessions: 2})
	most := int64(0)
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	for i := range rounds {
		a := m.NewSession()
		eval(t, m, a, tokens(uint64(i), 500, s.vocab), 0)
		if i == 0 {
			if most = m.CacheBytes(); most == 0 {
				t.Fatal("no memory for keys and values")
			}
		}
		if i%2 == 0 {
			a.Truncate(0)
			eval(t, m, a, tokens(uint64(i), 512, s.vocab), 0)
		}
		a.Close()
		a.Close()
	}
	if now := m.CacheBytes(); now != most {
		t.Errorf("%d bytes of keys and values, at first %d", now, most)
	}
}

// TestRefusedSteps wants an error and untouched sessions.
func TestRefusedSteps(t *testing.T) {
	s := small("llama")
	m := load(t, s.file(t), model.Config{Level: tensor.Detect(), Context: 64, Sessions: 2})
	other := load(t, s.file(t), model.Config{Level: tensor.Detect()})
	full, closed, fine := m.NewSession(), m.NewSession(), m.NewSession()
	eval(t, m, full, tokens(1, 30, s.vocab), 0)
	closed.Close()
	ok := model.Step{Session: fine, Tokens: []int32{1, 2}, Logits: 1}
	for _, c := range []struct {
		name  string
		steps []model.Step
	}{
		{"no steps", nil},
		{"no session", []model.Step{ok, {Tokens: []int32{1}}}},
		{"another model's session", []model.Step{ok, {Session: other.NewSession(), Tokens: []int32{1}}}},
		{"closed session", []model.Step{ok, {Session: closed, Tokens: []int32{1}}}},
		{"no tokens", []model.Step{ok, {Session: full}}},
		{"too many logits", []model.Step{ok, {Session: full, Tokens: []int32{1}, Logits: 2}}},
		{"negative logits", []model.Step{ok, {Session: full, Tokens: []int32{1}, Logits: -1}}},
		{"negative token", []model.Step{ok, {Session: full, Tokens: []int32{-1}}}},
		{"token out of the vocabulary", []model.Step{ok, {Session: full, Tokens: []int32{int32(s.vocab)}}}},
		{"twice the same session", []model.Step{ok, ok}},
		{"over the context", []model.Step{ok, {Session: full, Tokens: []int32{1, 2, 3}}}},
	} {
		err := m.Eval(t.Context(), c.steps)
		if err == nil {
			t.Errorf("%s: no error", c.name)
		}
		if fine.Len() != 0 || full.Len() != 30 {
			t.Fatalf("%s: sessions changed", c.name)
		}
		if over, ok := errors.AsType[*model.ContextError](err); ok != (c.name == "over the context") {
			t.Errorf("%s: %v", c.name, err)
		} else if ok && (over.Tokens != 33 || over.Capacity != 32 || full.Capacity() != 32) {
			t.Errorf("%s: %+v", c.name, over)
		}
	}
	eval(t, m, full, []int32{1, 2}, 1) // up to the last position
}

// TestCancel wants Eval to end between two passes.
func TestCancel(t *testing.T) {
	s := small("llama")
	s.context = 4096
	m := load(t, s.file(t), model.Config{Level: tensor.Detect()})
	ctx, cancel := context.WithCancel(t.Context())
	a := m.NewSession()
	cancel()
	step := []model.Step{{Session: a, Tokens: tokens(1, 1000, s.vocab), Logits: 1}}
	if err := m.Eval(ctx, step); !errors.Is(err, context.Canceled) || a.Len() != 0 {
		t.Errorf("cancelled before: %v, %d tokens", err, a.Len())
	}
	if err := m.Eval(&afterLooks{Context: t.Context(), looks: 2}, step); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if n := a.Len(); n == 0 || n == 1000 || n%256 != 0 || step[0].Out != nil {
		t.Errorf("%d tokens after the cancelled Eval", n)
	}
	a.Truncate(0)
	eval(t, m, a, step[0].Tokens, 1)
}

// afterLooks is a context that is cancelled once Err was asked some times.
type afterLooks struct {
	context.Context
	looks int
}

func (c *afterLooks) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestClosed wants a closed model to refuse and to end its workers.
func TestClosed(t *testing.T) {
	s := small("llama")
	m := load(t, s.file(t), model.Config{Level: tensor.Detect(), Threads: 3, BatchThreads: 3})
	a := m.NewSession()
	eval(t, m, a, []int32{1}, 1)
	m.Close()
	m.Close()
	if err := m.Eval(t.Context(), []model.Step{{Session: a, Tokens: []int32{1}}}); !errors.Is(err, model.ErrClosed) {
		t.Errorf("Eval of a closed model: %v", err)
	}
	a.Truncate(0)
	a.Close()
	m.SetThreads(1, 1)
}
