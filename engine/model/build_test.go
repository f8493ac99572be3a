package model_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"onebit/engine/gguf"
	"onebit/engine/model"
	"onebit/engine/tensor"
)

// spec describes a small model with random weights.
type spec struct {
	arch                         string
	layers, width, heads, kv     int
	headDim, ffn, vocab, context int
	types                        []tensor.Type // of the matrices, in turn
	tied                         bool
	biases                       bool
	meta                         map[string]any       // further metadata below the architecture's name
	extra                        map[string][]uint64  // further tensors of zeros
	vectors                      map[string][]float32 // further tensors of one extent
	raw                          map[string]gguf.Type // tensors of zeros in that type
	drop                         string               // a tensor that is left out
}

// small is a model of an architecture that every test can change.
func small(arch string, types ...tensor.Type) spec {
	if len(types) == 0 {
		types = []tensor.Type{tensor.F32}
	}
	return spec{
		arch: arch, layers: 2, width: 64, heads: 4, kv: 2, headDim: 16, ffn: 256, vocab: 96, context: 1024,
		types: types, biases: arch == "qwen2", tied: arch == "gemma3", meta: map[string]any{},
	}
}

// architectures are those that Load runs.
var architectures = []string{"llama", "qwen2", "qwen3", "gemma3"}

// shapes returns the tensors of the model in the order of a file.
func (s spec) shapes() (names []string, shapes map[string][]uint64) {
	shapes = map[string][]uint64{}
	add := func(name string, shape ...int) {
		names = append(names, name)
		for _, n := range shape {
			shapes[name] = append(shapes[name], uint64(n))
		}
	}
	add("token_embd.weight", s.width, s.vocab)
	add("output_norm.weight", s.width)
	if !s.tied {
		add("output.weight", s.width, s.vocab)
	}
	q, kv := s.heads*s.headDim, s.kv*s.headDim
	for i := range s.layers {
		p := fmt.Sprintf("blk.%d.", i)
		add(p+"attn_norm.weight", s.width)
		add(p+"attn_q.weight", s.width, q)
		add(p+"attn_k.weight", s.width, kv)
		add(p+"attn_v.weight", s.width, kv)
		add(p+"attn_output.weight", q, s.width)
		add(p+"ffn_norm.weight", s.width)
		add(p+"ffn_gate.weight", s.width, s.ffn)
		add(p+"ffn_up.weight", s.width, s.ffn)
		add(p+"ffn_down.weight", s.ffn, s.width)
		if s.biases {
			add(p+"attn_q.bias", q)
			add(p+"attn_k.bias", kv)
			add(p+"attn_v.bias", kv)
		}
		if s.biases && s.arch == "llama" {
			add(p+"attn_output.bias", s.width)
			add(p+"ffn_gate.bias", s.ffn)
			add(p+"ffn_up.bias", s.ffn)
			add(p+"ffn_down.bias", s.width)
		}
		if s.arch == "qwen3" || s.arch == "gemma3" {
			add(p+"attn_q_norm.weight", s.headDim)
			add(p+"attn_k_norm.weight", s.headDim)
		}
		if s.arch == "gemma3" {
			add(p+"post_attention_norm.weight", s.width)
			add(p+"post_ffw_norm.weight", s.width)
		}
	}
	for name, shape := range s.extra {
		names = append(names, name)
		shapes[name] = shape
	}
	return names, shapes
}

// file returns the model as an open file.
func (s spec) file(t testing.TB) *gguf.File {
	t.Helper()
	w := gguf.NewWriter()
	set := func(key string, value any) {
		if err := w.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	set("general.architecture", s.arch)
	values := map[string]any{
		"block_count": uint32(s.layers), "embedding_length": uint32(s.width), "feed_forward_length": uint32(s.ffn),
		"context_length": uint32(s.context), "attention.head_count": uint32(s.heads),
		"attention.head_count_kv": uint32(s.kv), "attention.key_length": uint32(s.headDim),
		"attention.value_length": uint32(s.headDim), "attention.layer_norm_rms_epsilon": float32(1e-5),
	}
	for key, value := range s.meta {
		values[key] = value
		if value == nil {
			delete(values, key)
		}
	}
	for key, value := range values {
		set(s.arch+"."+key, value)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	names, shapes := s.shapes()
	matrices := 0
	for _, name := range names {
		shape := shapes[name]
		if name == s.drop {
			continue
		}
		if typ, ok := s.raw[name]; ok {
			elems, size, _ := typ.Block()
			if err := w.Add(name, typ, shape, make([]byte, int(shape[0]*shape[1])/elems*size)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		typ := tensor.F32
		if len(shape) == 2 {
			typ = s.types[matrices%len(s.types)]
			matrices++
			if elems, _, _ := typ.Block(); shape[0]%uint64(elems) != 0 {
				typ = tensor.Q8_0
			}
		}
		data := randomWeights(t, rng, typ, shape, s.extra[name] != nil)
		if err := w.Add(name, gguf.Type(typ), shape, data); err != nil {
			t.Fatal(err)
		}
	}
	for name, v := range s.vectors {
		data := make([]byte, 4*len(v))
		if err := tensor.Quantize(tensor.F32, v, data); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(name, gguf.F32, []uint64{uint64(len(v))}, data); err != nil {
			t.Fatal(err)
		}
	}
	var buf bytes.Buffer
	if _, err := w.WriteTo(&buf); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// randomWeights returns a tensor's data: matrices that keep the size of their
// input, vectors around one, or zeros.
func randomWeights(t testing.TB, rng *rand.Rand, typ tensor.Type, shape []uint64, zero bool) []byte {
	n := 1
	for _, e := range shape {
		n *= int(e)
	}
	v := make([]float32, n)
	for i := range v {
		switch {
		case zero:
		case len(shape) == 1:
			v[i] = 1 + 0.2*float32(rng.NormFloat64())
		default:
			v[i] = float32(rng.NormFloat64()) * 0.15
		}
	}
	elems, size, _ := typ.Block()
	data := make([]byte, n/elems*size)
	if err := tensor.Quantize(typ, v, data); err != nil {
		t.Fatal(err)
	}
	return data
}

// load loads a model that is closed when the test ends.
func load(t testing.TB, f *gguf.File, cfg model.Config) *model.Model {
	t.Helper()
	if cfg.Threads == 0 {
		cfg.Threads, cfg.BatchThreads = 2, 2
	}
	m, err := model.Load(f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// tokens returns n token ids below vocab.
func tokens(seed uint64, n, vocab int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(vocab))
	}
	return ids
}

// eval appends ids to a session and returns copies of the last rows.
func eval(t testing.TB, m *model.Model, s *model.Session, ids []int32, rows int) [][]float32 {
	t.Helper()
	steps := []model.Step{{Session: s, Tokens: ids, Logits: rows}}
	if err := m.Eval(context.Background(), steps); err != nil {
		t.Fatal(err)
	}
	return copyRows(steps[0].Out)
}

func copyRows(rows [][]float32) [][]float32 {
	out := make([][]float32, len(rows))
	for i, r := range rows {
		out[i] = append([]float32(nil), r...)
	}
	return out
}

// levels runs a test at every level of the machine.
func levels(t *testing.T, f func(t *testing.T, level tensor.Level)) {
	for _, l := range tensor.Levels() {
		t.Run(l.String(), func(t *testing.T) { f(t, l) })
	}
}
