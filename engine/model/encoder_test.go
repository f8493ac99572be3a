package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onebit/engine/conversion"
	"onebit/engine/gguf"
	"onebit/engine/gguf/synth"
	"onebit/engine/model"
	"onebit/engine/tensor"
)

// sentences holds what an independent forward pass made of some texts.
type sentences struct {
	Origin string
	Cases  []struct {
		IDs    []int32
		Vector []float64
	}
}

func readSentences(t *testing.T) sentences {
	t.Helper()
	b, err := os.ReadFile("testdata/golden-minilm.json")
	if err != nil {
		t.Fatal(err)
	}
	var s sentences
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// minilm makes the sentence encoder from its publisher's files, with matrices of a type.
func minilm(t *testing.T, typ string) *gguf.File {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "1bit", "e2e", "minilm-53aa51172d14")
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("the sentence encoder is not here: %v; run e2e/minilm.sh", err)
	}
	path := filepath.Join(t.TempDir(), "minilm.gguf")
	if err := (conversion.Import{Dir: dir, Out: path, Type: typ}).Write(); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func loadEncoder(t *testing.T, f *gguf.File, cfg model.EncoderConfig) *model.Encoder {
	t.Helper()
	e, err := model.LoadEncoder(f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func cosine(a []float32, b []float64) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+float64(a[i])*b[i], aa+float64(a[i])*float64(a[i]), bb+b[i]*b[i]
	}
	return ab / math.Sqrt(aa*bb)
}

// TestSentences compares the vectors of a real model with those of an independent program, at every level.
func TestSentences(t *testing.T) {
	want := readSentences(t)
	for _, c := range []struct {
		typ   string
		least float64
	}{{"F32", 0.9999}, {"F16", 0.9999}, {"BF16", 0.9999}, {"Q8_0", 0.999}, {"Q5_0", 0.96}} {
		f := minilm(t, c.typ)
		for _, level := range tensor.Levels() {
			if level == tensor.Generic && c.typ != "Q8_0" {
				continue // slow; the kernels are compared with it by themselves
			}
			e := loadEncoder(t, f, model.EncoderConfig{Level: level})
			texts := make([]model.Text, len(want.Cases))
			for i, s := range want.Cases {
				texts[i].Tokens = s.IDs
			}
			if err := e.Encode(t.Context(), texts); err != nil {
				t.Fatal(err)
			}
			worst := 1.0
			for i, s := range want.Cases {
				worst = min(worst, cosine(texts[i].Out, s.Vector))
			}
			t.Logf("%s at %v: the least cosine is %.6f", c.typ, level, worst)
			if worst < c.least {
				t.Errorf("%s at %v: a cosine of %.6f, under %g", c.typ, level, worst, c.least)
			}
		}
	}
}

// synthetic returns a tiny encoder as an open file.
func synthetic(t testing.TB, s synth.EncoderSpec) *gguf.File {
	t.Helper()
	b, err := synth.EncoderBytes(s)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// someTokens returns n tokens that follow from a seed.
func someTokens(seed, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((seed*7919 + i*i*31 + i*17) % 200)
	}
	return ids
}

