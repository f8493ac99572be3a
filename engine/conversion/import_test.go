package conversion_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/conversion"
	"onebit/engine/gguf"
	"onebit/engine/gguf/synth"
	"onebit/engine/model"
	"onebit/engine/tensor"
	"onebit/engine/tokenizer"
)

// logits returns what a model expects after each of some tokens.
func logits(t *testing.T, f *gguf.File, tokens []int32) [][]float32 {
	t.Helper()
	m, err := model.Load(f, model.Config{Context: 64, Sessions: 1, Threads: 1, BatchThreads: 1, Level: tensor.Generic})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := m.NewSession()
	defer s.Close()
	steps := []model.Step{{Session: s, Tokens: tokens, Logits: len(tokens)}}
	if err := m.Eval(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	var rows [][]float32
	for _, row := range steps[0].Out {
		rows = append(rows, append([]float32(nil), row...))
	}
	return rows
}

func encode(t *testing.T, f *gguf.File, text string) []int32 {
	t.Helper()
	k, err := tokenizer.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return k.Encode(text, tokenizer.Options{AddSpecial: true, ParseSpecial: true})
}

// TestImport publishes synthetic models and imports them again: the outcome must be the file they were made of.
func TestImport(t *testing.T) {
	specs := map[string]synth.Spec{}
	for _, arch := range []string{"llama", "qwen2", "qwen3", "gemma3"} {
		specs[arch] = synth.Tiny(arch, tensor.F32)
	}
	tied := synth.Tiny("qwen2", tensor.F32)
	tied.Tied = true
	specs["tied"] = tied
	pairs := synth.Tiny("llama", tensor.F32)
	pairs.Tokenizer = "llama-bpe"
	specs["llama-bpe"] = pairs
	gpt2 := synth.Tiny("llama", tensor.F32)
	gpt2.Tokenizer = "gpt-2"
	specs["gpt-2"] = gpt2
	for name, s := range specs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			original := synthetic(t, s)
			out := filepath.Join(t.TempDir(), "model.gguf")
			if err := (conversion.Import{Dir: publish(t, original, s), Out: out, Log: t.Logf}).Write(); err != nil {
				t.Fatal(err)
			}
			f := open(t, out)
			tolerance := 0.0
			if s.Arch == "gemma3" {
				tolerance = 1e-6 // of taking one from a norm and adding it again
			}
			if got, want := len(f.Tensors()), len(original.Tensors()); got != want {
				t.Errorf("%d tensors instead of %d", got, want)
			}
			for _, want := range original.Tensors() {
				got := f.Tensor(want.Name)
				if got == nil {
					t.Fatalf("no tensor %s", want.Name)
				}
				if diff := cmp.Diff(want.Shape, got.Shape); diff != "" {
					t.Fatalf("%s: shape differs:\n%s", want.Name, diff)
				}
				if err := near(floats(t, got), floats(t, want), tolerance); err != nil {
					t.Fatalf("%s: %v", want.Name, err)
				}
			}
			if template(f) != template(original) || template(f) == "" {
				t.Error("the chat template is another")
			}
			for _, text := range []string{"The quick brown fox, 1234 times.", " two  spaces\n\nÄpfel 🦙", "<|im_start|>user\nhi<|im_end|>", ""} {
				if diff := cmp.Diff(encode(t, original, text), encode(t, f, text)); diff != "" {
					t.Errorf("tokens of %q differ (-want +got):\n%s", text, diff)
				}
			}
			want, got := logits(t, original, []int32{5, 300, 7, 41}), logits(t, f, []int32{5, 300, 7, 41})
			for i := range want {
				if err := near(got[i], want[i], 1000*tolerance); err != nil {
					t.Errorf("logits at %d: %v", i, err)
				}
			}
		})
	}
}

