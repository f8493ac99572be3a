package synth

import (
	"bytes"
	"fmt"
	"io"

	"onebit/engine/gguf"
	"onebit/engine/tensor"
)

// Model returns the file that s describes, ready to be written. Weights are
// made while it is written, so even a large file takes little memory.
func Model(s Spec) (*gguf.Writer, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := &builder{spec: s, file: gguf.NewWriter()}
	b.metadata()
	b.tokens()
	b.tensors()
	if b.err != nil {
		return nil, b.err
	}
	return b.file, nil
}

// Bytes returns the file that s describes.
func Bytes(s Spec) ([]byte, error) {
	return written(Model(s))
}

// written is the whole file of a writer.
func written(w *gguf.Writer, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if _, err := w.WriteTo(&out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// builder fills a file; the first error is kept.
type builder struct {
	spec Spec
	file *gguf.Writer
	err  error
}

func (b *builder) set(key string, value any) {
	if b.err == nil {
		b.err = b.file.Set(key, value)
	}
}

// own sets a key of the architecture.
func (b *builder) own(key string, value any) { b.set(b.spec.Arch+"."+key, value) }

// general sets what every file has.
func (b *builder) general() {
	s := &b.spec
	b.set("general.architecture", s.Arch)
	b.set("general.type", "model")
	b.set("general.name", "Synthetic "+s.Arch)
	b.set("general.file_type", fileType(s))
	b.set("general.quantization_version", uint32(2))
	b.own("block_count", uint32(s.Layers))
	b.own("context_length", uint32(s.Context))
	b.own("embedding_length", uint32(s.Width))
	b.own("feed_forward_length", uint32(s.FFN))
	b.own("attention.head_count", uint32(s.Heads))
}

func (b *builder) metadata() {
	s := &b.spec
	b.general()
	if s.Arch == "lfm2" {
		b.own("attention.head_count_kv", s.convolved())
		b.own("shortconv.l_cache", uint32(convKernel))
	} else {
		b.own("attention.head_count_kv", uint32(s.KVHeads))
	}
	b.own("attention.layer_norm_rms_epsilon", float32(1e-6))
	if s.recurrent() {
		b.recurrence()
	}
	if s.Arch == "llama" {
		b.own("vocab_size", uint32(s.Vocab))
		b.own("rope.dimension_count", uint32(s.HeadDim))
	}
	if s.Arch == "qwen3" || s.Arch == "gemma3" {
		b.own("attention.key_length", uint32(s.HeadDim))
		b.own("attention.value_length", uint32(s.HeadDim))
	}
	if s.Window > 0 {
		b.own("attention.sliding_window", uint32(s.Window))
	}
	if s.Rope.Base > 0 {
		b.own("rope.freq_base", s.Rope.Base)
	}
	if s.Rope.Scaling != "" {
		b.own("rope.scaling.type", s.Rope.Scaling)
		b.own("rope.scaling.factor", s.Rope.Factor)
	}
	if s.Rope.Original > 0 {
		b.own("rope.scaling.original_context_length", uint32(s.Rope.Original))
	}
}

// fileType returns the number that llama.cpp gives to files of this type.
func fileType(s *Spec) uint32 {
	switch s.Type {
	case tensor.F32:
		return 0
	case tensor.F16:
		return 1
	case tensor.Q4_0:
		return 2
	case tensor.Q4_1:
		return 3
	case tensor.Q8_0:
		return 7
	case tensor.Q5_0:
		return 8
	case tensor.Q5_1:
		return 9
	case tensor.Q5_K:
		return 16
	case tensor.Q6_K:
		return 18
	case tensor.BF16:
		return 32
	}
	if s.Mix {
		return 15
	}
	return 14
}

func (b *builder) tokens() {
	const prefix = "tokenizer.ggml."
	s := &b.spec
	var v *vocabulary
	switch {
	case s.tokenizer() != "spm":
		v = bytePairs(s.Vocab)
		b.set(prefix+"model", "gpt2")
		b.set(prefix+"pre", s.tokenizer())
	case s.Arch == "gemma3":
		v = pieces(s.Vocab, "<pad>", "<eos>", "<bos>", "<unk>")
		b.set(prefix+"model", "llama")
		b.set(prefix+"pre", "default")
	default:
		v = pieces(s.Vocab, "<unk>", "<s>", "</s>")
		b.set(prefix+"model", "llama")
		b.set(prefix+"pre", "default")
	}
	b.set(prefix+"tokens", v.tokens)
	if v.merges == nil {
		b.set(prefix+"scores", v.scores)
	}
	b.set(prefix+"token_type", v.kinds)
	if v.merges != nil {
		b.set(prefix+"merges", v.merges)
	}
	id := func(token string) uint32 {
		for i, t := range v.tokens {
			if t == token {
				return uint32(i)
			}
		}
		b.err = fmt.Errorf("the vocabulary has no %s", token)
		return 0
	}
	switch {
	case s.tokenizer() != "spm":
		b.set(prefix+"bos_token_id", id(textEnd))
		b.set(prefix+"eos_token_id", id(turnEnd))
		b.set(prefix+"padding_token_id", id(textEnd))
		b.set(prefix+"add_bos_token", false)
	case s.Arch == "gemma3":
		b.set(prefix+"bos_token_id", id("<bos>"))
		b.set(prefix+"eos_token_id", id("<eos>"))
		b.set(prefix+"eot_token_id", id(turnEnd))
		b.set(prefix+"unknown_token_id", id("<unk>"))
		b.set(prefix+"padding_token_id", id("<pad>"))
		b.set(prefix+"add_bos_token", true)
		b.set(prefix+"add_space_prefix", false)
	default:
		b.set(prefix+"bos_token_id", id("<s>"))
		b.set(prefix+"eos_token_id", id("</s>"))
		b.set(prefix+"eot_token_id", id(turnEnd))
		b.set(prefix+"unknown_token_id", id("<unk>"))
		b.set(prefix+"add_bos_token", true)
		b.set(prefix+"add_space_prefix", true)
	}
	b.set("tokenizer.chat_template", template)
}

func (b *builder) tensors() {
	s := &b.spec
	gemma := s.Arch == "gemma3"
	b.matrix("token_embd", 0, s.Width, s.Vocab, embeddingScale(s))
	switch {
	case gemma:
		b.vector("output_norm", s.Width, 0.6, 0.06)
	case s.Arch == "lfm2":
		b.vector("token_embd_norm", s.Width, 1, 0.1) // its name for that
	default:
		b.vector("output_norm", s.Width, 1, 0.1)
	}
	if !s.Tied {
		b.matrix("output", 0, s.Width, s.Vocab, 1)
	}
	if s.Rope.Freqs {
		b.ropeFreqs()
	}
	for i := range s.Layers {
		if s.recurrent() {
			b.recurrent(i)
		} else {
			b.layer(i)
		}
	}
}

// embeddingScale returns the deviation of embeddings times the square root of
// the width. Where the embedding is the output matrix too, logits spread about
// as far as with an output matrix of its own: over some units, so that the
// rounding of activations in quantised products moves them by hundredths only.
func embeddingScale(s *Spec) float64 {
	if s.Tied || s.Arch == "gemma3" { // which multiplies by the square root itself
		return 1
	}
	return squareRoot(s.Width)
}

// layer adds one block. Matrices keep the variance of what passes through them;
// queries and keys are larger, so that attention differs between positions.
func (b *builder) layer(i int) {
	s := &b.spec
	normed := s.Arch == "qwen3" || s.Arch == "gemma3" || s.Arch == "lfm2"
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	sharp := 1.2
	if normed {
		sharp = 1
	}
	b.vector(name(i, "attn_norm"), s.Width, 1, 0.1)
	if s.Arch == "lfm2" && s.convolved()[i] == 0 {
		b.convolution(i)
	} else {
		b.matrix("attn_q", i, s.Width, q, sharp)
		b.matrix("attn_k", i, s.Width, kv, sharp)
		b.matrix("attn_v", i, s.Width, kv, 1)
		b.matrix("attn_output", i, q, s.Width, 1)
		if normed {
			b.vector(name(i, "attn_q_norm"), s.HeadDim, 1.2, 0.12)
			b.vector(name(i, "attn_k_norm"), s.HeadDim, 1.2, 0.12)
		}
	}
	if s.Arch == "qwen2" {
		b.bias(name(i, "attn_q"), q)
		b.bias(name(i, "attn_k"), kv)
		b.bias(name(i, "attn_v"), kv)
	}
	b.vector(name(i, "ffn_norm"), s.Width, 1, 0.1)
	b.matrix("ffn_gate", i, s.Width, s.FFN, 1)
	b.matrix("ffn_up", i, s.Width, s.FFN, 1)
	b.matrix("ffn_down", i, s.FFN, s.Width, 1)
	if s.Arch == "gemma3" {
		b.vector(name(i, "post_attention_norm"), s.Width, 2, 0.2)
		b.vector(name(i, "post_ffw_norm"), s.Width, 2, 0.2)
	}
}

func name(layer int, part string) string { return fmt.Sprintf("blk.%d.%s", layer, part) }

// matrix adds a matrix of rows x cols; its elements have the deviation
// scale / sqrt(cols).
func (b *builder) matrix(part string, layer, cols, rows int, scale float64) {
	full := part
	if part != "token_embd" && part != "output" {
		full = name(layer, part)
	}
	t := fitting(b.typeOf(part, layer), cols)
	elems, size, ok := t.Block()
	if !ok || cols%elems != 0 {
		b.fail(fmt.Errorf("rows of %d cannot be stored as %v", cols, t))
		return
	}
	m := matrix{
		random:   random{seed: seedOf(b.spec.Seed, full), scale: float32(scale / squareRoot(cols) / deviation)},
		kind:     t,
		cols:     cols,
		rows:     rows,
		distinct: rows,
		rowBytes: cols / elems * size,
	}
	if d := b.spec.Distinct; d > 0 {
		m.distinct = min(d, rows)
	}
	b.add(full+".weight", t, []uint64{uint64(cols), uint64(rows)}, m.writeTo)
}

func (b *builder) vector(full string, n int, mean, dev float64) {
	r := random{seed: seedOf(b.spec.Seed, full), scale: float32(dev / deviation), mean: float32(mean)}
	b.floats(full+".weight", n, r)
}

func (b *builder) bias(full string, n int) {
	r := random{seed: seedOf(b.spec.Seed, full+".bias"), scale: float32(0.5 / deviation)}
	b.floats(full+".bias", n, r)
}

func (b *builder) floats(full string, n int, r random) {
	b.add(full, tensor.F32, []uint64{uint64(n)}, func(out io.Writer) error {
		return writeFloats(out, r.fill(make([]float32, n), 0))
	})
}

// ropeFreqs adds divisors of the rotation frequencies that rise from 1 to 8, as
// those of Llama 3 do.
func (b *builder) ropeFreqs() {
	n := b.spec.HeadDim / 2
	freqs := make([]float32, n)
	for i := range freqs {
		freqs[i] = min(max(float32(16*i)/float32(n)-3, 1), 8)
	}
	b.add("rope_freqs.weight", tensor.F32, []uint64{uint64(n)}, func(out io.Writer) error {
		return writeFloats(out, freqs)
	})
}

func (b *builder) add(full string, t tensor.Type, shape []uint64, write func(io.Writer) error) {
	if b.err == nil {
		b.err = b.file.AddFunc(full, gguf.Type(t), shape, write)
	}
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// typeOf returns the type that a matrix is wanted in.
func (b *builder) typeOf(part string, layer int) tensor.Type {
	s := &b.spec
	if t, ok := s.Types[part]; ok {
		return t
	}
	if s.Mix {
		n := s.Layers
		more := layer < n/8 || layer >= 7*n/8 || (layer-n/8)%3 == 2
		switch {
		case part == "output", part == "token_embd" && s.Tied,
			part == "attn_v" && more, part == "ffn_down" && more:
			return tensor.Q6_K
		}
	}
	return s.Type
}

// fitting returns t, or what replaces it where its block does not fit a row.
func fitting(t tensor.Type, cols int) tensor.Type {
	if elems, _, ok := t.Block(); !ok || cols%elems == 0 {
		return t
	}
	switch t {
	case tensor.Q4_K:
		t = tensor.Q5_0
	case tensor.Q5_K:
		t = tensor.Q5_1
	case tensor.Q6_K:
		t = tensor.Q8_0
	}
	if cols%32 != 0 {
		return tensor.F16
	}
	return t
}
