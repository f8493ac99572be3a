package conversion_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"onebit/engine/gguf"
	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

// published is a tensor as it goes into a safetensors file.
type published struct {
	name  string
	dtype string
	shape []int64 // contiguous extent last
	data  []byte
}

// safetensors returns a file with the tensors.
func safetensors(list []published) []byte {
	head := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var data []byte
	for _, p := range list {
		head[p.name] = map[string]any{"dtype": p.dtype, "shape": p.shape, "data_offsets": []int{len(data), len(data) + len(p.data)}}
		data = append(data, p.data...)
	}
	text, err := json.Marshal(head)
	if err != nil {
		panic(err)
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(b, text...), data...)
}

// synthetic returns a model file with random weights.
func synthetic(t *testing.T, s synth.Spec) *gguf.File {
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

// put writes a file of a folder; what is no text is written as JSON.
func put(t *testing.T, dir, name string, content any) string {
	t.Helper()
	var b []byte
	switch c := content.(type) {
	case []byte:
		b = c
	case string:
		b = []byte(c)
	default:
		var err error
		if b, err = json.Marshal(c); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// publish writes a GGUF file as its publisher would have: the way back from what an import does.
func publish(t *testing.T, f *gguf.File, s synth.Spec) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, "config.json", config(s))
	put(t, dir, "tokenizer.json", tokenizerFile(t, f))
	settings := map[string]any{"chat_template": template(f)}
	for _, key := range []string{"bos", "eos", "unk", "pad"} {
		name := map[string]string{"unk": "unknown", "pad": "padding"}[key]
		if name == "" {
			name = key
		}
		if id, ok := f.Uint("tokenizer.ggml." + name + "_token_id"); ok {
			texts, _ := f.Strings("tokenizer.ggml.tokens")
			settings[key+"_token"] = map[string]any{"content": texts[id], "special": true}
		}
	}
	if add, ok := f.Bool("tokenizer.ggml.add_bos_token"); ok {
		settings["add_bos_token"] = add
	}
	put(t, dir, "tokenizer_config.json", settings)
	put(t, dir, "model.safetensors", safetensors(weights(t, f, s)))
	return dir
}

func template(f *gguf.File) string {
	s, _ := f.String("tokenizer.chat_template")
	return s
}

func config(s synth.Spec) map[string]any {
	c := map[string]any{
		"model_type": s.Arch, "num_hidden_layers": s.Layers, "hidden_size": s.Width, "intermediate_size": s.FFN,
		"num_attention_heads": s.Heads, "num_key_value_heads": s.KVHeads, "head_dim": s.HeadDim, "vocab_size": s.Vocab,
		"max_position_embeddings": s.Context, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": s.Tied || s.Arch == "gemma3",
	}
	if s.Arch == "gemma3" {
		c["model_type"], c["hidden_activation"], c["sliding_window"] = "gemma3_text", "gelu_pytorch_tanh", s.Window
		delete(c, "hidden_act")
	}
	if s.Rope.Base > 0 {
		c["rope_theta"] = s.Rope.Base
	}
	return c
}

// weights renames the tensors and undoes what GGUF does to them.
func weights(t *testing.T, f *gguf.File, s synth.Spec) []published {
	t.Helper()
	parts := map[string]string{
		"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
		"ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
	}
	if s.Arch == "gemma3" {
		parts["ffn_norm"], parts["post_attention_norm"] = "pre_feedforward_layernorm", "post_attention_layernorm"
		parts["post_ffw_norm"] = "post_feedforward_layernorm"
	}
	whole := map[string]string{"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
	var list []published
	for _, src := range f.Tensors() {
		v := floats(t, src)
		name, ok := whole[src.Name]
		if !ok {
			w := strings.Split(src.Name, ".") // blk N part weight
			if parts[w[2]] == "" {
				t.Fatalf("no place for %s", src.Name)
			}
			name = "model.layers." + w[1] + "." + parts[w[2]] + "." + w[3]
			if s.Arch == "llama" && (w[2] == "attn_q" || w[2] == "attn_k") {
				v = apart(v, s.HeadDim, len(v)/int(src.Elements()/src.Shape[0]))
			}
		}
		if s.Arch == "gemma3" && strings.HasSuffix(src.Name, "norm.weight") {
			for i := range v {
				v[i]--
			}
		}
		shape := make([]int64, len(src.Shape))
		for i, n := range src.Shape {
			shape[len(shape)-1-i] = int64(n)
		}
		p := published{name: name, dtype: "F32", shape: shape, data: make([]byte, 4*len(v))}
		if err := tensor.Quantize(tensor.F32, v, p.data); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// apart moves the rows of each head from side by side to half a head apart.
func apart(v []float32, head, width int) []float32 {
	out := make([]float32, len(v))
	for row := 0; row*width < len(v); row++ {
		h, r := row/head, row%head
		to := h*head + r%2*head/2 + r/2
		copy(out[to*width:][:width], v[row*width:][:width])
	}
	return out
}

func floats(t *testing.T, src *gguf.Tensor) []float32 {
	t.Helper()
	v := make([]float32, src.Elements())
	if err := tensor.Dequantize(tensor.Type(src.Type), src.Data(), v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Expressions as the publishers write them.
const (
	qwenWords  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	llamaWords = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// tokenizerFile returns the vocabulary as a tokenizer.json.
func tokenizerFile(t *testing.T, f *gguf.File) map[string]any {
	t.Helper()
	texts, _ := f.Strings("tokenizer.ggml.tokens")
	kinds, _ := f.Ints("tokenizer.ggml.token_type")
	vocab := map[string]int{}
	added := []map[string]any{}
	for id, text := range texts {
		vocab[text] = id
		if kinds[id] == 3 || kinds[id] == 4 {
			added = append(added, map[string]any{"id": id, "content": text, "special": kinds[id] == 3})
		}
	}
	model := map[string]any{"type": "BPE", "vocab": vocab}
	j := map[string]any{"model": model, "added_tokens": added}
	if kind, _ := f.String("tokenizer.ggml.model"); kind == "llama" {
		scores, _ := f.Floats("tokenizer.ggml.scores")
		model["merges"], model["byte_fallback"], model["unk_token"] = splits(texts, scores, vocab), true, "<unk>"
		steps := []any{map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": "▁"}}
		if space, _ := f.Bool("tokenizer.ggml.add_space_prefix"); space {
			steps = append([]any{map[string]any{"type": "Prepend", "prepend": "▁"}}, steps...)
		}
		j["normalizer"] = map[string]any{"type": "Sequence", "normalizers": steps}
		return j
	}
	merges, _ := f.Strings("tokenizer.ggml.merges")
	model["merges"] = merges
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
	split := func(e string) map[string]any {
		return map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": e}, "behavior": "Isolated", "invert": false}, byteLevel,
		}}
	}
	switch pre, _ := f.String("tokenizer.ggml.pre"); pre {
	case "gpt-2":
		byteLevel["use_regex"] = true
		j["pre_tokenizer"] = byteLevel
	case "qwen2":
		j["pre_tokenizer"] = split(qwenWords)
		j["normalizer"] = map[string]any{"type": "NFC"}
	case "llama-bpe":
		model["ignore_merges"] = true
		j["pre_tokenizer"] = split(llamaWords)
	default:
		t.Fatalf("no way to publish %q", pre)
	}
	return j
}

// splits returns the merges that make a SentencePiece vocabulary: all pairs of tokens that are a token together, the
// token of the best score first.
func splits(texts []string, scores []float32, ids map[string]int) [][2]string {
	order := make([]int, len(texts))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return scores[order[a]] > scores[order[b]] })
	var list [][2]string
	for _, id := range order {
		text := texts[id]
		if strings.HasPrefix(text, "<") {
			continue
		}
		for i := range text {
			if i > 0 {
				_, left := ids[text[:i]]
				_, right := ids[text[i:]]
				if left && right {
					list = append(list, [2]string{text[:i], text[i:]})
				}
			}
		}
	}
	return list
}

// near compares two lists of numbers.
func near(a, b []float32, tolerance float64) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d values instead of %d", len(a), len(b))
	}
	for i := range a {
		if d := math.Abs(float64(a[i]) - float64(b[i])); !(d <= tolerance) {
			return fmt.Errorf("value %d is %g instead of %g", i, a[i], b[i])
		}
	}
	return nil
}

// save writes a synthetic model to a file.
func save(t *testing.T, s synth.Spec, name string) string {
	t.Helper()
	b, err := synth.Bytes(s)
	if err != nil {
		t.Fatal(err)
	}
	return put(t, t.TempDir(), name, b)
}

// open opens a file until the test ends.
func open(t *testing.T, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// edit returns the folder's JSON file with changes.
func edit(t *testing.T, dir, name string, change func(m map[string]any)) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]any{}
	in := json.NewDecoder(bytes.NewReader(b))
	in.UseNumber()
	if err := in.Decode(&m); err != nil {
		t.Fatal(err)
	}
	change(m)
	put(t, dir, name, m)
}

// leftovers returns the files of a folder but those named.
func leftovers(t *testing.T, dir string, but ...string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range all {
		if !slices.Contains(but, e.Name()) {
			list = append(list, e.Name())
		}
	}
	return list
}