func TestImportTypes(t *testing.T) {
	s := synth.Tiny("qwen3", tensor.F32)
	dir := publish(t, synthetic(t, s), s)
	for _, tt := range []struct {
		kind           string
		matrix, tokens gguf.Type
	}{{"f16", gguf.F16, gguf.F16}, {"BF16", gguf.BF16, gguf.BF16}, {"Q8_0", gguf.Q8_0, gguf.Q8_0}, {"Q4_0", gguf.Q4_0, gguf.Q8_0}, {"Q6_K", gguf.F16, gguf.Q8_0}} {
		out := filepath.Join(t.TempDir(), "model.gguf")
		if err := (conversion.Import{Dir: dir, Out: out, Type: tt.kind}).Write(); err != nil {
			t.Fatal(err)
		}
		f := open(t, out)
		for name, want := range map[string]gguf.Type{
			"blk.0.ffn_up.weight": tt.matrix, "token_embd.weight": tt.tokens, "output.weight": tt.tokens, "output_norm.weight": gguf.F32,
		} {
			if got := f.Tensor(name).Type; got != want {
				t.Errorf("%s: %s is %v, not %v", tt.kind, name, got, want)
			}
		}
		logits(t, f, []int32{1, 2}) // it loads
	}
}

// TestImportShards splits the weights over two files.
func TestImportShards(t *testing.T) {
	s := synth.Tiny("qwen2", tensor.F32)
	f := synthetic(t, s)
	dir := publish(t, f, s)
	list := weights(t, f, s)
	index := map[string]string{}
	for i, p := range list {
		index[p.name] = "model-00001-of-00002.safetensors"
		if i >= len(list)/2 {
			index[p.name] = "model-00002-of-00002.safetensors"
		}
	}
	if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "model.safetensors.index.json", map[string]any{"weight_map": index})
	put(t, dir, "model-00001-of-00002.safetensors", safetensors(list[:len(list)/2]))
	put(t, dir, "model-00002-of-00002.safetensors", safetensors(list[len(list)/2:]))
	out := filepath.Join(t.TempDir(), "model.gguf")
	if err := (conversion.Import{Dir: dir, Out: out}).Write(); err != nil {
		t.Fatal(err)
	}
	if got := len(open(t, out).Tensors()); got != len(list) {
		t.Errorf("%d tensors instead of %d", got, len(list))
	}
	put(t, dir, "model.safetensors.index.json", map[string]any{"weight_map": map[string]string{"x": "../evil.safetensors"}})
	if err := (conversion.Import{Dir: dir, Out: out + "2"}).Write(); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("a file outside of the folder: %v", err)
	}
}

func TestImportRopeFactors(t *testing.T) {
	s := synth.Tiny("llama", tensor.F32)
	dir := publish(t, synthetic(t, s), s)
	edit(t, dir, "config.json", func(m map[string]any) {
		m["rope_theta"] = 500000.0
		m["rope_scaling"] = map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}
	})
	out := filepath.Join(t.TempDir(), "model.gguf")
	if err := (conversion.Import{Dir: dir, Out: out}).Write(); err != nil {
		t.Fatal(err)
	}
	v := floats(t, open(t, out).Tensor("rope_freqs.weight"))
	// of 16 frequencies with wave lengths from 6.3 to 1.4 million: under 2048 one, over 8192 eight
	if len(v) != s.HeadDim/2 || v[0] != 1 || v[7] != 1 || v[15] != 8 || !(v[8] > 1 && v[8] < 8) {
		t.Errorf("factors %v", v)
	}
}

