package model_test

import (
	"math"
	"testing"

	"onebit/engine/model"
	"onebit/engine/tensor"
)

// TestFormulas compares float models with the same computed in float64 from
// the formulas. Only the rounding of keys and values to half precision differs.
func TestFormulas(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *spec)
		length int
	}{
		{"plain", func(*spec) {}, 40},
		{"over pages", func(*spec) {}, 530},
		{"one key head", func(s *spec) { s.kv = 1 }, 20},
		{"as many key heads", func(s *spec) { s.kv = 4 }, 20},
		{"wide heads", func(s *spec) { s.headDim = 80 }, 20},
		{"narrow heads", func(s *spec) { s.headDim = 6 }, 20},
		{"many heads", func(s *spec) { s.heads, s.kv, s.headDim = 60, 1, 4 }, 20},
		{"odd sizes", func(s *spec) { s.vocab, s.ffn, s.width = 101, 52, 44 }, 20},
		{"one layer", func(s *spec) { s.layers = 1 }, 20},
		{"tied", func(s *spec) { s.tied = true }, 20},
		{"scaled positions", func(s *spec) { s.meta["rope.scaling.factor"] = float32(4) }, 30},
		{"another base", func(s *spec) { s.meta["rope.freq_base"] = float32(500000) }, 30},
	} {
		for _, arch := range architectures {
			if testing.Short() && c.length > 500 && arch != "gemma3" {
				continue // the formulas take the square of the length
			}
			s := small(arch)
			c.change(&s)
			if arch == "gemma3" {
				s.layers = max(s.layers, 2)
				s.meta["attention.sliding_window"] = uint32(7)
				if c.length > 500 {
					s.meta["attention.sliding_window"] = uint32(270)
				}
				s.meta["attention.sliding_window_pattern"] = uint32(2)
			}
			t.Run(c.name+"/"+arch, func(t *testing.T) {
				f := s.file(t)
				ids := tokens(4, c.length, s.vocab)
				want := newNaive(t, f).logits(ids)
				levels(t, func(t *testing.T, level tensor.Level) {
					m := load(t, f, model.Config{Level: level})
					got := eval(t, m, m.NewSession(), ids, len(ids))
					worst := 0.0
					for i := range want {
						for j := range want[i] {
							worst = max(worst, math.Abs(float64(got[i][j])-want[i][j]))
						}
					}
					if !(worst < 0.02) {
						t.Errorf("logits differ by up to %.4f", worst)
					}
				})
			})
		}
	}
}

// TestBiases wants every bias of a llama file to be added.
func TestBiases(t *testing.T) {
	s := small("llama")
	s.biases = true
	f := s.file(t)
	ids := tokens(4, 12, s.vocab)
	want := newNaive(t, f).logits(ids)
	levels(t, func(t *testing.T, level tensor.Level) {
		m := load(t, f, model.Config{Level: level})
		for _, sizes := range [][]int{{12}, {1}} { // a large pass and small ones
			got := inPieces(t, m, m.NewSession(), ids, sizes, false)
			for i := range want {
				for j := range want[i] {
					if d := math.Abs(float64(got[i][j]) - want[i][j]); !(d < 0.02) {
						t.Fatalf("logit %d of token %d differs by %.4f", j, i, d)
					}
				}
			}
		}
	})
}

// TestSoftCap wants gemma3's logits to be capped where the file says so.
func TestSoftCap(t *testing.T) {
	plain, capped := small("gemma3"), small("gemma3")
	const limit = 3
	capped.meta["final_logit_softcapping"] = float32(limit)
	ids := tokens(4, 9, plain.vocab)
	levels(t, func(t *testing.T, level tensor.Level) {
		a := load(t, plain.file(t), model.Config{Level: level})
		b := load(t, capped.file(t), model.Config{Level: level})
		want := eval(t, a, a.NewSession(), ids, len(ids))
		got := eval(t, b, b.NewSession(), ids, len(ids))
		for i := range want {
			for j, v := range want[i] {
				w := limit * math.Tanh(float64(v)/limit)
				if math.Abs(float64(got[i][j])-w) > 1e-4 {
					t.Fatalf("logit %v, want %v of %v", got[i][j], w, v)
				}
			}
		}
	})
}

