package main

import (
	"strings"

	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

type model struct {
	name string
	spec synth.Spec
}

// models lists what golden files are made of: every storage type, every
// architecture in several of them, and the ways of encoding positions.
func models() []model {
	var list []model
	add := func(name string, s synth.Spec) { list = append(list, model{name, s}) }
	for _, t := range tensor.Types() {
		if elems, _, _ := t.Block(); elems == 256 {
			add("llama-"+lower(t), synth.Wide("llama", t))
		} else {
			add("llama-"+lower(t), synth.Tiny("llama", t))
		}
	}
	for _, arch := range []string{"qwen2", "qwen3", "gemma3"} {
		for _, t := range []tensor.Type{tensor.F32, tensor.Q4_0, tensor.Q8_0} {
			add(arch+"-"+lower(t), synth.Tiny(arch, t))
		}
	}
	for _, arch := range []string{"llama", "qwen2", "qwen3", "gemma3"} {
		s := synth.Wide(arch, tensor.Q4_K)
		s.Mix = true
		add(arch+"-q4_k_m", s)
	}
	// Most rows of small models do not fit blocks of 256 and fall back to
	// other types.
	narrow := synth.Tiny("qwen2", tensor.Q4_K)
	narrow.Mix, narrow.FFN = true, 256
	add("qwen2-q4_k_m-narrow", narrow)

	s := synth.Tiny("llama", tensor.F32)
	s.Rope, s.Tied = synth.Rope{Base: 500000, Freqs: true}, true
	add("llama-freqs", s)
	s = synth.Tiny("llama", tensor.F32)
	s.Rope = synth.Rope{Scaling: "linear", Factor: 4}
	add("llama-linear", s)
	s = synth.Tiny("llama", tensor.F32)
	s.Rope = synth.Rope{Scaling: "yarn", Factor: 4, Original: 128}
	add("llama-yarn", s)
	s = synth.Tiny("llama", tensor.Q8_0)
	s.Tokenizer = "spm"
	add("llama-spm", s)
	s = synth.Tiny("gemma3", tensor.F32)
	s.Rope.Scaling, s.Rope.Factor = "linear", 8
	add("gemma3-linear", s)
	return list
}

func lower(t tensor.Type) string { return strings.ToLower(t.String()) }
