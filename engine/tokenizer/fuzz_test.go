package tokenizer_test

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"onebit/engine/tokenizer"
)

// FuzzEncodeRoundTrip: byte-level vocabularies lose nothing.
func FuzzEncodeRoundTrip(f *testing.F) {
	for _, s := range []string{"", "Hello, world's 123\n\n  x", "🙂é中\u0301", "<|im_end|>", "\xff\xe4", "  \r\n\t a"} {
		f.Add(s)
	}
	var ks []*tokenizer.Tokenizer
	for _, pre := range []string{"gpt-2", "llama-bpe", "qwen35", "gpt-4o", "deepseek-v3", "deepseek-llm", "tiny_aya", "superbpe", "kimi-k2", "exaone-moe", "chameleon", "jais-2", "bloom", "youtu"} {
		v := byteLevel(pre, [2]string{"l", "l"}, [2]string{"e", "ll"}, [2]string{" ", " "}, [2]string{"1", "1"}, [2]string{"\xe4", "\xb8"}, [2]string{"'", "s"})
		v.add("<|im_end|>", control, 0)
		v.add("<think>", userDefined, 0)
		ks = append(ks, v.tokenizer(f))
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := string([]rune(text))
		for _, k := range ks {
			for _, parse := range []bool{false, true} {
				ids := k.Encode(text, tokenizer.Options{ParseSpecial: parse})
				if got := k.Decode(ids, true); got != want {
					t.Errorf("%q became %v, and that %q", text, ids, got)
				}
			}
		}
	})
}

// FuzzNew: no metadata makes New, Encode or Decode fail otherwise than by an
// error that names a key.
func FuzzNew(f *testing.F) {
	f.Add("gpt2", "llama-bpe", "a\nb\nab\n<|x|>", "a b", []byte{1, 1, 1, 3}, []byte{}, int64(3), "ab<|x|>")
	f.Add("llama", "", "<unk>\n<s>\n</s>\n▁\na\n▁a\n<0x41>", "", []byte{2, 3, 3, 1, 1, 1, 6}, []byte{0, 1, 2, 3, 4, 5, 6}, int64(1), "a A</s>")
	f.Add("bert", "", "[UNK]\n▁a\nb\n[X]", "", []byte{3, 1, 1, 3}, []byte{}, int64(0), "ab é中 [X]")
	f.Add("gemma4", "", "▁\na\n▁a\n\n<0x0A>", "▁ a", []byte{1, 1, 1, 1, 6}, []byte{}, int64(2), "a a\n\nb")
	f.Add("gpt2", "mmbert", "<mask>\n▁\nx", "▁ x", []byte{3, 1, 1}, []byte{}, int64(-1), "x  x<mask>")
	f.Fuzz(func(t *testing.T, model, pre, tokens, merges string, types, scores []byte, id int64, text string) {
		v := &vocab{model: model, pre: pre, keys: map[string]any{}}
		v.tokens = strings.Split(tokens, "\n")
		for i := range v.tokens {
			v.tokens[i] = strings.ReplaceAll(v.tokens[i], "\\n", "\n")
		}
		if merges != "" || model != "llama" {
			v.merges = strings.Split(merges, "\n")
		}
		for _, b := range types {
			v.types = append(v.types, int32(b))
		}
		for _, b := range scores {
			v.scores = append(v.scores, math.Float32frombits(uint32(b)<<24|uint32(b)))
		}
		for _, key := range []string{"bos_token_id", "eos_token_id", "unknown_token_id", sepKey, "cls_token_id", "fim_pad_token_id"} {
			v.keys[key] = id
		}
		k, err := tokenizer.New(v.file(t))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "tokenizer.ggml.") {
				t.Errorf("an error that names no key: %v", err)
			}
			return
		}
		for _, o := range []tokenizer.Options{{}, {AddSpecial: true, ParseSpecial: true}} {
			ids := k.Encode(text, o)
			for _, id := range ids {
				if id < 0 || int(id) >= k.Size() {
					t.Fatalf("token %d of %d", id, k.Size())
				}
			}
			if s := k.Decode(ids, o.ParseSpecial); !utf8.ValidString(s) {
				t.Errorf("decoded as %q", s)
			}
		}
		k.Decode([]int32{-1, 0, int32(id), math.MaxInt32}, true)
	})
}
