// Command gen writes a model file with random weights.
//
//	go run ./engine/gguf/synth/gen -arch qwen2 -type Q8_0 -o tiny.gguf
//	go run ./engine/gguf/synth/gen -half -type Q4_K -o half.gguf
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run() error {
	arch := flag.String("arch", "llama", "llama, qwen2, qwen3, gemma3, mamba or lfm2")
	kind := flag.String("type", "Q8_0", "storage type of the matrices, such as Q4_K")
	half := flag.Bool("half", false, "the shape of Qwen2.5-0.5B instead of a tiny model")
	wide := flag.Bool("wide", false, "rows that are multiples of 256")
	spec := flag.String("spec", "", "a file that holds the whole description as JSON, instead of all this")
	context := flag.Int("context", 0, "tokens that the model claims to be trained on, instead of a tiny model's")
	window := flag.Int("window", 0, "tokens of sliding attention, instead of a tiny model's")
	seed := flag.Uint64("seed", 1, "seed of the weights")
	out := flag.String("o", "", "the file to write")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		return fmt.Errorf("usage: gen [flags] -o FILE")
	}
	s, err := describe(*arch, *kind, *half, *wide)
	if err != nil {
		return err
	}
	s.Seed = *seed
	if *context > 0 {
		s.Context = *context
	}
	if *window > 0 {
		s.Window = *window
	}
	if *spec != "" {
		b, err := os.ReadFile(*spec)
		if err != nil {
			return err
		}
		s = synth.Spec{}
		if err := json.Unmarshal(b, &s); err != nil {
			return fmt.Errorf("reading %s: %w", *spec, err)
		}
	}
	w, err := synth.Model(s)
	if err != nil {
		return err
	}
	return w.WriteFile(*out)
}

func describe(arch, kind string, half, wide bool) (synth.Spec, error) {
	for _, t := range tensor.Types() {
		switch {
		case t.String() != kind:
		case half:
			return synth.QwenHalfB(t), nil
		case wide:
			return synth.Wide(arch, t), nil
		default:
			return synth.Tiny(arch, t), nil
		}
	}
	return synth.Spec{}, fmt.Errorf("unknown type %q", kind)
}
