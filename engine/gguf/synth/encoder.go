package synth

import (
	"fmt"
	"strings"
	"unicode"

	"onebit/engine/gguf"
	"onebit/engine/tensor"
)

// EncoderSpec says which encoder to make: a model that turns texts into vectors, or pairs of texts into scores.
type EncoderSpec struct {
	Arch    string // bert or nomic-bert
	Layers  int
	Width   int // a multiple of Heads
	Heads   int
	FFN     int
	Context int
	Type    tensor.Type // of the matrices and of the token embedding
	Pooling uint32      // as files number it: 0 none, 1 mean, 2 the first token, 3 the last, 4 ranks; above them it is left out
	Scores  int         // of a model that ranks
	Fused   bool        // queries, keys and values come of one matrix
	Seed    uint64
}

// TinyEncoder returns an encoder of about 200,000 weights.
func TinyEncoder(arch string, t tensor.Type) EncoderSpec {
	return EncoderSpec{Arch: arch, Layers: 2, Width: 96, Heads: 3, FFN: 192, Context: 128, Type: t, Pooling: 1, Fused: arch == "nomic-bert", Seed: 1}
}

// Encoder returns the file that s describes, ready to be written. Its vocabulary is one of WordPiece, in lower case.
func Encoder(s EncoderSpec) (*gguf.Writer, error) {
	if s.Arch != "bert" && s.Arch != "nomic-bert" {
		return nil, fmt.Errorf("unknown architecture %q", s.Arch)
	}
	if min(s.Layers, s.Width, s.Heads, s.FFN, s.Context) < 1 || s.Width%s.Heads != 0 {
		return nil, fmt.Errorf("the sizes of %+v do not go together", s)
	}
	b := &builder{spec: Spec{Arch: s.Arch, Layers: s.Layers, Width: s.Width, Heads: s.Heads, FFN: s.FFN, Context: s.Context, Type: s.Type, Seed: s.Seed}, file: gguf.NewWriter()}
	v := wordPieces()
	b.encoderKeys(s, v)
	b.encoderTensors(s, len(v.tokens))
	if b.err != nil {
		return nil, b.err
	}
	return b.file, nil
}

// EncoderBytes returns the file that s describes.
func EncoderBytes(s EncoderSpec) ([]byte, error) {
	return written(Encoder(s))
}

func (b *builder) encoderKeys(s EncoderSpec, v *vocabulary) {
	b.general()
	b.own("attention.layer_norm_epsilon", float32(1e-12))
	b.own("attention.causal", false)
	if s.Pooling <= 4 {
		b.own("pooling_type", s.Pooling)
	}
	if s.Arch == "nomic-bert" {
		b.own("rope.freq_base", float32(1000))
	}
	if s.Scores > 1 {
		labels := make([]string, s.Scores)
		for i := range labels {
			labels[i] = fmt.Sprintf("label %d", i)
		}
		b.own("classifier.output_labels", labels)
	}
	const prefix = "tokenizer.ggml."
	b.set(prefix+"model", "bert")
	b.set(prefix+"pre", "default")
	b.set(prefix+"token_type_count", uint32(2))
	b.set(prefix+"tokens", v.tokens)
	b.set(prefix+"token_type", v.kinds)
	b.set(prefix+"padding_token_id", uint32(0))
	b.set(prefix+"unknown_token_id", uint32(1))
	b.set(prefix+"cls_token_id", uint32(2))
	b.set(prefix+"bos_token_id", uint32(2))
	b.set(prefix+"seperator_token_id", uint32(3)) //nolint:misspell // the format spells it so
	b.set(prefix+"mask_token_id", uint32(4))
}

// wordPieces returns a vocabulary of WordPiece: the special tokens, the words of the corpus, and all its characters at
// the beginning of a word, with U+2581 before them, and inside one.
func wordPieces() *vocabulary {
	v := &vocabulary{}
	for i, s := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} {
		kind := tokenControl
		if i == 1 {
			kind = tokenUnknown
		}
		v.add(s, kind, 0)
	}
	seen := map[string]bool{}
	once := func(s string) {
		if !seen[s] {
			seen[s] = true
			v.add(s, tokenNormal, 0)
		}
	}
	lower := strings.ToLower(corpus)
	for _, r := range "abcdefghijklmnopqrstuvwxyz0123456789" + lower {
		if !unicode.IsSpace(r) {
			once("▁" + string(r))
			once(string(r))
		}
	}
	for _, word := range strings.FieldsFunc(lower, func(r rune) bool { return !unicode.IsLetter(r) }) {
		once("▁" + word)
	}
	return v
}

func (b *builder) encoderTensors(s EncoderSpec, vocab int) {
	both := func(full string, n int, dev float64) {
		b.vector(full, n, 1, dev)
		b.bias(full, n)
	}
	linear := func(part string, layer, cols, rows int, scale float64) {
		b.matrix(part, layer, cols, rows, scale)
		if s.Arch == "bert" {
			b.bias(name(layer, part), rows)
		}
	}
	b.matrix("token_embd", 0, s.Width, vocab, squareRoot(s.Width))
	b.table("token_types", s.Width, 2)
	if s.Arch == "bert" {
		b.table("position_embd", s.Width, s.Context)
	}
	both("token_embd_norm", s.Width, 0.1)
	for i := range s.Layers {
		if s.Fused {
			linear("attn_qkv", i, s.Width, 3*s.Width, 1.2)
		} else {
			linear("attn_q", i, s.Width, s.Width, 1.2)
			linear("attn_k", i, s.Width, s.Width, 1.2)
			linear("attn_v", i, s.Width, s.Width, 1)
		}
		linear("attn_output", i, s.Width, s.Width, 1)
		both(name(i, "attn_output_norm"), s.Width, 0.1)
		if s.Arch == "nomic-bert" {
			linear("ffn_gate", i, s.Width, s.FFN, 1)
		}
		linear("ffn_up", i, s.Width, s.FFN, 1)
		linear("ffn_down", i, s.FFN, s.Width, 1)
		both(name(i, "layer_output_norm"), s.Width, 0.1)
	}
	if s.Scores > 0 {
		b.table("cls", s.Width, s.Width)
		b.bias("cls", s.Width)
		b.table("cls.output", s.Width, s.Scores)
		b.bias("cls.output", s.Scores)
	}
}

// table adds a matrix of single-precision numbers that belongs to no layer. Its elements have the deviation
// 1 / sqrt(cols).
func (b *builder) table(full string, cols, rows int) {
	r := random{seed: seedOf(b.spec.Seed, full), scale: float32(1 / squareRoot(cols) / deviation)}
	m := matrix{random: r, kind: tensor.F32, cols: cols, rows: rows, distinct: rows, rowBytes: cols * 4}
	b.add(full+".weight", tensor.F32, []uint64{uint64(cols), uint64(rows)}, m.writeTo)
}
