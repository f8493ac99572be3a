package tokenizer_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"onebit/engine/tokenizer"
)

// observer returns a vocabulary that merges any neighbours, up to three
// characters of alphabet: its tokens show where the text was cut.
func observer(pre string, alphabet []string) *vocab {
	var merges [][2]string
	seen := map[string]bool{}
	for _, c := range alphabet {
		for i := 2; i <= len(c); i++ {
			if !seen[c[:i]] {
				seen[c[:i]] = true
				merges = append(merges, [2]string{c[:i-1], c[i-1 : i]})
			}
		}
	}
	for _, a := range alphabet {
		for _, b := range alphabet {
			merges = append(merges, [2]string{a, b})
		}
	}
	for _, a := range alphabet {
		for _, b := range alphabet {
			for _, c := range alphabet {
				merges = append(merges, [2]string{a + b, c})
			}
		}
	}
	return byteLevel(pre, merges...)
}

type preGolden struct {
	Origin   string
	Alphabet []string
	Texts    []string
	Pieces   map[string][]string // by pre-tokeniser
}

func readPreGolden(t *testing.T) (g preGolden) {
	b, err := os.ReadFile("testdata/pre.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Pieces) < 29 {
		t.Fatalf("only %d pre-tokenisers", len(g.Pieces))
	}
	return g
}

func TestPreTokenizers(t *testing.T) {
	g := readPreGolden(t)
	for pre, want := range g.Pieces {
		t.Run(pre, func(t *testing.T) {
			k := observer(pre, g.Alphabet).tokenizer(t)
			for i, text := range g.Texts {
				if got := pieces(k, text, tokenizer.Options{}); got != want[i] {
					t.Errorf("%q:\n got %q\nwant %q", text, got, want[i])
				}
			}
		})
	}
}

// TestPreTokenizerNames checks that each other name cuts like the one it is
// equal to.
func TestPreTokenizerNames(t *testing.T) {
	g := readPreGolden(t)
	same := map[string]string{
		"gpt-2": `phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum modern-bert roberta-bpe
			jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code`,
		"smollm":    "starcoder refact command-r codeshell exaone minerva-7b mellum2",
		"llama-bpe": `llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano glm4 glm5`,
		"dbrx":      "smaug-bpe chatglm-bpe",
		"qwen2": `deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2 bailingmoe bailingmoe2
			llada-moe`,
		"gpt-4o":      "llama4 kanana2 talkie minimax-m2",
		"tiny_aya":    "cohere2moe",
		"deepseek-v3": "hunyuan-dense hy_v4 joyai-llm",
		"bloom":       "poro-chat gpt3-finnish",
	}
	alphabet := strings.Split(" ¦\n¦a¦B¦é¦1¦'¦s¦/¦!", "¦")
	for like, names := range same {
		ref := observer(like, alphabet).tokenizer(t)
		for _, pre := range strings.Fields(names) {
			t.Run(pre, func(t *testing.T) {
				k := observer(pre, alphabet).tokenizer(t)
				for _, text := range g.Texts {
					got, want := pieces(k, text, tokenizer.Options{}), pieces(ref, text, tokenizer.Options{})
					if got != want {
						t.Errorf("%q:\n got %q\nwant %q, like %s", text, got, want, like)
					}
				}
			})
		}
	}
}

func TestUnknownPreTokenizer(t *testing.T) {
	_, err := tokenizer.New(byteLevel("klingon-2").file(t))
	if e, ok := errors.AsType[*tokenizer.Error](err); !ok || e.Key != "tokenizer.ggml.pre" || !strings.Contains(err.Error(), "klingon-2") {
		t.Errorf("New: %v", err)
	}
}

// TestCharacterClasses checks classes that decide where text is cut, among
// them characters that Go's tables do not know.
func TestCharacterClasses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"letter of Unicode 15.1", "a\U0002ebf0", "a\U0002ebf0"},
		{"letter number", "aⅧ", "a¦Ⅷ"},
		{"other number", "a½", "a¦½"},
		{"mark is no letter", "a\u0301", "a¦\u0301"},
		{"symbol of Unicode 15.1", "a\u2ffc", "a¦\u2ffc"},
		{"next line is space", "!\u0085", "!¦\u0085"},
		{"no-break space is space", "!\u00a0", "!¦\u00a0"},
		{"ideographic space is space", "!\u3000", "!¦\u3000"},
		{"zero width space is none", "!\u200b", "!\u200b"},
		{"file separator is none", "!\x1c", "!\x1c"},
		{"not assigned is none", "!\u0378", "!\u0378"},
		{"private use is none", "!\ue000", "!\ue000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := []rune(c.text)
			k := observer("qwen2", []string{string(r[0]), string(r[1])}).tokenizer(t)
			if got := pieces(k, c.text, tokenizer.Options{}); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