// TestRotation compares the tables with the formulas of each kind of scaling.
func TestRotation(t *testing.T) {
	const dim, base = 16, 10000.0
	plain := func(i int) float64 { return math.Pow(base, -2*float64(i)/dim) }
	divide := []float32{1, 1, 2, 3, 4, 8, 8, 8}
	for _, c := range []struct {
		name  string
		arch  string
		meta  map[string]any
		freqs bool
		local bool
		dims  int
		angle func(i int) float64 // per position
		scale float64             // of cosine and sine
	}{
		{name: "plain", angle: plain},
		{name: "base", meta: map[string]any{"rope.freq_base": float32(1e6)},
			angle: func(i int) float64 { return math.Pow(1e6, -2*float64(i)/dim) }},
		{name: "linear", meta: map[string]any{"rope.scaling.type": "linear", "rope.scaling.factor": float32(8)},
			angle: func(i int) float64 { return plain(i) / 8 }},
		{name: "linear by default", meta: map[string]any{"rope.scaling.factor": float32(8)},
			angle: func(i int) float64 { return plain(i) / 8 }},
		{name: "linear by the old key", meta: map[string]any{"rope.scale_linear": float32(4)},
			angle: func(i int) float64 { return plain(i) / 4 }},
		{name: "none", meta: map[string]any{"rope.scaling.type": "none", "rope.scaling.factor": float32(8)}, angle: plain},
		{name: "llama3", freqs: true, angle: func(i int) float64 { return plain(i) / float64(divide[i]) }},
		{name: "part of the head", arch: "qwen2", meta: map[string]any{"rope.dimension_count": uint32(8)}, dims: 8,
			angle: func(i int) float64 { return math.Pow(base, -2*float64(i)/8) }},
		{name: "yarn", meta: map[string]any{"rope.scaling.type": "yarn", "rope.scaling.factor": float32(4),
			"rope.scaling.original_context_length": uint32(2048)},
			// 32 turns over 2048 positions: pair 2.01 (from 2 on), 1 turn: pair 5.02 (to 6).
			angle: func(i int) float64 {
				keep := 1 - min(1, max(0, (float64(i)-2)/(6-2)))
				return plain(i)/4*(1-keep) + plain(i)*keep
			}, scale: 1 + 0.1*math.Log(4)},
		{name: "yarn with an attention factor", meta: map[string]any{"rope.scaling.type": "yarn", "rope.scaling.factor": float32(4),
			"rope.scaling.original_context_length": uint32(2048), "rope.scaling.attn_factor": float32(0.5),
			"rope.scaling.yarn_beta_fast": float32(2000), "rope.scaling.yarn_beta_slow": float32(1e5)},
			angle: func(i int) float64 {
				if i == 0 { // even one turn is too many for the others
					return plain(i)
				}
				return plain(i) / 4
			}, scale: 0.5 * (1 + 0.1*math.Log(4))},
		{name: "gemma global", arch: "gemma3", meta: map[string]any{"rope.freq_base": float32(1e6), "rope.scaling.factor": float32(8),
			"attention.sliding_window": uint32(4)},
			angle: func(i int) float64 { return math.Pow(1e6, -2*float64(i)/dim) / 8 }},
		{name: "gemma local", arch: "gemma3", meta: map[string]any{"rope.freq_base": float32(1e6), "rope.scaling.factor": float32(8),
			"attention.sliding_window": uint32(4)}, local: true, angle: plain},
		{name: "gemma local base", arch: "gemma3", meta: map[string]any{"rope.freq_base_swa": float32(5000),
			"attention.sliding_window": uint32(4)}, local: true,
			angle: func(i int) float64 { return math.Pow(5000, -2*float64(i)/dim) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.arch == "" {
				c.arch = "llama"
			}
			s := small(c.arch)
			for k, v := range c.meta {
				s.meta[k] = v
			}
			if c.freqs {
				s.vectors = map[string][]float32{"rope_freqs.weight": divide}
			}
			m := load(t, s.file(t), model.Config{Level: tensor.Generic})
			dims, scale := dim, 1.0
			if c.dims > 0 {
				dims = c.dims
			}
			if c.scale > 0 {
				scale = c.scale
			}
			for _, pos := range []int{0, 1, 2, 255, 256, 300, 1023} {
				cos, sin := m.Rotation(c.local, pos)
				if len(cos) != dims/2 {
					t.Fatalf("%d pairs, want %d", len(cos), dims/2)
				}
				for i := range cos {
					sinW, cosW := math.Sincos(float64(pos) * c.angle(i))
					if math.Abs(float64(cos[i])-cosW*scale) > 1e-4 || math.Abs(float64(sin[i])-sinW*scale) > 1e-4 {
						t.Fatalf("position %d, pair %d: %v %v, want %v %v", pos, i, cos[i], sin[i], cosW*scale, sinW*scale)
					}
				}
			}
		})
	}
}

// TestPartialRotation wants the values behind the rotated ones to stay: then
// a head of which nothing but the first pair turns sees positions in it alone.
func TestPartialRotation(t *testing.T) {
	s := small("qwen3")
	s.meta["rope.dimension_count"] = uint32(4)
	f := s.file(t)
	ids := tokens(2, 25, s.vocab)
	want := newNaive(t, f).logits(ids)
	levels(t, func(t *testing.T, level tensor.Level) {
		m := load(t, f, model.Config{Level: level})
		got := eval(t, m, m.NewSession(), ids, len(ids))
		for i := range want {
			for j := range want[i] {
				if d := math.Abs(float64(got[i][j]) - want[i][j]); !(d < 0.02) {
					t.Fatalf("logit %d of token %d differs by %.4f", j, i, d)
				}
			}
		}
	})
}
