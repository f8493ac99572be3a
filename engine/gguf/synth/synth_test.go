package synth_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/gguf"
	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

var architectures = []string{"llama", "qwen2", "qwen3", "gemma3"}

func open(t *testing.T, s synth.Spec) *gguf.File {
	t.Helper()
	b, err := synth.Bytes(s)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSameSpecSameBytes(t *testing.T) {
	for _, arch := range architectures {
		s := synth.Tiny(arch, tensor.Q8_0)
		a, err := synth.Bytes(s)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := synth.Bytes(s); !bytes.Equal(a, b) {
			t.Errorf("%s: two files of one description differ", arch)
		}
		s.Seed++
		if b, _ := synth.Bytes(s); bytes.Equal(a, b) {
			t.Errorf("%s: the seed makes no difference", arch)
		}
	}
}

func TestEveryTypeOfEveryArchitecture(t *testing.T) {
	for _, arch := range architectures {
		for _, kind := range tensor.Types() {
			s := synth.Wide(arch, kind)
			s.Layers = 1
			f := open(t, s)
			if f.Architecture() != arch || len(f.Unknown()) > 0 {
				t.Errorf("%s %v: architecture %q", arch, kind, f.Architecture())
			}
			for name, shape := range map[string][]uint64{
				"token_embd.weight":        {256, 523},
				"blk.0.attn_q.weight":      {256, 256},
				"blk.0.attn_k.weight":      {256, 128},
				"blk.0.ffn_down.weight":    {512, 256},
				"blk.0.attn_norm.weight":   {256},
				"output_norm.weight":       {256},
				"blk.0.attn_output.weight": {256, 256},
			} {
				m := f.Tensor(name)
				if m == nil || !cmp.Equal(m.Shape, shape) {
					t.Fatalf("%s %v: tensor %s is %+v", arch, kind, name, m)
				}
				want := gguf.Type(kind)
				if len(shape) == 1 {
					want = gguf.F32
				}
				if m.Type != want {
					t.Errorf("%s %v: %s is %v", arch, kind, name, m.Type)
				}
			}
		}
	}
}

// The mix of the 0.5B's Q4_K_M file: narrow rows fall back, some matrices get
// more bits.
func TestMixOfTypes(t *testing.T) {
	s := synth.QwenHalfB(tensor.Q4_K)
	s.Width, s.Heads, s.HeadDim, s.KVHeads, s.FFN, s.Vocab = 32, 2, 16, 1, 256, 400
	count := map[string]int{}
	for _, m := range open(t, s).Tensors() {
		count[m.Type.String()]++
	}
	want := map[string]int{"Q5_0": 133, "Q8_0": 13, "Q6_K": 12, "Q4_K": 12, "F32": 121}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("types differ (-want +got):\n%s", diff)
	}
}

