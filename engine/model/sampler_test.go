package model_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"onebit/engine/model"
	"onebit/engine/tensor"
)

var (
	nan    = float32(math.NaN())
	inf    = float32(math.Inf(1))
	negInf = float32(math.Inf(-1))
)

func TestGreedy(t *testing.T) {
	for _, c := range []struct {
		name    string
		cfg     model.SamplerConfig
		logits  []float32
		history []int32
		want    int32
	}{
		{name: "largest", logits: []float32{1, 3, 2}, want: 1},
		{name: "first of equals", logits: []float32{1, 3, 3}, want: 1},
		{name: "negative temperature", cfg: model.SamplerConfig{Temperature: -1}, logits: []float32{1, 3, 2}, want: 1},
		{name: "not a number", logits: []float32{nan, 1, nan}, want: 1},
		{name: "infinite", logits: []float32{1, inf, 2}, want: 1},
		{name: "all impossible", logits: []float32{negInf, nan, negInf}, want: 0},
		{name: "bias up", cfg: model.SamplerConfig{LogitBias: []model.Bias{{ID: 0, Bias: 5}}}, logits: []float32{1, 3, 2}, want: 0},
		{name: "bias forbids", cfg: model.SamplerConfig{LogitBias: []model.Bias{{ID: 1, Bias: negInf}}}, logits: []float32{1, 3, 2}, want: 2},
		{name: "bias of a foreign token", cfg: model.SamplerConfig{LogitBias: []model.Bias{{ID: 9, Bias: 5}, {ID: -1, Bias: 5}}}, logits: []float32{1, 3, 2}, want: 1},
		{name: "repeat penalty divides", cfg: model.SamplerConfig{RepeatPenalty: 2, PenaltyLastN: -1}, logits: []float32{1, 3, 2}, history: []int32{1}, want: 2},
		{name: "repeat penalty multiplies", cfg: model.SamplerConfig{RepeatPenalty: 2, PenaltyLastN: -1}, logits: []float32{-4, -1, -1.5}, history: []int32{1}, want: 2},
		{name: "repeat penalty of zero is none", cfg: model.SamplerConfig{PenaltyLastN: -1}, logits: []float32{1, 3, 2}, history: []int32{1}, want: 1},
		{name: "presence counts once", cfg: model.SamplerConfig{PresencePenalty: 0.75, PenaltyLastN: -1}, logits: []float32{1, 3, 2}, history: []int32{1, 1, 1}, want: 1},
		{name: "frequency counts each", cfg: model.SamplerConfig{FrequencyPenalty: 0.75, PenaltyLastN: -1}, logits: []float32{1, 3, 2}, history: []int32{1, 1, 1}, want: 2},
		{name: "last tokens only", cfg: model.SamplerConfig{PresencePenalty: 9, PenaltyLastN: 2}, logits: []float32{1, 3, 2}, history: []int32{1, 0, 0}, want: 1},
		{name: "no last tokens", cfg: model.SamplerConfig{PresencePenalty: 9}, logits: []float32{1, 3, 2}, history: []int32{1}, want: 1},
		{name: "history of a foreign token", cfg: model.SamplerConfig{PresencePenalty: 9, PenaltyLastN: -1}, logits: []float32{1, 3, 2}, history: []int32{-1, 77}, want: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := model.NewSampler(c.cfg).Sample(c.logits, c.history); got != c.want {
				t.Errorf("token %d, want %d", got, c.want)
			}
		})
	}
}

// Again draws from what Sample left: biases and penalties are applied once, and what was made impossible does not come.
func TestAgain(t *testing.T) {
	for _, temperature := range []float32{0, 1} {
		for _, cut := range []model.SamplerConfig{{TopP: 1}, {TopP: 1, TopK: 3}, {TopP: 0.9}, {TopP: 1, MinP: 0.01}} {
			cut.Temperature, cut.PresencePenalty, cut.PenaltyLastN = temperature, 1, -1
			cut.LogitBias = []model.Bias{{ID: 3, Bias: 20}}
			s := model.NewSampler(cut)
			logits := []float32{1, 2, 3, 0, 30, -5}
			if got := s.Sample(logits, []int32{0, 2}); got != 4 {
				t.Fatalf("%+v: first %d", cut, got)
			}
			want := slices.Clone(logits)
			logits[4] = model.Impossible
			if got := s.Again(logits); got != 3 {
				t.Errorf("%+v: then %d", cut, got)
			}
			logits[4] = want[4]
			if d := cmp.Diff(want, logits); d != "" {
				t.Errorf("%+v: %s", cut, d)
			}
			for i := range logits {
				logits[i] = model.Impossible
			}
			if got := s.Again(logits); got != 0 {
				t.Errorf("%+v: of nothing %d", cut, got)
			}
		}
	}
}