// TestEncoderFormulas compares every architecture, pooling and storage type with the plain formulas, at every level.
func TestEncoderFormulas(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*synth.EncoderSpec)
		least  float64
	}{
		{"mean", func(*synth.EncoderSpec) {}, 0.999999},
		{"first", func(s *synth.EncoderSpec) { s.Pooling = 2 }, 0.999999},
		{"last", func(s *synth.EncoderSpec) { s.Pooling = 3 }, 0.999999},
		{"rank", func(s *synth.EncoderSpec) { s.Pooling, s.Scores = 4, 5 }, 0.999999},
		{"fused", func(s *synth.EncoderSpec) { s.Fused = true }, 0.999999},
		{"rotated", func(s *synth.EncoderSpec) { s.Arch, s.Fused = "nomic-bert", true }, 0.999999},
		{"apart", func(s *synth.EncoderSpec) { s.Arch = "nomic-bert" }, 0.999999},
		{"odd sizes", func(s *synth.EncoderSpec) { s.Width, s.Heads, s.FFN = 76, 4, 100 }, 0.999999},
		{"odd sizes fused", func(s *synth.EncoderSpec) { s.Width, s.Heads, s.FFN, s.Fused = 76, 4, 100, true }, 0.999999},
		{"F16", func(s *synth.EncoderSpec) { s.Type = tensor.F16 }, 0.99999},
		{"Q8_0", func(s *synth.EncoderSpec) { s.Type = tensor.Q8_0 }, 0.999},
		{"Q4_0", func(s *synth.EncoderSpec) { s.Type = tensor.Q4_0 }, 0.999},
		{"Q6_K", func(s *synth.EncoderSpec) { s.Type, s.Width, s.FFN, s.Heads = tensor.Q6_K, 256, 512, 4 }, 0.999},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := synth.TinyEncoder("bert", tensor.F32)
			c.change(&s)
			f := synthetic(t, s)
			n := newNaive(t, f)
			var texts []model.Text
			var want [][]float64
			for i, length := range []int{1, 2, 17, 64, 65, 128} {
				texts = append(texts, model.Text{Tokens: someTokens(i, length), Second: i % 2 * length / 2})
				want = append(want, n.pooled(n.encode(texts[i].Tokens, texts[i].Second), s.Pooling))
			}
			for _, level := range tensor.Levels() {
				e := loadEncoder(t, f, model.EncoderConfig{Level: level})
				if err := e.Encode(t.Context(), texts); err != nil {
					t.Fatal(err)
				}
				for i := range texts {
					if len(texts[i].Out) != len(want[i]) {
						t.Fatalf("%v: %d values, not %d", level, len(texts[i].Out), len(want[i]))
					}
					if got := cosine(texts[i].Out, want[i]); !(got >= c.least) {
						t.Errorf("%v: %d tokens: a cosine of %.7f, under %g", level, len(texts[i].Tokens), got, c.least)
					}
				}
			}
		})
	}
}

// TestEncoderSameBits: a text has the same vector alone, among others, and with any number of workers.
func TestEncoderSameBits(t *testing.T) {
	for _, typ := range []tensor.Type{tensor.F32, tensor.Q8_0} {
		f := synthetic(t, synth.TinyEncoder("bert", typ))
		var texts []model.Text
		for i := range 40 {
			texts = append(texts, model.Text{Tokens: someTokens(i, 1+i*13%128), Each: i%5 == 4})
		}
		var first []model.Text
		for _, threads := range []int{1, 2, 3, 8} {
			e := loadEncoder(t, f, model.EncoderConfig{Threads: threads, Level: tensor.Detect()})
			all := slices.Clone(texts)
			if err := e.Encode(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = all
			}
			for i := range all {
				one := []model.Text{{Tokens: texts[i].Tokens, Each: texts[i].Each}}
				if err := e.Encode(t.Context(), one); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(all[i].Out, first[i].Out) || !slices.Equal(one[0].Out, first[i].Out) {
					t.Fatalf("%v, %d workers: text %d has other bits, together %v, alone %v", typ, threads, i,
						!slices.Equal(all[i].Out, first[i].Out), !slices.Equal(one[0].Out, first[i].Out))
				}
				if want := e.Width() * len(texts[i].Tokens); texts[i].Each && len(one[0].Out) != want {
					t.Fatalf("%d values for the tokens, not %d", len(one[0].Out), want)
				}
			}
		}
	}
}