func TestImportRefuses(t *testing.T) {
	s := synth.Tiny("qwen2", tensor.F32)
	original := synthetic(t, s)
	set := func(key string, value any) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			edit(t, dir, "config.json", func(m map[string]any) { m[key] = value })
		}
	}
	tests := []struct {
		name, want string
		spoil      func(t *testing.T, dir string)
	}{
		{"architecture", "model_type \"mamba\"", set("model_type", "mamba")},
		{"layers", "num_hidden_layers", set("num_hidden_layers", 0)},
		{"missing layer", "lack", set("num_hidden_layers", 4)},
		{"extra layer", "is not one that qwen2 has", set("num_hidden_layers", 2)},
		{"window", "use_sliding_window", set("use_sliding_window", true)},
		{"quantised", "quantization_config", set("quantization_config", map[string]any{"bits": 4})},
		{"activation", "activation \"relu\"", set("hidden_act", "relu")},
		{"rope", "rope scaling \"dynamic\"", set("rope_scaling", map[string]any{"type": "dynamic", "factor": 2})},
		{"partial rotation", "partial_rotary_factor", set("partial_rotary_factor", 0.5)},
		{"no tokenizer", "lacks tokenizer.json", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "tokenizer.json")) }},
		{"no weights", "lacks model.safetensors", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "model.safetensors")) }},
		{"pre-tokenizer", "give its name with --pre", func(t *testing.T, dir string) {
			edit(t, dir, "tokenizer.json", func(m map[string]any) {
				m["pre_tokenizer"] = map[string]any{"type": "Sequence", "pretokenizers": []any{
					map[string]any{"type": "Split", "pattern": map[string]any{"Regex": "x+"}, "behavior": "Isolated"}, map[string]any{"type": "ByteLevel", "use_regex": false},
				}}
			})
		}},
		{"token beyond the embedding", "rows", func(t *testing.T, dir string) {
			edit(t, dir, "tokenizer.json", func(m map[string]any) {
				m["added_tokens"] = append(m["added_tokens"].([]any), map[string]any{"id": 9999, "content": "x!"})
			})
		}},
		{"unigram", "not one of BPE and WordPiece", func(t *testing.T, dir string) {
			edit(t, dir, "tokenizer.json", func(m map[string]any) { m["model"].(map[string]any)["type"] = "Unigram" })
		}},
		{"foreign tensor", "router.weight", func(t *testing.T, dir string) {
			list := append(weights(t, original, s), published{"model.layers.0.mlp.router.weight", "F32", []int64{1}, make([]byte, 4)})
			put(t, dir, "model.safetensors", safetensors(list))
		}},
		{"no number", "no number", func(t *testing.T, dir string) {
			list := weights(t, original, s)
			copy(list[0].data, []byte{0, 0, 0xc0, 0x7f})
			put(t, dir, "model.safetensors", safetensors(list))
		}},
		{"cut short", "damaged safetensors", func(t *testing.T, dir string) {
			b := safetensors(weights(t, original, s))
			put(t, dir, "model.safetensors", b[:len(b)-1])
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, to := publish(t, original, s), t.TempDir()
			tt.spoil(t, dir)
			err := conversion.Import{Dir: dir, Out: filepath.Join(to, "model.gguf")}.Write()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if left := leftovers(t, to); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
	dir := publish(t, original, s)
	out := filepath.Join(t.TempDir(), "model.gguf")
	if err := (conversion.Import{Dir: dir, Out: out, Pre: "nobody's"}).Write(); err == nil || !strings.Contains(err.Error(), "unknown pre-tokenizer") {
		t.Errorf("a made-up pre-tokenizer: %v", err)
	}
	if err := (conversion.Import{Dir: dir, Out: out, Type: "Q9"}).Write(); err == nil || !strings.Contains(err.Error(), "is not one of") {
		t.Errorf("a made-up type: %v", err)
	}
}

// bertFolder writes a tiny cross-encoder.
func bertFolder(t *testing.T, arch string) string {
	t.Helper()
	const width, ffn, layers = 32, 64, 2
	words := []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s", "!"}
	var list []published
	add := func(name string, shape ...int64) {
		n := int64(1)
		for _, d := range shape {
			n *= d
		}
		b := make([]byte, 4*n)
		for i := range n {
			if err := tensor.Quantize(tensor.F32, []float32{float32((i*7+int64(len(list)))%13)/13 - 0.5}, b[4*i:4*i+4]); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, published{name, "F32", shape, b})
	}
	both := func(name string, shape ...int64) {
		add("bert."+name+".weight", shape...)
		add("bert."+name+".bias", shape[0])
	}
	add("bert.embeddings.word_embeddings.weight", int64(len(words)), width)
	add("bert.embeddings.position_embeddings.weight", 16, width)
	add("bert.embeddings.token_type_embeddings.weight", 2, width)
	add("bert.embeddings.LayerNorm.gamma", width)
	add("bert.embeddings.LayerNorm.beta", width)
	for _, layer := range []string{"0", "1"} {
		p := "encoder.layer." + layer + "."
		for _, part := range []string{"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"} {
			both(p+part, width, width)
		}
		both(p+"attention.output.LayerNorm", width)
		both(p+"intermediate.dense", ffn, width)
		both(p+"output.dense", width, ffn)
		both(p+"output.LayerNorm", width)
	}
	both("pooler.dense", width, width)
	if arch == "BertForSequenceClassification" {
		add("classifier.weight", 1, width)
		add("classifier.bias", 1)
	}
	dir := t.TempDir()
	put(t, dir, "model.safetensors", safetensors(list))
	put(t, dir, "vocab.txt", strings.Join(words, "\n")+"\n")
	put(t, dir, "tokenizer_config.json", map[string]any{"do_lower_case": true, "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"})
	put(t, dir, "config.json", map[string]any{
		"model_type": "bert", "architectures": []string{arch}, "num_hidden_layers": layers, "hidden_size": width, "intermediate_size": ffn,
		"num_attention_heads": 4, "max_position_embeddings": 16, "layer_norm_eps": 1e-12, "type_vocab_size": 2, "hidden_act": "gelu", "vocab_size": len(words),
	})
	return dir
}

func TestImportBert(t *testing.T) {
	for _, tt := range []struct {
		arch    string
		pooling any // of 1_Pooling/config.json
		want    uint64
		tensors int
	}{
		{"BertModel", map[string]any{"pooling_mode_mean_tokens": true}, 1, 5 + 2*16},
		{"BertModel", map[string]any{"pooling_mode_cls_token": true}, 2, 5 + 2*16},
		{"BertModel", nil, 0, 5 + 2*16},
		{"BertForSequenceClassification", nil, 4, 5 + 2*16 + 4},
	} {
		dir := bertFolder(t, tt.arch)
		if tt.pooling != nil {
			put(t, dir, "1_Pooling/config.json", tt.pooling)
		}
		out := filepath.Join(t.TempDir(), "model.gguf")
		if err := (conversion.Import{Dir: dir, Out: out, Log: t.Logf}).Write(); err != nil {
			t.Fatal(err)
		}
		f := open(t, out)
		if got, _ := f.Uint("bert.pooling_type"); got != tt.want || len(f.Tensors()) != tt.tensors {
			t.Errorf("%s: pooling %d, not %d; %d tensors, not %d", tt.arch, got, tt.want, len(f.Tensors()), tt.tensors)
		}
		if diff := cmp.Diff([]int32{2, 5, 6, 7, 8, 3}, encode(t, f, "Hello worlds!")); diff != "" {
			t.Errorf("tokens differ:\n%s", diff)
		}
		if causal, ok := f.Bool("bert.attention.causal"); causal || !ok {
			t.Error("it is causal")
		}
	}
	dir := bertFolder(t, "BertModel")
	put(t, dir, "1_Pooling/config.json", map[string]any{"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true})
	if err := (conversion.Import{Dir: dir, Out: filepath.Join(t.TempDir(), "m.gguf")}).Write(); err == nil || !strings.Contains(err.Error(), "pooling") {
		t.Errorf("two poolings: %v", err)
	}
}

// TestImportLists checks that a tokenizer.json and a vocab.txt with the same words give the same vocabulary.
func TestImportLists(t *testing.T) {
	dir := bertFolder(t, "BertModel")
	b, err := os.ReadFile(filepath.Join(dir, "vocab.txt"))
	if err != nil {
		t.Fatal(err)
	}
	vocab := map[string]int{}
	added := []any{}
	for id, word := range strings.Fields(string(b)) {
		vocab[word] = id
		if strings.HasPrefix(word, "[") {
			added = append(added, map[string]any{"id": id, "content": word, "special": true})
		}
	}
	first, second := filepath.Join(dir, "a.gguf"), filepath.Join(dir, "b.gguf")
	if err := (conversion.Import{Dir: dir, Out: first}).Write(); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "tokenizer.json", map[string]any{
		"model":        map[string]any{"type": "WordPiece", "vocab": vocab, "continuing_subword_prefix": "##", "unk_token": "[UNK]"},
		"added_tokens": added, "normalizer": map[string]any{"type": "BertNormalizer", "lowercase": true, "handle_chinese_chars": true, "strip_accents": nil},
	})
	if err := (conversion.Import{Dir: dir, Out: second}).Write(); err != nil {
		t.Fatal(err)
	}
	a, errA := os.ReadFile(first)
	c, errC := os.ReadFile(second)
	if errA != nil || errC != nil || string(a) != string(c) {
		t.Error("the two files differ")
	}
}