// TestDistribution draws often and compares how often each token comes with
// what the formulas say.
func TestDistribution(t *testing.T) {
	logits := []float32{1, 0.5, nan, 2, -1, 0, negInf, 1.5}
	// Probabilities at temperature 1: 3: .39, 7: .24, 0: .144, 1: .087, 5: .053, 4: .0195.
	for _, c := range []struct {
		name string
		cfg  model.SamplerConfig
		keep []int32
	}{
		{"everything", model.SamplerConfig{Temperature: 1, TopP: 1}, []int32{0, 1, 3, 4, 5, 7}},
		{"hot", model.SamplerConfig{Temperature: 3, TopP: 1}, []int32{0, 1, 3, 4, 5, 7}},
		{"cold", model.SamplerConfig{Temperature: 0.3, TopP: 1}, []int32{0, 1, 3, 4, 5, 7}},
		{"top k", model.SamplerConfig{Temperature: 1, TopK: 3, TopP: 1}, []int32{3, 7, 0}},
		{"top k of more than there are", model.SamplerConfig{Temperature: 1, TopK: 300, TopP: 1}, []int32{0, 1, 3, 4, 5, 7}},
		{"top p", model.SamplerConfig{Temperature: 1, TopP: 0.7}, []int32{3, 7, 0}},
		{"top p is of all before the temperature", model.SamplerConfig{Temperature: 5, TopP: 0.7}, []int32{3, 7, 0}},
		{"top p of nothing", model.SamplerConfig{Temperature: 1, TopP: 0}, []int32{3}},
		{"top p of the top k", model.SamplerConfig{Temperature: 1, TopK: 3, TopP: 0.7}, []int32{3, 7}},
		{"min p", model.SamplerConfig{Temperature: 1, TopP: 1, MinP: 0.2}, []int32{3, 7, 0, 1}},
		{"min p of the top k", model.SamplerConfig{Temperature: 2, TopK: 3, TopP: 1, MinP: 0.5}, []int32{3, 7}},
		{"min p over one", model.SamplerConfig{Temperature: 1, TopP: 1, MinP: 2}, []int32{3}},
		{"all of them", model.SamplerConfig{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05}, []int32{3, 7, 0, 1, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			weights, sum := map[int32]float64{}, 0.0
			for _, id := range c.keep {
				weights[id] = math.Exp(float64(logits[id]) / float64(c.cfg.Temperature))
				sum += weights[id]
			}
			const draws = 20000
			counts := map[int32]int{}
			c.cfg.Seed = 3
			s := model.NewSampler(c.cfg)
			for range draws {
				counts[s.Sample(slices.Clone(logits), nil)]++
			}
			for id, n := range counts {
				if weights[id] == 0 {
					t.Errorf("token %d came %d times, want never", id, n)
				}
			}
			for id, w := range weights {
				p := w / sum
				if got := float64(counts[id]) / draws; math.Abs(got-p) > 5*math.Sqrt(p*(1-p)/draws) {
					t.Errorf("token %d came with the frequency %.4f, want %.4f", id, got, p)
				}
			}
		})
	}
}

// TestSeed wants the same tokens for the same seed at every level, and others
// for another.
func TestSeed(t *testing.T) {
	run := func(seed uint64, level tensor.Level) []int32 {
		k, err := tensor.For(level)
		if err != nil {
			t.Fatal(err)
		}
		s := model.NewSampler(model.SamplerConfig{Temperature: 1, TopK: 40, TopP: 0.95, Seed: seed, Kernels: k})
		rng := rand.New(rand.NewPCG(1, 2))
		var ids []int32
		for range 100 {
			logits := make([]float32, 5000)
			for i := range logits {
				logits[i] = float32(rng.NormFloat64())
			}
			ids = append(ids, s.Sample(logits, ids))
		}
		return ids
	}
	want := run(1, tensor.Generic)
	for _, l := range tensor.Levels() {
		if diff := cmp.Diff(want, run(1, l)); diff != "" {
			t.Errorf("%v: %s", l, diff)
		}
	}
	if cmp.Equal(want, run(2, tensor.Generic)) {
		t.Error("another seed gives the same tokens")
	}
}

