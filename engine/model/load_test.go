package model_test

import (
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"onebit/engine/gguf"
	"onebit/engine/model"
	"onebit/engine/tensor"
)

// TestRefused wants files to be refused with a reason that names the trouble.
func TestRefused(t *testing.T) {
	set := func(key string, value any) func(*spec) {
		return func(s *spec) { s.meta[key] = value }
	}
	for _, c := range []struct {
		name        string
		arch        string
		change      func(*spec)
		unsupported bool   // and a llama-server may run it
		want        string // in the message
	}{
		{"architecture", "mamba", func(*spec) {}, true, `"mamba"`},
		{"architecture says what to do", "mamba", func(*spec) {}, true, "--device"},
		{"architecture without end", strings.Repeat("a", 4096), func(*spec) {}, true, "--device"},
		{"scaling without end", "llama", set("rope.scaling.type", strings.Repeat("a", 1<<20)), true, "rope.scaling.type"},
		{"experts", "llama", set("expert_count", uint32(8)), true, "expert_count = 8"},
		{"attention scale", "llama", set("attention.scale", float32(0.5)), true, "attention.scale"},
		{"soft cap of scores", "gemma3", set("attn_logit_softcapping", float32(50)), true, "attn_logit_softcapping"},
		{"soft cap of llama", "llama", set("final_logit_softcapping", float32(50)), true, "final_logit_softcapping"},
		{"not causal", "qwen3", set("attention.causal", false), true, "causal"},
		{"longrope", "llama", set("rope.scaling.type", "longrope"), true, `"longrope"`},
		{"values of another size", "llama", set("attention.value_length", uint32(32)), true, "differ"},
		{"layers that differ", "llama", set("attention.head_count_kv", []uint32{2, 4}), true, "differs from layer to layer"},
		{"tensor of no use", "llama", func(s *spec) { s.extra = map[string][]uint64{"blk.0.ffn_gate_inp.weight": {64, 8}} }, true, `"blk.0.ffn_gate_inp.weight"`},
		{"norm of no use", "qwen2", func(s *spec) { s.extra = map[string][]uint64{"blk.0.attn_q_norm.weight": {16}} }, true, `"blk.0.attn_q_norm.weight"`},
		{"type", "llama", func(s *spec) { s.raw = map[string]gguf.Type{"blk.1.ffn_down.weight": gguf.Q2_K} }, true, "Q2_K"},
		{"type names the tensor", "llama", func(s *spec) { s.raw = map[string]gguf.Type{"blk.1.ffn_down.weight": gguf.IQ4_XS} }, true, `"blk.1.ffn_down.weight" is stored as IQ4_XS`},
		{"no layers", "llama", set("block_count", nil), false, "block_count"},
		{"too many layers", "llama", set("block_count", uint32(5000)), false, "block_count"},
		{"more layers than there are", "llama", set("block_count", uint32(3)), false, `"blk.2.attn_norm.weight"`},
		{"fewer layers than there are", "llama", set("block_count", uint32(1)), true, `"blk.1.`},
		{"no heads", "llama", set("attention.head_count", uint32(0)), false, "head_count"},
		{"heads of a string", "llama", set("attention.head_count", "four"), false, "head_count"},
		{"heads that do not divide", "llama", set("attention.head_count_kv", uint32(3)), false, "3 key heads"},
		{"odd heads", "llama", func(s *spec) {
			s.meta["attention.key_length"], s.meta["attention.value_length"] = uint32(15), uint32(15)
		}, false, "15"},
		{"heads by default", "llama", func(s *spec) {
			s.meta["attention.key_length"], s.meta["attention.value_length"] = nil, nil
			s.meta["attention.head_count"], s.meta["attention.head_count_kv"] = uint32(64), uint32(64)
		}, false, "a head of 1"},
		{"no width", "llama", set("embedding_length", uint32(0)), false, "embedding_length"},
		{"another width", "llama", set("embedding_length", uint32(32)), false, "shape"},
		{"no context", "llama", set("context_length", nil), false, "context_length"},
		{"no epsilon", "llama", set("attention.layer_norm_rms_epsilon", nil), false, "epsilon"},
		{"negative epsilon", "llama", set("attention.layer_norm_rms_epsilon", float32(-1)), false, "epsilon"},
		{"epsilon not a number", "llama", set("attention.layer_norm_rms_epsilon", nan), false, "epsilon"},
		{"base of zero", "llama", set("rope.freq_base", float32(0)), false, "freq_base"},
		{"infinite base", "llama", set("rope.freq_base", inf), false, "freq_base"},
		{"negative factor", "llama", set("rope.scaling.factor", float32(-2)), false, "factor"},
		{"odd rotation", "llama", set("rope.dimension_count", uint32(7)), false, "odd"},
		{"rotation over the head", "llama", set("rope.dimension_count", uint32(64)), false, "dimension_count"},
		{"frequencies of zero", "llama", func(s *spec) { s.vectors = map[string][]float32{"rope_freqs.weight": make([]float32, 8)} }, false, "rope_freqs"},
		{"short pattern", "gemma3", func(s *spec) {
			s.meta["attention.sliding_window"] = uint32(4)
			s.meta["attention.sliding_window_pattern"] = []bool{true}
		}, false, "pattern"},
		{"negative window", "gemma3", set("attention.sliding_window", int32(-4)), false, "sliding_window"},
		{"missing norm", "gemma3", func(s *spec) { s.drop = "blk.1.post_ffw_norm.weight" }, false, `"blk.1.post_ffw_norm.weight"`},
		{"missing embedding", "llama", func(s *spec) { s.drop = "token_embd.weight" }, false, `"token_embd.weight"`},
		{"missing matrix", "llama", func(s *spec) { s.drop = "blk.0.attn_k.weight" }, false, `"blk.0.attn_k.weight"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := small(c.arch)
			c.change(&s)
			m, err := model.Load(s.file(t), model.Config{Level: tensor.Generic, Threads: 1, BatchThreads: 1})
			if err == nil {
				m.Close()
				t.Fatal("loaded")
			}
			if !strings.Contains(err.Error(), c.want) || len(err.Error()) > 400 {
				t.Errorf("error %q does not say %q, or too much", err, c.want)
			}
			if _, ok := errors.AsType[*model.UnsupportedError](err); ok != c.unsupported {
				t.Errorf("error %q: unsupported is %v", err, ok)
			}
		})
	}
}

// TestHarmless wants what changes nothing to be accepted.
func TestHarmless(t *testing.T) {
	for name, change := range map[string]func(*spec){
		"neutral knobs": func(s *spec) {
			s.meta["expert_count"], s.meta["logit_scale"], s.meta["attention.causal"] = uint32(0), float32(1), true
		},
		"equal layers":         func(s *spec) { s.meta["attention.head_count_kv"] = []uint32{2, 2} },
		"old rotation":         func(s *spec) { s.extra = map[string][]uint64{"blk.0.attn_rot_embd": {8}} },
		"key heads by default": func(s *spec) { s.kv = 4; s.meta["attention.head_count_kv"] = nil },
		"untied":               func(s *spec) { s.tied = false },
	} {
		s := small("llama")
		change(&s)
		m := load(t, s.file(t), model.Config{Level: tensor.Generic})
		if rows := eval(t, m, m.NewSession(), []int32{1, 2, 3}, 1); math.IsNaN(float64(rows[0][0])) {
			t.Errorf("%s: not a number", name)
		}
	}
}

// TestConfig wants configurations that make no sense to be refused, and what a
// model says about itself.
func TestConfig(t *testing.T) {
	s := small("qwen3", tensor.Q8_0)
	f := s.file(t)
	for name, cfg := range map[string]model.Config{
		"negative context":          {Context: -1},
		"huge context":              {Context: 1 << 30},
		"more sessions than tokens": {Context: 4, Sessions: 5},
		"negative sessions":         {Sessions: -1},
		"negative threads":          {Threads: -1},
		"a million threads":         {Threads: 1, BatchThreads: 1e6},
		"a level that is none":      {Level: tensor.Level(77)},
	} {
		if m, err := model.Load(f, cfg); err == nil {
			m.Close()
			t.Errorf("%s: no error", name)
		}
	}
	var reports []int64
	m := load(t, f, model.Config{Level: tensor.Detect(), Threads: 1, BatchThreads: 3, Sessions: 3,
		Progress: func(done, total int64) { reports = append(reports, done, total) }})
	if n := len(reports); n == 0 || reports[n-1] != reports[n-2] || !slices.IsSorted(everyOther(reports)) {
		t.Errorf("progress %v", reports)
	}
	if d, p := m.Threads(); d != 1 || p != 3 {
		t.Errorf("%d and %d threads", d, p)
	}
	m.SetThreads(9, 0)
	if d, p := m.Threads(); d != 3 || p != 3 {
		t.Errorf("%d and %d threads after SetThreads(9, 0)", d, p)
	}
	if m.Vocab() != s.vocab || m.Context() != s.context || m.Capacity() != s.context/3 || m.Width() != s.width ||
		m.Layers() != s.layers || m.Architecture() != s.arch || m.Parameters() == 0 || m.Bytes() == 0 {
		t.Errorf("the model says of itself: %d %d %d %d %d %q %d %d", m.Vocab(), m.Context(), m.Capacity(), m.Width(),
			m.Layers(), m.Architecture(), m.Parameters(), m.Bytes())
	}
}

func everyOther(list []int64) []int64 {
	var out []int64
	for i := 0; i < len(list); i += 2 {
		out = append(out, list[i])
	}
	return out
}

// TestPerplexity compares with the sum over rows of one Eval per window.
func TestPerplexity(t *testing.T) {
	s := small("llama", tensor.Q8_0)
	m := load(t, s.file(t), model.Config{Level: tensor.Detect()})
	ids := tokens(5, 3*90+40, s.vocab)
	const window, bos = 90, 7
	sum, count := 0.0, 0
	for i := range 3 {
		part := slices.Clone(ids[i*window : (i+1)*window])
		part[0] = bos
		a := m.NewSession()
		rows := eval(t, m, a, part, window)
		a.Close()
		for j := window / 2; j < window-1; j++ {
			sum -= logSoftmax(rows[j])[part[j+1]]
			count++
		}
	}
	var windows []int
	got, err := m.Perplexity(t.Context(), ids, model.PerplexityConfig{Window: window, BOS: bos,
		Progress: func(done, total int, p float64) { windows = append(windows, done, total) }})
	if err != nil {
		t.Fatal(err)
	}
	if want := math.Exp(sum / float64(count)); math.Abs(got/want-1) > 1e-5 {
		t.Errorf("perplexity %v, want %v", got, want)
	}
	if !slices.Equal(windows, []int{1, 3, 2, 3, 3, 3}) {
		t.Errorf("progress %v", windows)
	}
	for name, c := range map[string]struct {
		ids    []int32
		window int
	}{"short text": {ids[:80], 90}, "window over the context": {ids, 5000}, "window of one": {ids, 1}, "foreign token": {slices.Repeat([]int32{9999}, 90), 90}} {
		if _, err := m.Perplexity(t.Context(), c.ids, model.PerplexityConfig{Window: c.window, BOS: -1}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestNoLeak wants Close to end every goroutine that Load started.
func TestNoLeak(t *testing.T) {
	f := small("llama").file(t)
	before := runtime.NumGoroutine()
	for range 5 {
		m, err := model.Load(f, model.Config{Level: tensor.Generic, Threads: 4, BatchThreads: 4})
		if err != nil {
			t.Fatal(err)
		}
		eval(t, m, m.NewSession(), []int32{1, 2, 3}, 1)
		m.Close()
	}
	// Goroutines that have returned are counted for a moment longer.
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// FuzzConfig changes one metadata value. Load may refuse the file, and must run
// it when it does not.
func FuzzConfig(f *testing.F) {
	keys := []string{
		"block_count", "embedding_length", "feed_forward_length", "context_length", "attention.head_count",
		"attention.head_count_kv", "attention.key_length", "attention.value_length",
		"attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.freq_base", "rope.freq_base_swa",
		"rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
		"rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
		"attention.sliding_window", "attention.sliding_window_pattern", "final_logit_softcapping", "expert_count",
	}
	for i := range keys {
		f.Add(uint8(i), uint8(i), uint64(i), math.Float64bits(float64(i)), "yarn")
		f.Add(uint8(i), uint8(3), uint64(math.MaxUint64), math.Float64bits(math.Inf(1)), "")
	}
	kinds := slices.Sorted(maps.Keys(kindsOfValues(0, 0, "")))
	f.Fuzz(func(t *testing.T, arch, key uint8, n, bits uint64, word string) {
		s := small(architectures[int(arch)%len(architectures)])
		if s.arch == "gemma3" {
			s.meta["attention.sliding_window"] = uint32(5)
		}
		s.meta["rope.scaling.type"] = "yarn"
		s.meta["rope.scaling.factor"] = float32(2)
		kind := kinds[int(arch)/len(architectures)%len(kinds)]
		s.meta[keys[int(key)%len(keys)]] = kindsOfValues(n, math.Float64frombits(bits), word)[kind]
		m, err := model.Load(s.file(t), model.Config{Level: tensor.Detect(), Threads: 1, BatchThreads: 1})
		if err != nil {
			return
		}
		defer m.Close()
		steps := []model.Step{{Session: m.NewSession(), Tokens: []int32{1, 2, 3, 4, 5, 6, 7}, Logits: 2}}
		if err := m.Eval(t.Context(), steps); err != nil {
			if _, ok := errors.AsType[*model.ContextError](err); !ok {
				t.Fatal(err)
			}
		}
	})
}

// kindsOfValues returns a value of every kind that metadata can hold.
func kindsOfValues(n uint64, v float64, word string) map[string]any {
	return map[string]any{
		"uint8": uint8(n), "int8": int8(n), "uint32": uint32(n), "int32": int32(n), "uint64": n, "int64": int64(n),
		"float32": float32(v), "float64": v, "string": word, "bool": n%2 == 0, "bools": []bool{true, n%2 == 0, true},
		"uints": []uint32{uint32(n), uint32(n)}, "floats": []float32{float32(v)}, "no uints": []uint32{},
	}
}
