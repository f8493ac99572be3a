package tokenizer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/tokenizer"
)

// spmVocab is a small SentencePiece vocabulary.
func spmVocab() *vocab {
	v := &vocab{model: "llama", keys: map[string]any{}}
	v.add("<unk>", unknown, 0)
	v.add("<s>", control, 0)
	v.add("</s>", control, 0)
	for i := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", i), byteType, 0)
	}
	for i, s := range []string{"▁", "a", "b", "c", "é", "<", ">", "/", "s"} {
		v.add(s, normal, float32(-100-i))
	}
	v.add("▁a", normal, -1)
	v.add("ab", normal, -2)
	v.add("bc", normal, -2)
	v.add("s>", normal, -4)
	v.add("/s>", normal, -4)
	v.add("▁▁", normal, -5)
	v.add("c▁a", normal, -0.5)
	v.add("\n", userDefined, 0)
	v.add("  ", userDefined, 0) // literal spaces, as converters write them
	return v
}

func TestSentencePiece(t *testing.T) {
	prefixed, bare := spmVocab().tokenizer(t), func() *tokenizer.Tokenizer {
		v := spmVocab()
		v.keys["add_space_prefix"] = false
		return v.tokenizer(t)
	}()
	for _, c := range []struct {
		name, text, want string
		k                *tokenizer.Tokenizer
	}{
		{"a space goes before", "b", " ¦b", prefixed},
		{"and merges", "ab", " a¦b", prefixed},
		{"unless the file says no", "ab", "ab", bare},
		{"an empty text stays empty", "", "", prefixed},
		{"higher score first", "ab ab", "ab¦ a¦b", bare},
		{"equal score: leftmost first", "abc", "ab¦c", bare},
		{"across words where a token does", "bc a", "b¦c a", bare},
		{"U+2581 is a space", "b▁a", "b¦ a", bare},
		{"what is no token becomes bytes", "x中", "x¦\xe4¦\xb8¦\xad", bare},
		{"not UTF-8 becomes U+FFFD", "a\xffb", "a¦\xef¦\xbf¦\xbd¦b", bare},
		{"NUL", "\x00", "\x00", bare},
		{"user-defined tokens first", "a\nb", "a¦\n¦b", bare},
		{"of spaces too", "b   a", "b¦  ¦ a", bare},
		{"a space goes behind them as well", "a\na", " a¦\n¦ a", prefixed},
		{"control tokens are only text", "<s></s>", "<¦s>¦<¦/s>", bare},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := pieces(c.k, c.text, tokenizer.Options{}); got != c.want {
				t.Errorf("%q: %q, want %q", c.text, got, c.want)
			}
		})
	}
}

// TestScoresInOrder compares with the definition.
func TestScoresInOrder(t *testing.T) {
	v := spmVocab()
	v.keys["add_space_prefix"] = false
	rng := rand.New(rand.NewPCG(7, 8))
	for range 120 {
		s := letters(rng, 2+rng.IntN(5))
		if !slices.Contains(v.tokens, s) {
			v.add(s, normal, -float32(rng.IntN(40))) // with ties
		}
	}
	scores := map[string]float32{}
	for i, s := range v.tokens {
		scores[s] = v.scores[i]
	}
	k := v.tokenizer(t)
	for n := range 300 {
		word := letters(rng, n+1)
		want := plainMerge(strings.Split(word, ""), func(a, b string) (int, bool) {
			s, ok := scores[a+b]
			return int(-4 * s), ok
		})
		if got := pieces(k, word, tokenizer.Options{}); got != strings.Join(want, "¦") {
			t.Fatalf("%s:\n got %s\nwant %s", word, got, strings.Join(want, "¦"))
		}
	}
}

func TestSentencePieceWithoutByteTokens(t *testing.T) {
	v := &vocab{model: "llama", keys: map[string]any{"add_space_prefix": false}}
	v.add("<unk>", unknown, 0)
	v.add("a", normal, -1)
	if diff := cmp.Diff([]int32{1, 0, 0, 1}, v.tokenizer(t).Encode("aéa", tokenizer.Options{})); diff != "" {
		t.Errorf("one UNK for each byte (-want +got):\n%s", diff)
	}
}
