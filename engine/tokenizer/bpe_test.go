package tokenizer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/tokenizer"
)

// plainMerge is byte-pair encoding as it is defined: while some neighbours
// merge, merge the leftmost of the least rank.
func plainMerge(parts []string, rank func(a, b string) (int, bool)) []string {
	for {
		best, at := 0, -1
		for i := 0; i+1 < len(parts); i++ {
			if r, ok := rank(parts[i], parts[i+1]); ok && (at < 0 || r < best) {
				best, at = r, i
			}
		}
		if at < 0 {
			return parts
		}
		parts[at] += parts[at+1]
		parts = slices.Delete(parts, at+1, at+2)
	}
}

// tangled returns merges that fight for the same letters.
func tangled() [][2]string {
	var merges [][2]string
	have := []string{"a", "b", "c"}
	rng := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	for len(merges) < 60 {
		a, b := have[rng.IntN(len(have))], have[rng.IntN(len(have))]
		if s := a + b; len(s) < 9 && !seen[a+" "+b] {
			seen[a+" "+b] = true
			merges = append(merges, [2]string{a, b})
			have = append(have, s)
		}
	}
	return merges
}

func letters(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abc"[rng.IntN(3)]
	}
	return string(b)
}

// TestMergesInOrder compares with the definition, for words that are searched
// and words that are long enough for the heap.
func TestMergesInOrder(t *testing.T) {
	merges := tangled()
	k := byteLevel("gpt-2", merges...).tokenizer(t)
	ranks := map[[2]string]int{}
	for i, m := range merges {
		ranks[m] = i
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for n := range 300 {
		word := letters(rng, n+1)
		want := plainMerge(strings.Split(word, ""), func(a, b string) (int, bool) {
			r, ok := ranks[[2]string{a, b}]
			return r, ok
		})
		if got := pieces(k, word, tokenizer.Options{}); got != strings.Join(want, "¦") {
			t.Fatalf("%s:\n got %s\nwant %s", word, got, strings.Join(want, "¦"))
		}
	}
}

// TestIgnoreMerges: with llama-bpe a piece that is a token is one, though no
// merge leads to it; with gpt-2 it is not.
func TestIgnoreMerges(t *testing.T) {
	for _, c := range []struct{ pre, want string }{{"llama-bpe", "word"}, {"gpt-2", "w¦o¦r¦d"}} {
		v := byteLevel(c.pre, [2]string{"x", "y"})
		v.add("word", normal, 0)
		v.add("eos", control, 0)
		k := v.tokenizer(t)
		if got := pieces(k, "word", tokenizer.Options{}); got != c.want {
			t.Errorf("%s: %q, want %q", c.pre, got, c.want)
		}
		if got := pieces(k, "eos", tokenizer.Options{}); got != "e¦o¦s" {
			t.Errorf("%s: a control token came out of plain text: %q", c.pre, got)
		}
	}
}

// TestMergesBeyondTokens: a merge may make a string that is no token; then its
// bytes are emitted, those that are tokens.
func TestMergesBeyondTokens(t *testing.T) {
	v := byteLevel("gpt-2", [2]string{"a", "b"}, [2]string{"ab", "c"}, [2]string{"d", "é"[:1]})
	v.tokens = slices.DeleteFunc(v.tokens, func(s string) bool { return s == "ab" || s == "d"+printable("é"[:1]) || s == "!" })
	v.types, v.scores = v.types[:len(v.tokens)], v.scores[:len(v.tokens)]
	k := v.tokenizer(t)
	for _, c := range []struct{ text, want string }{
		{"abc", "abc"},
		{"abd", "a¦b¦d"},
		{"dé", "d¦\xc3¦\xa9"},
		{"a!c", "a¦c"}, // no token for it
	} {
		if got := pieces(k, c.text, tokenizer.Options{}); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// rawVocab merges characters and writes spaces as U+2581, like Gemma 4.
func rawVocab(model, pre string) *vocab {
	v := &vocab{model: model, pre: pre, keys: map[string]any{"bos_token_id": uint32(0)}}
	v.add("<bos>", control, 0)
	for i := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", i), byteType, 0)
	}
	for _, s := range []string{"▁", "a", "b", "é", "\n", "\n\n\n", "▁a", "▁ab", "ab", "▁▁"} {
		v.add(s, normal, 0)
	}
	v.merges = []string{"▁ a", "a b", "▁a b", "▁ ▁"}
	return v
}

func TestRawMerges(t *testing.T) {
	for _, c := range []struct{ model, pre, text, want string }{
		{"gemma4", "", "ab ab", "ab¦ ab"},
		{"gemma4", "", "ab▁ab", "ab¦ ab"},
		{"gemma4", "", "   a", "  ¦ a"},
		{"gemma4", "", "a\n\n\nb", "a¦\n\n\n¦b"},
		{"gemma4", "", "a\n\nb", "a¦\n¦\n¦b"},
		{"gemma4", "", "é中", "é¦\xe4¦\xb8¦\xad"},
		{"gpt2", "sarvam-moe", "a\n\n\nb", "a¦\n¦\n¦\n¦b"},
		{"gpt2", "mmbert", "ab a", " ab¦ a"},
		{"gpt2", "mmbert", "  a\nb", " ¦ a¦\n¦ ¦b"},
	} {
		if got := pieces(rawVocab(c.model, c.pre).tokenizer(t), c.text, tokenizer.Options{}); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.pre, c.text, got, c.want)
		}
	}
	if k := rawVocab("gemma4", "").tokenizer(t); !k.AddsBOS() {
		t.Error("gemma4 adds no BOS")
	}
}

