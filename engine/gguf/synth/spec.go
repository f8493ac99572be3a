// Package synth makes model files with random weights: small ones for tests and
// one of a real model's shape for benchmarks. A file follows from its Spec
// alone, byte for byte. The files are complete: any engine that reads GGUF can
// load them and talk through them, though what they say is noise.
package synth

import (
	"fmt"

	"onebit/engine/tensor"
)

// Spec says which model to make. Sizes are in elements.
type Spec struct {
	Arch    string `json:"arch"`    // llama, qwen2, qwen3, gemma3, mamba or lfm2
	Layers  int    `json:"layers"`  // blocks of attention and feed-forward
	Width   int    `json:"width"`   // of the embedding
	Heads   int    `json:"heads"`   // query heads
	KVHeads int    `json:"kvHeads"` // key and value heads; Heads is a multiple of it
	HeadDim int    `json:"headDim"` // of one head; llama and qwen2 want Width / Heads
	FFN     int    `json:"ffn"`     // of the hidden layer of the feed-forward part
	Vocab   int    `json:"vocab"`   // tokens, at least 400
	Context int    `json:"context"` // tokens that the model claims to be trained on

	// Type is the storage type of all matrices; norms and biases are F32. A
	// matrix whose rows are no multiple of the type's block is stored in the
	// type that llama-quantize falls back to.
	Type tensor.Type `json:"type"`
	// Mix stores some matrices in Q6_K, as the files called Q4_K_M do.
	Mix bool `json:"mix,omitempty"`
	// Types overrides Type for matrices by their name without layer and
	// ending, such as "ffn_down" or "token_embd".
	Types map[string]tensor.Type `json:"types,omitempty"`

	Tied   bool `json:"tied,omitempty"`   // no output matrix: the embedding serves
	Window int  `json:"window,omitempty"` // of sliding attention, gemma3 only
	Rope   Rope `json:"rope,omitzero"`

	// Tokenizer is gpt-2, llama-bpe or qwen2 (byte pairs, split into words in
	// that manner) or spm; "" takes what goes with Arch.
	Tokenizer string `json:"tokenizer,omitempty"`

	Seed uint64 `json:"seed"`
	// Distinct is how many rows of each matrix differ; further rows repeat
	// them. 0 makes all differ. It is for large files that must be made fast.
	Distinct int `json:"distinct,omitempty"`
}

// Rope says how positions are encoded.
type Rope struct {
	Base     float32 `json:"base,omitempty"`     // 0 leaves it out of the file
	Scaling  string  `json:"scaling,omitempty"`  // "", linear or yarn
	Factor   float32 `json:"factor,omitempty"`   // of the scaling
	Original int     `json:"original,omitempty"` // context before the scaling, for yarn
	Freqs    bool    `json:"freqs,omitempty"`    // a rope_freqs.weight tensor, as Llama 3 has
}

// Tiny returns a model of about 200,000 weights of one architecture, stored as t.
// Its rows are multiples of 32, so that t can be any type with that block. The
// odd vocabulary leaves the last group of rows of a matrix incomplete.
func Tiny(arch string, t tensor.Type) Spec {
	s := Spec{
		Arch: arch, Layers: 3, Width: 96, Heads: 3, KVHeads: 1, HeadDim: 32, FFN: 192,
		Vocab: 523, Context: 512, Type: t, Seed: 1,
	}
	switch arch {
	case "qwen2":
		s.Rope.Base = 1e6
	case "qwen3":
		s.Rope.Base, s.HeadDim, s.Heads, s.KVHeads = 1e6, 32, 4, 2
	case "gemma3":
		s.Rope.Base, s.HeadDim, s.Heads, s.KVHeads = 1e6, 32, 4, 2
		s.Layers, s.Window, s.Tied = 6, 16, true
	case "lfm2":
		s.Rope.Base, s.Tied, s.Layers = 1e6, true, 4
	case "mamba":
		s.Heads, s.KVHeads, s.HeadDim, s.FFN = 0, 0, 0, 0
	}
	return s
}

// Wide is Tiny with rows that are multiples of 256, for types with that block.
func Wide(arch string, t tensor.Type) Spec {
	s := Tiny(arch, t)
	s.Width = 256
	if !s.recurrent() {
		s.FFN, s.HeadDim = 512, 64
		s.Heads, s.KVHeads = 4, 2
	}
	return s
}

// QwenHalfB returns a model of the shape of Qwen2.5-0.5B as its publisher stores
// it (24 layers of 896, an output matrix of its own, 630 million weights), for
// benchmarks. With Q4_K the types are mixed as in the file called Q4_K_M.
func QwenHalfB(t tensor.Type) Spec {
	return Spec{
		Arch: "qwen2", Layers: 24, Width: 896, Heads: 14, KVHeads: 2, HeadDim: 64, FFN: 4864,
		Vocab: 151936, Context: 32768, Type: t, Mix: t == tensor.Q4_K, Seed: 1, Distinct: 256,
		Rope: Rope{Base: 1e6},
	}
}

// check refuses what no file can be made of.
func (s *Spec) check() error {
	if min(s.Layers, s.Width, s.Context) < 1 || !s.recurrent() && min(s.Heads, s.KVHeads, s.HeadDim, s.FFN) < 1 {
		return fmt.Errorf("a size of %+v is missing", *s)
	}
	if !s.recurrent() && s.Heads%s.KVHeads != 0 {
		return fmt.Errorf("%d heads are no multiple of %d", s.Heads, s.KVHeads)
	}
	switch s.Arch {
	case "llama", "qwen2", "lfm2":
		if s.Heads*s.HeadDim != s.Width {
			return fmt.Errorf("%s: %d heads of %d are not the width %d", s.Arch, s.Heads, s.HeadDim, s.Width)
		}
	case "qwen3", "gemma3", "mamba":
	default:
		return fmt.Errorf("unknown architecture %q", s.Arch)
	}
	if s.Vocab < 400 {
		return fmt.Errorf("a vocabulary of %d is less than 400", s.Vocab)
	}
	if s.Window != 0 && s.Arch != "gemma3" {
		return fmt.Errorf("%s has no sliding window", s.Arch)
	}
	switch s.tokenizer() {
	case "gpt-2", "llama-bpe", "qwen2", "spm":
	default:
		return fmt.Errorf("unknown tokenizer %q", s.Tokenizer)
	}
	switch s.Rope.Scaling {
	case "", "linear", "yarn":
	default:
		return fmt.Errorf("unknown scaling %q", s.Rope.Scaling)
	}
	return nil
}

// recurrent reports whether the model has a state in place of attention.
func (s *Spec) recurrent() bool { return s.Arch == "mamba" }

func (s *Spec) tokenizer() string {
	switch {
	case s.Tokenizer != "":
		return s.Tokenizer
	case s.Arch == "llama":
		return "llama-bpe"
	case s.Arch == "gemma3":
		return "spm"
	}
	return "qwen2"
}
