package tokenizer_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"onebit/engine/tokenizer"
)

// golden holds ids that the reference program gave for texts with a real
// vocabulary.
type golden struct {
	Origin string
	File   string
	Size   int64
	SHA256 string
	Cases  []goldenCase
}

type goldenCase struct {
	Text   string
	Hex    string  // instead of Text, where it is not UTF-8
	IDs    []int32 // of the plain text
	Parsed []int32 // with AddSpecial and ParseSpecial; not in every case
}

func (c goldenCase) text(t *testing.T) string {
	if c.Hex == "" {
		return c.Text
	}
	b, err := hex.DecodeString(c.Hex)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name   string
		needed bool // by make test; the others by make test-all
	}{{"smollm2", true}, {"qwen2.5-coder", false}, {"gemma3", false}, {"stories260k", false}} {
		t.Run(c.name, func(t *testing.T) {
			b, err := os.ReadFile("testdata/golden-" + c.name + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var g golden
			if err := json.Unmarshal(b, &g); err != nil {
				t.Fatal(err)
			}
			path := findModel(t, g.File, g.SHA256, g.Size)
			if path == "" && c.needed {
				t.Fatalf("the model %s is neither in the folder of ONEBIT_TEST_MODELS nor in the cache: get it with `make test` or `bin/1bit model pull smollm2`", g.File)
			}
			if path == "" {
				t.Skipf("SKIPPED: the model %s is neither in the folder of ONEBIT_TEST_MODELS nor in the cache; `make test-all` wants it", g.File)
			}
			g.check(t, load(t, path))
		})
	}
}

func (g *golden) check(t *testing.T, k *tokenizer.Tokenizer) {
	if len(g.Cases) < 100 {
		t.Fatalf("only %d cases", len(g.Cases))
	}
	for i, c := range g.Cases {
		text := c.text(t)
		got := k.Encode(text, tokenizer.Options{})
		if diff := cmp.Diff(c.IDs, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q: ids (-want +got):\n%s", text, diff)
		}
		if i >= 40 {
			got := k.Encode(text, tokenizer.Options{AddSpecial: true, ParseSpecial: true})
			if diff := cmp.Diff(c.Parsed, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%q: ids with special tokens (-want +got):\n%s", text, diff)
			}
		}
		want := string([]rune(text)) // each byte that is not UTF-8 as U+FFFD
		if back := k.Decode(got, true); back != want && strings.TrimPrefix(back, " ") != want &&
			!strings.Contains(text, "▁") && !strings.Contains(text, "Ġ") {
			t.Errorf("%q: decoded as %q", text, back)
		}
	}
}

// TestVocabularies runs the inputs and expected ids that llama.cpp publishes
// beside its vocabularies.
func TestVocabularies(t *testing.T) {
	source := os.Getenv("ONEBIT_LLAMA_SOURCE")
	if source == "" {
		t.Skip("SKIPPED: ONEBIT_LLAMA_SOURCE names no llama.cpp source with published vocabularies; `make test-all` sets it")
	}
	inputs, err := filepath.Glob(filepath.Join(source, "models", "ggml-vocab-*.gguf.inp"))
	if err != nil {
		t.Fatal(err)
	}
	if len(inputs) < 15 {
		t.Fatalf("ONEBIT_LLAMA_SOURCE is %s, but there are %d files models/ggml-vocab-*.gguf.inp in it, not 15 or more", source, len(inputs))
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".gguf.inp")
		t.Run(strings.TrimPrefix(name, "ggml-vocab-"), func(t *testing.T) {
			path := strings.TrimSuffix(input, ".inp")
			in, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			out, err := os.ReadFile(path + ".out")
			if err != nil {
				t.Fatal(err)
			}
			const between = "\n__ggml_vocab_test__\n"
			texts := strings.Split(strings.TrimSuffix(string(in), between), between)
			want := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			if len(texts) != len(want) || len(texts) < 40 {
				t.Fatalf("%d texts and %d lists of ids", len(texts), len(want))
			}
			k := load(t, path)
			for i, text := range texts {
				got := strings.Trim(fmt.Sprint(k.Encode(text, tokenizer.Options{})), "[]")
				if want := strings.Join(strings.Fields(want[i]), " "); got != want {
					t.Errorf("%q:\n got %s\nwant %s", text, got, want)
				}
			}
			t.Logf("%d texts", len(texts))
		})
	}
}
