package tokenizer_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/engine/gguf"
	"onebit/engine/tokenizer"
)

// prose returns n bytes of made-up text with the word lengths of English.
func prose(n int) string {
	rng := rand.New(rand.NewPCG(11, 12))
	syllables := strings.Fields("the of and to in a is that it was for on are with as at be this have from or by one had not but what all were when we there can an your which their said if do will each about how up out them then she many some so")
	words := make([]string, 4000)
	for i := range words {
		for range 1 + rng.IntN(3) {
			words[i] += syllables[rng.IntN(len(syllables))]
		}
	}
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[int(float64(len(words))*rng.Float64()*rng.Float64()*rng.Float64())])
		b.WriteString([]string{" ", " ", " ", " ", ", ", ". ", "\n"}[rng.IntN(7)])
	}
	return b.String()[:n]
}

// benchModels returns vocabularies to time: SmolLM2's, and those of the source
// that ONEBIT_LLAMA_SOURCE names.
func benchModels(b *testing.B) map[string]*gguf.File {
	all := map[string]*gguf.File{}
	if path := findModel(b, "SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98362432); path != "" {
		all["smollm2"] = open(b, path)
	}
	if source := os.Getenv("ONEBIT_LLAMA_SOURCE"); source != "" {
		for _, name := range []string{"qwen2", "llama-bpe", "gemma-4", "llama-spm", "deepseek-llm", "bert-bge"} {
			all[name] = open(b, filepath.Join(source, "models", "ggml-vocab-"+name+".gguf"))
		}
	}
	if len(all) == 0 {
		b.Fatal("no vocabulary to time: get SmolLM2 with `make test`, or set ONEBIT_LLAMA_SOURCE to a llama.cpp source")
	}
	return all
}

func BenchmarkNew(b *testing.B) {
	for name, f := range benchModels(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tokenizer.New(f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	texts := map[string]string{"prose": prose(1 << 18), "one-word": strings.Repeat("abcdefg", 1<<18/7)}
	for name, f := range benchModels(b) {
		k, err := tokenizer.New(f)
		if err != nil {
			b.Fatal(err)
		}
		for kind, text := range texts {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					k.Encode(text, tokenizer.Options{})
				}
			})
		}
	}
}