// TestLongRuns encodes a megabyte that is one piece: work that grows with the
// square of the length would not end.
func TestLongRuns(t *testing.T) {
	const n = 1 << 20
	for _, c := range []struct {
		name string
		v    *vocab
		text string
		ids  int
	}{
		{"BPE", byteLevel("gpt-2", [2]string{"a", "a"}, [2]string{"aa", "aa"}), strings.Repeat("a", n), n / 4},
		{"BPE that merges nothing", byteLevel("gpt-2", [2]string{"a", "a"}), strings.Repeat("ab", n/2), n},
		{"digits", byteLevel("superbpe", [2]string{"1", "1"}, [2]string{"11", "1"}), strings.Repeat("1", n), n/3 + 1},
		{"grouped digits", byteLevel("tiny_aya", [2]string{"1", "1"}, [2]string{"11", "1"}), strings.Repeat("1", n), n/3 + 1},
		{"space", byteLevel("jais-2", [2]string{" ", " "}), strings.Repeat(" ", n), n / 2},
		{"space before a number", byteLevel("deepseek-llm", [2]string{" ", " "}), strings.Repeat(" ", n) + "1", n/2 + 1},
		{"raw BPE", rawVocab("gemma4", ""), strings.Repeat("ab", n/2), n / 2},
		{"SPM", spmVocab(), strings.Repeat("ab", n/2), n/2 + 1},
		{"WordPiece", wordPieceVocab(), strings.Repeat("a", n), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := len(c.v.tokenizer(t).Encode(c.text, tokenizer.Options{})); got != c.ids {
				t.Errorf("%d ids, want %d", got, c.ids)
			}
		})
	}
}

// TestConcurrentUse encodes the same words at once; the race detector watches.
func TestConcurrentUse(t *testing.T) {
	var texts []string
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		texts = append(texts, letters(rng, 1+rng.IntN(60))+" "+letters(rng, 5))
	}
	for _, v := range []*vocab{byteLevel("gpt-2", tangled()...), spmVocab(), wordPieceVocab()} {
		var want [][]int32
		alone := v.tokenizer(t)
		for _, text := range texts {
			want = append(want, alone.Encode(text, tokenizer.Options{}))
		}
		k := v.tokenizer(t)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for i, text := range texts {
					if got := k.Encode(text, tokenizer.Options{}); !slices.Equal(got, want[i]) {
						t.Errorf("%q (-want +got):\n%s", text, cmp.Diff(want[i], got))
					}
				}
			})
		}
		group.Wait()
	}
}
