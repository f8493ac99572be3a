package tokenizer_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"onebit/engine/tokenizer"
)

// TestDamagedVocabulariesAreRefused: each refusal names the key and what is
// wrong with it.
func TestDamagedVocabulariesAreRefused(t *testing.T) {
	change := func(v *vocab, f func(*vocab)) *vocab { f(v); return v }
	key := func(v *vocab, k string, value any) *vocab { v.keys[k] = value; return v }
	for _, c := range []struct {
		name, key, what string
		v               *vocab
	}{
		{"no model", "model", "missing", change(spmVocab(), func(v *vocab) { v.model = "" })},
		{"unknown model", "model", `"rwkv"`, change(spmVocab(), func(v *vocab) { v.model = "rwkv" })},
		{"model of another type", "model", "not a string", key(change(spmVocab(), func(v *vocab) { v.model = "" }), "model", uint32(1))},
		{"pre of another type", "pre", "not a string", key(byteLevel(""), "pre", true)},
		{"no tokens", "tokens", "missing", change(spmVocab(), func(v *vocab) { v.tokens = nil })},
		{"empty tokens", "tokens", "no tokens", change(spmVocab(), func(v *vocab) { v.tokens = []string{} })},
		{"tokens of another type", "tokens", "array of strings", key(change(spmVocab(), func(v *vocab) { v.tokens = nil }), "tokens", []uint32{1})},
		{"bad byte token", "tokens", `"<0xZZ>"`, change(spmVocab(), func(v *vocab) { v.add("<0xZZ>", byteType, 0) })},
		{"too few types", "token_type", "3 types for", change(spmVocab(), func(v *vocab) { v.types = v.types[:3] })},
		{"types of another type", "token_type", "integers", change(spmVocab(), func(v *vocab) { v.types = nil; v.keys["token_type"] = []float32{1} })},
		{"no scores", "scores", "missing", change(spmVocab(), func(v *vocab) { v.scores = nil })},
		{"too few scores", "scores", "5 scores for", change(spmVocab(), func(v *vocab) { v.scores = v.scores[:5] })},
		{"NaN score", "scores", "token 7 is not a number", change(spmVocab(), func(v *vocab) { v.scores[7] = float32(math.NaN()) })},
		{"no merges", "merges", "missing", change(byteLevel("gpt-2"), func(v *vocab) { v.merges = nil })},
		{"merges of another type", "merges", "array of strings", key(change(byteLevel("kimi-k2"), func(v *vocab) { v.merges = nil }), "merges", []int32{1})},
		{"merge of one part", "merges", `merge 1, "ab"`, change(byteLevel("gpt-2"), func(v *vocab) { v.merges = []string{"a b", "ab"} })},
		{"merge without left", "merges", `merge 0, " b"`, change(byteLevel("gpt-2"), func(v *vocab) { v.merges = []string{" b"} })},
		{"merge without right", "merges", `merge 0, "a "`, change(byteLevel("gpt-2"), func(v *vocab) { v.merges = []string{"a "} })},
		{"merge without end", "merges", "has not two parts", change(byteLevel("gpt-2"), func(v *vocab) { v.merges = []string{strings.Repeat("a", 1<<20)} })},
		{"pre-tokenizer without end", "pre", "unknown pre-tokenizer", byteLevel(strings.Repeat("a", 1<<20))},
		{"tokenizer without end", "model", "unknown tokenizer", change(spmVocab(), func(v *vocab) { v.model = strings.Repeat("a", 1<<20) })},
		{"byte token without end", "tokens", "byte token", change(spmVocab(), func(v *vocab) { v.add(strings.Repeat("a", 1<<20), byteType, 0) })},
		{"empty merge", "merges", "merge 0", change(byteLevel("gpt-2"), func(v *vocab) { v.merges = []string{""} })},
		{"BOS out of range", "bos_token_id", "token 999 of", key(spmVocab(), "bos_token_id", uint32(999))},
		{"EOS out of range", "eos_token_id", "token 70000 of", key(spmVocab(), "eos_token_id", uint64(70000))},
		{"EOT out of range", "eot_token_id", "token 300 of", key(spmVocab(), "eot_token_id", uint32(300))},
		{"EOM of another type", "eom_token_id", "not a token id", key(spmVocab(), "eom_token_id", "x")},
		{"UNK out of range", "unknown_token_id", "token 800 of", key(spmVocab(), "unknown_token_id", uint32(800))},
		{"flag of another type", "add_bos_token", "truth value", key(spmVocab(), "add_bos_token", uint32(1))},
		{"BERT without SEP", "model", "bert needs", change(wordPieceVocab(), func(v *vocab) { delete(v.keys, sepKey) })},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := tokenizer.New(c.v.file(t))
			e, ok := errors.AsType[*tokenizer.Error](err)
			if !ok || e.Key != "tokenizer.ggml."+c.key || !strings.Contains(e.What, c.what) || len(e.Error()) > 400 {
				t.Errorf("New: %v; want %s: ...%s...", err, c.key, c.what)
			}
		})
	}
}

// TestOddVocabulariesAreRead: what the format allows is no damage.
func TestOddVocabulariesAreRead(t *testing.T) {
	twice := byteLevel("gpt-2", [2]string{"a", "b"}, [2]string{"a", "b"})
	twice.merges = append(twice.merges, twice.merges[0])
	twice.add("ab", normal, 0)
	empty := byteLevel("gpt-2")
	empty.add("", normal, 0)
	empty.add("", control, 0)
	untyped := spmVocab()
	untyped.types = nil
	odd := spmVocab()
	odd.add("odd", 77, 0)
	none := byteLevel("kimi-k2")
	none.merges = nil
	ints := spmVocab()
	ints.scores, ints.keys["scores"] = nil, make([]int32, len(ints.tokens))
	for name, v := range map[string]*vocab{
		"equal tokens and merges": twice, "empty tokens": empty, "no types": untyped, "unknown type": odd,
		"kimi without merges": none, "whole scores": ints,
	} {
		t.Run(name, func(t *testing.T) {
			k := v.tokenizer(t)
			if got := strings.TrimPrefix(k.Decode(k.Encode("abé", tokenizer.Options{}), false), " "); !strings.HasPrefix(got, "ab") {
				t.Errorf("decoded as %q", got)
			}
		})
	}
}