// TestLargeVocabulary compares the partial selection with a full sort.
func TestLargeVocabulary(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 2, 511, 512, 513, 20000} {
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(rng.IntN(500)) / 50 // with equal ones
		}
		sorted := make([]model.TokenLogProb, n)
		all := logSoftmax(logits)
		for i, v := range all {
			sorted[i] = model.TokenLogProb{ID: int32(i), LogProb: float32(v)}
		}
		slices.SortStableFunc(sorted, func(a, b model.TokenLogProb) int {
			return cmpFloat(float64(b.LogProb), float64(a.LogProb))
		})
		for _, l := range tensor.Levels() {
			k, err := tensor.For(l)
			if err != nil {
				t.Fatal(err)
			}
			s := model.NewSampler(model.SamplerConfig{Kernels: k})
			before := slices.Clone(logits)
			for _, top := range []int{0, 1, 10, 600, n} {
				id := int32(rng.IntN(n))
				chosen, list := s.LogProbs(logits, id, top)
				want := sorted[:min(top, n)]
				if diff := cmp.Diff(want, list, cmpopts.EquateApprox(0, 1e-4), cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%v: the %d likeliest of %d: %s", l, top, n, diff)
				}
				if math.Abs(float64(chosen)-all[id]) > 1e-4 {
					t.Errorf("%v: log-probability %v, want %v", l, chosen, all[id])
				}
			}
			if !slices.Equal(before, logits) {
				t.Error("LogProbs changed the logits")
			}
		}
	}
	if p, _ := model.NewSampler(model.SamplerConfig{}).LogProbs([]float32{1, 2}, -1, 1); !math.IsInf(float64(p), -1) {
		t.Errorf("log-probability %v of no token", p)
	}
}

// TestLargeNucleus wants the tokens of a flat distribution that a full sort
// finds: draws at a high temperature reach all of them.
func TestLargeNucleus(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	logits := make([]float32, 800)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64())
	}
	type token struct {
		id int32
		p  float64
	}
	var sorted []token
	for i, v := range logSoftmax(logits) {
		sorted = append(sorted, token{int32(i), math.Exp(v)})
	}
	slices.SortFunc(sorted, func(a, b token) int { return cmpFloat(b.p, a.p) })
	const topP = 0.6
	keep, sum := map[int32]bool{}, 0.0
	for _, tok := range sorted {
		keep[tok.id] = true
		if sum += tok.p; sum >= topP {
			break
		}
	}
	got := map[int32]bool{}
	s := model.NewSampler(model.SamplerConfig{Temperature: 1e6, TopP: topP})
	for range 20 * len(keep) {
		got[s.Sample(slices.Clone(logits), nil)] = true
	}
	if diff := cmp.Diff(keep, got); diff != "" {
		t.Errorf("%d tokens of the nucleus, %d drawn: %s", len(keep), len(got), diff)
	}
}

func cmpFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func BenchmarkSample(b *testing.B) {
	k, err := tensor.For(tensor.Detect())
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	logits := make([]float32, 151936)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64()) * 3
	}
	row := make([]float32, len(logits))
	for _, c := range []struct {
		name string
		cfg  model.SamplerConfig
	}{
		{"greedy", model.SamplerConfig{}},
		{"default", model.SamplerConfig{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05}},
		{"top p", model.SamplerConfig{Temperature: 0.8, TopP: 0.95}},
		{"everything", model.SamplerConfig{Temperature: 1, TopP: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			c.cfg.Kernels = k
			s := model.NewSampler(c.cfg)
			for b.Loop() {
				copy(row, logits)
				s.Sample(row, nil)
			}
		})
	}
	b.Run("logprobs", func(b *testing.B) {
		s := model.NewSampler(model.SamplerConfig{Kernels: k})
		for b.Loop() {
			s.LogProbs(logits, 5, 10)
		}
	})
}