func TestOverriddenType(t *testing.T) {
	s := synth.Tiny("llama", tensor.Q4_0)
	s.Types = map[string]tensor.Type{"ffn_down": tensor.Q5_1, "token_embd": tensor.F16}
	f := open(t, s)
	for name, want := range map[string]gguf.Type{
		"blk.1.ffn_down.weight": gguf.Q5_1, "token_embd.weight": gguf.F16, "blk.1.ffn_up.weight": gguf.Q4_0,
	} {
		if got := f.Tensor(name).Type; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

func TestRowsRepeat(t *testing.T) {
	s := synth.Tiny("qwen2", tensor.Q8_0)
	all := open(t, s).Tensor("blk.0.ffn_up.weight").Data()
	s.Distinct = 40
	some := open(t, s).Tensor("blk.0.ffn_up.weight").Data()
	row := len(all) / s.FFN
	for i := range s.FFN {
		from := i % 40 * row
		if !bytes.Equal(some[i*row:(i+1)*row], all[from:from+row]) {
			t.Fatalf("row %d does not repeat row %d", i, i%40)
		}
	}
}

func TestWeightsAreSpreadAsWanted(t *testing.T) {
	f := open(t, synth.Wide("gemma3", tensor.F32))
	for _, c := range []struct {
		name      string
		mean, dev float64
	}{
		{"blk.0.ffn_down.weight", 0, 1 / math.Sqrt(512)},
		{"blk.0.attn_v.weight", 0, 1 / math.Sqrt(256)},
		{"blk.0.post_ffw_norm.weight", 2, 0.2},
		{"blk.3.attn_norm.weight", 1, 0.1},
	} {
		m := f.Tensor(c.name)
		values := make([]float32, m.Elements())
		if err := tensor.Dequantize(tensor.F32, m.Data(), values); err != nil {
			t.Fatal(err)
		}
		var sum, squares float64
		for _, v := range values {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		n := float64(len(values))
		mean := sum / n
		dev := math.Sqrt(squares/n - mean*mean)
		if math.Abs(mean-c.mean) > 5*c.dev/math.Sqrt(n) || math.Abs(dev/c.dev-1) > 4/math.Sqrt(n) {
			t.Errorf("%s: mean %.4f, deviation %.4f, want %.4f and %.4f", c.name, mean, dev, c.mean, c.dev)
		}
	}
}

func TestTensorsOfArchitectures(t *testing.T) {
	for _, c := range []struct {
		spec       synth.Spec
		has, lacks []string
	}{
		{synth.Tiny("llama", tensor.F32),
			[]string{"output.weight"},
			[]string{"rope_freqs.weight", "blk.0.attn_q.bias", "blk.0.attn_q_norm.weight"}},
		{synth.Tiny("qwen2", tensor.F32),
			[]string{"blk.2.attn_q.bias", "blk.2.attn_k.bias", "blk.2.attn_v.bias"},
			[]string{"blk.2.attn_output.bias"}},
		{synth.Tiny("qwen3", tensor.F32),
			[]string{"blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"},
			[]string{"blk.0.attn_q.bias", "blk.0.post_ffw_norm.weight"}},
		{synth.Tiny("gemma3", tensor.F32),
			[]string{"blk.5.post_attention_norm.weight", "blk.5.post_ffw_norm.weight"},
			[]string{"output.weight"}},
	} {
		f := open(t, c.spec)
		for _, name := range c.has {
			if f.Tensor(name) == nil {
				t.Errorf("%s lacks %s", c.spec.Arch, name)
			}
		}
		for _, name := range c.lacks {
			if f.Tensor(name) != nil {
				t.Errorf("%s has %s", c.spec.Arch, name)
			}
		}
	}
}

func TestRopeKeys(t *testing.T) {
	s := synth.Tiny("llama", tensor.F32)
	s.Rope = synth.Rope{Base: 5000, Scaling: "yarn", Factor: 4, Original: 128, Freqs: true}
	f := open(t, s)
	base, _ := f.Float("llama.rope.freq_base")
	scaling, _ := f.String("llama.rope.scaling.type")
	factor, _ := f.Float("llama.rope.scaling.factor")
	original, _ := f.Uint("llama.rope.scaling.original_context_length")
	if base != 5000 || scaling != "yarn" || factor != 4 || original != 128 {
		t.Errorf("base %v, scaling %q by %v from %d", base, scaling, factor, original)
	}
	if m := f.Tensor("rope_freqs.weight"); m == nil || m.Elements() != 16 {
		t.Errorf("rope_freqs.weight is %+v", m)
	}
}

func TestVocabularies(t *testing.T) {
	for _, c := range []struct{ arch, tokenizer, model, pre string }{
		{"llama", "", "gpt2", "llama-bpe"},
		{"llama", "gpt-2", "gpt2", "gpt-2"},
		{"llama", "spm", "llama", "default"},
		{"qwen2", "", "gpt2", "qwen2"},
		{"qwen3", "", "gpt2", "qwen2"},
		{"gemma3", "", "llama", "default"},
	} {
		s := synth.Tiny(c.arch, tensor.F32)
		s.Layers, s.Tokenizer = 1, c.tokenizer
		f := open(t, s)
		model, _ := f.String("tokenizer.ggml.model")
		pre, _ := f.String("tokenizer.ggml.pre")
		if model != c.model || pre != c.pre {
			t.Errorf("%s %s: model %q, pre %q", c.arch, c.tokenizer, model, pre)
		}
		tokens, _ := f.Strings("tokenizer.ggml.tokens")
		kinds, _ := f.Ints("tokenizer.ggml.token_type")
		if len(tokens) != s.Vocab || len(kinds) != s.Vocab {
			t.Fatalf("%s %s: %d tokens, %d kinds", c.arch, c.tokenizer, len(tokens), len(kinds))
		}
		ids := map[string]int{}
		for i, token := range tokens {
			if _, twice := ids[token]; twice {
				t.Errorf("%s %s: token %q is there twice", c.arch, c.tokenizer, token)
			}
			ids[token] = i
		}
		for _, key := range []string{"bos_token_id", "eos_token_id"} {
			id, ok := f.Uint("tokenizer.ggml." + key)
			if !ok || kinds[id] != 3 {
				t.Errorf("%s %s: %s is %d", c.arch, c.tokenizer, key, id)
			}
		}
		if scores, ok := f.Floats("tokenizer.ggml.scores"); ok != (model == "llama") || ok && len(scores) != s.Vocab {
			t.Errorf("%s %s: %d scores", c.arch, c.tokenizer, len(scores))
		}
		checkMerges(t, f, ids)
		if text, _ := f.String("tokenizer.chat_template"); !strings.Contains(text, "<|im_start|>") || ids["<|im_start|>"] == 0 {
			t.Errorf("%s %s: chat template %q", c.arch, c.tokenizer, text)
		}
	}
}

// checkMerges demands that merges join tokens to tokens.
func checkMerges(t *testing.T, f *gguf.File, ids map[string]int) {
	t.Helper()
	merges, _ := f.Strings("tokenizer.ggml.merges")
	if model, _ := f.String("tokenizer.ggml.model"); (model == "gpt2") != (len(merges) > 50) {
		t.Errorf("%s: %d merges", model, len(merges))
	}
	for _, m := range merges {
		a, b, _ := strings.Cut(m, " ")
		for _, part := range []string{a, b, a + b} {
			if _, ok := ids[part]; !ok {
				t.Errorf("merge %q: no token %q", m, part)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, spoil := range map[string]func(*synth.Spec){
		"architecture": func(s *synth.Spec) { s.Arch = "gpt9" },
		"size":         func(s *synth.Spec) { s.FFN = 0 },
		"heads":        func(s *synth.Spec) { s.KVHeads = 2 },
		"width":        func(s *synth.Spec) { s.HeadDim = 16 },
		"vocabulary":   func(s *synth.Spec) { s.Vocab = 300 },
		"window":       func(s *synth.Spec) { s.Window = 8 },
		"tokenizer":    func(s *synth.Spec) { s.Tokenizer = "x" },
		"scaling":      func(s *synth.Spec) { s.Rope.Scaling = "x" },
		"override":     func(s *synth.Spec) { s.Types = map[string]tensor.Type{"ffn_up": 99} },
		"type":         func(s *synth.Spec) { s.Type = 99 },
	} {
		s := synth.Tiny("llama", tensor.F32)
		spoil(&s)
		if _, err := synth.Model(s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestGolden(t *testing.T) {
	s := synth.Tiny("llama", tensor.F32)
	file, err := synth.Bytes(s)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(file)
	g := synth.Golden{SHA256: hex.EncodeToString(sum[:]), Spec: s, Tokens: []int32{1},
		Steps: []synth.Step{{IDs: []int32{7}, LogProbs: []float32{-0.5}}}}
	b, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "g.json")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	again, err := synth.ReadGolden(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&g, again); diff != "" {
		t.Errorf("golden differs (-want +got):\n%s", diff)
	}
	if made, err := again.Model(); err != nil || !slices.Equal(made, file) {
		t.Errorf("the model differs, error %v", err)
	}
	again.Spec.Seed++
	if _, err := again.Model(); err == nil {
		t.Error("another model passed for the golden one")
	}
}

func TestEncoder(t *testing.T) {
	for _, arch := range []string{"bert", "nomic-bert"} {
		s := synth.TinyEncoder(arch, tensor.Q8_0)
		s.Pooling, s.Scores = 4, 3
		b, err := synth.EncoderBytes(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := synth.EncoderBytes(s)
		if err != nil || !bytes.Equal(b, again) {
			t.Errorf("%s: the same spec gave another file, %v", arch, err)
		}
		f, err := gguf.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := f.Uint(arch + ".pooling_type"); n != 4 || len(f.Unknown()) > 0 || f.Tensor("cls.output.weight") == nil {
			t.Errorf("%s: pooling %d, unknown %v", arch, n, f.Unknown())
		}
	}
	for name, spoil := range map[string]func(*synth.EncoderSpec){
		"architecture": func(s *synth.EncoderSpec) { s.Arch = "llama" },
		"heads":        func(s *synth.EncoderSpec) { s.Heads = 7 },
		"layers":       func(s *synth.EncoderSpec) { s.Layers = 0 },
		"block":        func(s *synth.EncoderSpec) { s.Type, s.Width = tensor.Type(99), 96 },
	} {
		s := synth.TinyEncoder("bert", tensor.F32)
		spoil(&s)
		if _, err := synth.Encoder(s); err == nil {
			t.Errorf("%s: a bad spec was taken", name)
		}
	}
}