func TestEncoderRefusesTexts(t *testing.T) {
	e := loadEncoder(t, synthetic(t, synth.TinyEncoder("bert", tensor.F32)), model.EncoderConfig{Level: tensor.Detect()})
	good := model.Text{Tokens: someTokens(1, 128)}
	for name, bad := range map[string][]int32{"empty": nil, "too long": someTokens(1, 129), "negative": {-1}, "foreign": {int32(e.Vocab())}} {
		texts := []model.Text{good, {Tokens: bad}}
		err := e.Encode(t.Context(), texts)
		long, isLong := errors.AsType[*model.ContextError](err)
		if err == nil || isLong != (name == "too long") || texts[0].Out != nil {
			t.Errorf("%s: %v", name, err)
		}
		if isLong && (long.Tokens != 129 || long.Capacity != 128) {
			t.Errorf("%s: %+v", name, long)
		}
	}
	if err := e.Encode(t.Context(), []model.Text{{Tokens: good.Tokens, Second: 129}}); err == nil {
		t.Error("a second part behind the text was taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Encode(ctx, []model.Text{good}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	e.Close()
	e.Close()
	if err := e.Encode(t.Context(), []model.Text{good}); !errors.Is(err, model.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestEncoderRefusesFiles wants files to be refused with a reason that names the trouble.
func TestEncoderRefusesFiles(t *testing.T) {
	change := func(f *gguf.File, key string, value any, drop string) *gguf.File {
		w := gguf.NewWriter()
		for _, k := range f.Keys() {
			v, _ := f.Value(k)
			if k == key {
				v = value
			}
			if v != nil {
				if err := w.Set(k, v); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, ok := f.Value(key); !ok && key != "" {
			if err := w.Set(key, value); err != nil {
				t.Fatal(err)
			}
		}
		for _, x := range f.Tensors() {
			if x.Name == drop {
				continue
			}
			if err := w.Add(x.Name, x.Type, x.Shape, x.Data()); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := w.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		g, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		return g
	}
	plain := synthetic(t, synth.TinyEncoder("bert", tensor.F32))
	for _, c := range []struct {
		name        string
		file        *gguf.File
		unsupported bool
		want        string
	}{
		{"architecture", change(plain, "general.architecture", "modern-bert", ""), true, `"modern-bert"`},
		{"causal", change(plain, "bert.attention.causal", true, ""), true, "causal"},
		{"pooling", change(plain, "bert.pooling_type", uint32(9), ""), false, "pooling_type"},
		{"ranks without a head", change(plain, "bert.pooling_type", uint32(4), ""), true, "cls.output.weight"},
		{"no eps", change(plain, "bert.attention.layer_norm_epsilon", nil, ""), false, "layer_norm_epsilon"},
		{"heads", change(plain, "bert.attention.head_count", uint32(5), ""), false, "5 heads"},
		{"key heads", change(plain, "bert.attention.head_count_kv", uint32(1), ""), true, "1 key heads"},
		{"experts", change(plain, "bert.expert_count", uint32(8), ""), true, "expert_count"},
		{"context", change(plain, "bert.context_length", uint32(129), ""), false, "position_embd.weight"},
		{"endless context", change(plain, "bert.context_length", uint32(1<<30), ""), false, "context_length"},
		{"fewer layers", change(plain, "bert.block_count", uint32(1), ""), true, `"blk.1.`},
		{"more layers", change(plain, "bert.block_count", uint32(3), ""), false, `"blk.2.`},
		{"no norm", change(plain, "", nil, "blk.0.attn_output_norm.weight"), false, "attn_output_norm"},
		{"no embedding", change(plain, "", nil, "token_embd.weight"), false, "token_embd"},
		{"no positions", change(plain, "", nil, "position_embd.weight"), false, "position_embd"},
	} {
		_, err := model.LoadEncoder(c.file, model.EncoderConfig{Level: tensor.Detect()})
		if _, is := errors.AsType[*model.UnsupportedError](err); err == nil || is != c.unsupported || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestNormalize(t *testing.T) {
	v := []float32{3, 0, -4}
	if model.Normalize(v); !slices.Equal(v, []float32{0.6, 0, -0.8}) {
		t.Errorf("%v", v)
	}
	zero := []float32{0, 0}
	if model.Normalize(zero); !slices.Equal(zero, []float32{0, 0}) {
		t.Errorf("%v", zero)
	}
}

// FuzzEncoder loads what is left of a small file after some of its bytes were changed, and encodes with it what can be
// loaded: no byte may make it panic.
func FuzzEncoder(f *testing.F) {
	s := synth.TinyEncoder("bert", tensor.F32)
	s.Layers, s.Width, s.FFN, s.Heads, s.Context, s.Pooling, s.Scores = 1, 32, 32, 2, 16, 4, 1
	whole, err := synth.EncoderBytes(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), byte(0))
	f.Add(uint32(180), byte(7))
	f.Fuzz(func(t *testing.T, at uint32, value byte) {
		b := slices.Clone(whole)
		b[int(at)%len(b)] ^= value
		file, err := gguf.Parse(b)
		if err != nil {
			return
		}
		e, err := model.LoadEncoder(file, model.EncoderConfig{Threads: 1, Level: tensor.Detect()})
		if err != nil {
			return
		}
		defer e.Close()
		if err := e.Encode(t.Context(), []model.Text{{Tokens: []int32{2, 3}}, {Tokens: []int32{5}, Each: true}}); err != nil && e.Vocab() > 5 {
			t.Error(err)
		}
	})
}
