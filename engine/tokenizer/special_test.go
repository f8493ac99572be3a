package tokenizer_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"onebit/engine/tokenizer"
)

// chatVocab is byte-level, with control tokens that overlap, one of which a
// merge would build.
func chatVocab() *vocab {
	v := byteLevel("gpt-2", [2]string{"<", "|"}, [2]string{"|", ">"}, [2]string{"e", "n"}, [2]string{"en", "d"})
	v.types[slices.Index(v.tokens, "<|")] = control
	for _, s := range []string{"<|im_start|>", "<|im_end|>", "<|end", "end|>x"} {
		v.add(s, control, 0)
	}
	v.add("<think>", userDefined, 0)
	v.add("<unk>", unknown, 0)
	return v
}

func TestSpecialTokensInText(t *testing.T) {
	k := chatVocab().tokenizer(t)
	for _, c := range []struct{ name, text, plain, parsed string }{
		{"a turn", "<|im_start|>a<|im_end|>", "<¦|¦i¦m¦_¦s¦t¦a¦r¦t¦|>¦a¦<¦|¦i¦m¦_¦end¦|>", "<|im_start|>¦a¦<|im_end|>"},
		{"side by side", "<|im_end|><|im_end|>", "<¦|¦i¦m¦_¦end¦|>¦<¦|¦i¦m¦_¦end¦|>", "<|im_end|>¦<|im_end|>"},
		{"user-defined ones always", "a<think>b", "a¦<think>¦b", "a¦<think>¦b"},
		{"almost", "<|im_end |>", "<¦|¦i¦m¦_¦end¦ ¦|>", "<|¦i¦m¦_¦end¦ ¦|>"},
		{"the longest wins, not the first", "<|end|>x", "<¦|¦end¦|>¦x", "<|¦end|>x"},
		{"unknown", "<unk>", "<¦u¦n¦k¦>", "<unk>"},
		{"one that a merge would make", "<|", "<¦|", "<|"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := pieces(k, c.text, tokenizer.Options{}); got != c.plain {
				t.Errorf("plain: %q, want %q", got, c.plain)
			}
			if got := pieces(k, c.text, tokenizer.Options{ParseSpecial: true}); got != c.parsed {
				t.Errorf("parsed: %q, want %q", got, c.parsed)
			}
		})
	}
}

// TestPlainTextIsNeverControl throws texts made of parts of control tokens at
// vocabularies of each kind.
func TestPlainTextIsNeverControl(t *testing.T) {
	for _, v := range []*vocab{chatVocab(), spmVocab(), wordPieceVocab(), rawVocab("gemma4", "")} {
		k := v.tokenizer(t)
		rng := rand.New(rand.NewPCG(9, 9))
		var parts []string
		for i, s := range v.tokens {
			if v.types[i] != normal {
				parts = append(parts, s, s[:len(s)/2], s[len(s)/2:])
			}
		}
		for range 2000 {
			var text strings.Builder
			for range 1 + rng.IntN(5) {
				text.WriteString(parts[rng.IntN(len(parts))])
			}
			for _, id := range k.Encode(text.String(), tokenizer.Options{}) {
				if k.IsControl(id) && v.tokens[id] != "[UNK]" {
					t.Fatalf("%s: %q became the control token %q", v.model, text.String(), v.tokens[id])
				}
			}
		}
	}
}

// TestWhiteSpaceOfSpecialTokens: some families take white space with them.
func TestWhiteSpaceOfSpecialTokens(t *testing.T) {
	phi := spmVocab()
	phi.keys["general.name"] = "Phi-3 mini"
	phi.keys["add_space_prefix"] = false
	phi.add("<|user|>", control, 0)
	jina := byteLevel("jina-v2-de")
	jina.add("<mask>", control, 0)
	modern := byteLevel("gpt-2")
	modern.keys["general.name"] = "modern-bert base"
	modern.add("[MASK]", control, 0)
	for _, c := range []struct {
		v          *vocab
		text, want string
	}{
		{phi, "a <|user|> \n a", "a¦ ¦<|user|>¦a"},
		{phi, "<s> a", "<s>¦ a"},
		{phi, "</s> a", "</s>¦a"},
		{jina, "a \t<mask> b", "a¦<mask>¦ ¦b"},
		{jina, "  <mask>", "<mask>"},
		{modern, "a [MASK] b", "a¦[MASK]¦ ¦b"},
	} {
		if got := pieces(c.v.tokenizer(t), c.text, tokenizer.Options{ParseSpecial: true}); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestBeginAndEnd(t *testing.T) {
	with := func(v *vocab, keys map[string]any) *vocab {
		for k, value := range keys {
			v.keys[k] = value
		}
		return v
	}
	ids := map[string]any{"bos_token_id": uint32(65), "eos_token_id": uint32(66)} // A and B
	for _, c := range []struct {
		name string
		v    *vocab
		want string // of "x"
		bos  bool   // whether there is one
	}{
		{"BPE without", byteLevel("gpt-2"), "x", false},
		{"BPE adds none by itself", with(byteLevel("gpt-2"), ids), "x", true},
		{"BPE with both", with(with(byteLevel("gpt-2"), ids), map[string]any{"add_bos_token": true, "add_eos_token": true}), "A¦x¦B", true},
		{"BOS wanted but unknown", with(byteLevel("gpt-2"), map[string]any{"add_bos_token": true}), "x", false},
		{"llama-bpe begins with BOS", func() *vocab {
			v := with(byteLevel("llama-bpe"), ids)
			delete(v.keys, "add_bos_token")
			return v
		}(), "A¦x", true},
		{"SPM begins with BOS", spmVocab(), "<s>¦ ¦x", true},
		{"SPM told not to", with(spmVocab(), map[string]any{"add_bos_token": false, "add_eos_token": true}), " ¦x¦</s>", true},
		{"a negative id is none", with(spmVocab(), map[string]any{"bos_token_id": int32(-1)}), " ¦x", false},
		{"gemma4 overrules the file", with(rawVocab("gemma4", ""), map[string]any{"add_bos_token": false}), "<bos>¦x", true},
		{"BERT", wordPieceVocab(), "[CLS]¦ x¦[SEP]", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := c.v.tokenizer(t)
			if got := pieces(k, "x", tokenizer.Options{AddSpecial: true}); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			id, ok := k.BOS()
			if ok != c.bos {
				t.Errorf("BOS: %v", ok)
			}
			if begins := ok && k.Encode("x", tokenizer.Options{AddSpecial: true})[0] == id; begins != k.AddsBOS() {
				t.Errorf("AddsBOS is %v", k.AddsBOS())
			}
			if k.Size() != len(c.v.tokens) {
				t.Errorf("Size is %d", k.Size())
			}
		})
	}
}

func TestEndOfGeneration(t *testing.T) {
	plain := []string{"<|im_end|>", "<|eot_id|>", "<end_of_turn>", "</s>", "<|endoftext|>", "<|end|>", "<eos>", "[EOT]", "<｜end▁of▁sentence｜>"}
	for _, c := range []struct {
		name   string
		tokens []string
		keys   map[string]any
		want   []string
	}{
		{"by name", append([]string{"<|im_start|>", "word", "<|user|>"}, plain...), nil, plain},
		{"by id", []string{"eos", "eot", "eom", "x"}, map[string]any{"eos_token_id": uint32(256), "eot_token_id": uint32(257), "eom_token_id": uint32(258)}, []string{"eos", "eot", "eom"}},
		{"infill", []string{"<|fim_prefix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "pad2"}, nil, []string{"<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}},
		{"infill by id", []string{"<|fim_pad|>", "pad2"}, map[string]any{"fim_pad_token_id": uint32(257)}, []string{"pad2"}},
		{"harmony", []string{"<|return|>", "<|call|>", "<|end|>", "<|start|>"}, nil, []string{"<|return|>", "<|call|>"}},
		{"</s> that is a tag", []string{"</s>", "<|tool_response>"}, nil, []string{"<|tool_response>"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := byteLevel("gpt-2")
			for _, s := range c.tokens {
				v.add(s, normal, 0)
			}
			for key, value := range c.keys {
				v.keys[key] = value
			}
			k := v.tokenizer(t)
			for i, s := range v.tokens {
				if got, want := k.IsEOG(int32(i)), slices.Contains(c.want, s); got != want {
					t.Errorf("IsEOG of %q is %v", s, got)
				}
			}
			if k.IsEOG(-1) || k.IsEOG(int32(len(v.tokens))) || k.IsControl(-1) {
				t.Error("an id that is no token has properties")
			}
		})
	}
}

// TestHarmonyMarkers: the channel markers of the harmony format are read by
// people's programs, so they are shown, but no text becomes them.
func TestHarmonyMarkers(t *testing.T) {
	v := byteLevel("gpt-2")
	id := v.add("<|channel|>", control, 0)
	k := v.tokenizer(t)
	if got := k.Decode([]int32{id}, false); got != "<|channel|>" {
		t.Errorf("shown as %q", got)
	}
	if slices.Contains(k.Encode("<|channel|>", tokenizer.Options{}), id) {
		t.Error("plain text became the marker")
	}
	if got := k.Encode("<|channel|>", tokenizer.Options{ParseSpecial: true}); !slices.Equal(got, []int32{id}) {
		t.Errorf("parsed as %v", got)
	}
}

// TestManySpecialTokens cuts a text that is full of many different tokens. What it takes is in proportion to the text.
func TestManySpecialTokens(t *testing.T) {
	v := byteLevel("gpt-2")
	for i := range 3000 {
		v.add(fmt.Sprintf("<unused%d>", i), control, 0)
	}
	for n := 2; n < 32; n++ {
		v.add(strings.Repeat("\n", n), userDefined, 0)
	}
	k := v.tokenizer(t)
	var text strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&text, "<unused%d>\n", i*7%3000)
	}
	text.WriteString(strings.Repeat("\n", 100_000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ids := k.Encode(text.String(), tokenizer.Options{ParseSpecial: true})
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(200*text.Len()); took > most {
		t.Errorf("a text of %d bytes took %d MB, more than %d", text.Len(), took>>20, most>>20)
	}
	if k.Decode(ids, true) != text.String() {
		t.Error("the tokens spell another text")
	}
	if want := 30_000 + 29_999 + 100_001/31 + 1; len(ids) != want {
		t.Errorf("%d tokens, want %d", len(ids), want)
	}
}

// TestSpecialTokensAsDefined compares with the definition: the longest token first, everywhere, then the next in what
// is left.
func TestSpecialTokensAsDefined(t *testing.T) {
	v := byteLevel("gpt-2")
	var names []string
	for _, s := range []string{"aab", "aba", "ab", "ba", "aaaa", "bb", "aa ", " b", "cabc"} {
		names = append(names, s)
		v.add(s, control, 0)
	}
	slices.SortStableFunc(names, func(a, b string) int { return len(b) - len(a) })
	k := v.tokenizer(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		b := make([]byte, rng.IntN(400))
		for i := range b {
			b[i] = "aabbc "[rng.IntN(6)]
		}
		want := []string{string(b)} // those at odd places are tokens
		for _, name := range names {
			var next []string
			for i, part := range want {
				if i%2 == 1 {
					next = append(next, part)
					continue
				}
				pieces := strings.Split(part, name)
				for j, piece := range pieces {
					if j > 0 {
						next = append(next, name)
					}
					next = append(next, piece)
				}
			}
			want = next
		}
		var text []string
		for i, part := range want {
			if i%2 == 0 {
				text = append(text, strings.Split(part, "")...)
			} else {
				text = append(text, part)
			}
		}
		if got := pieces(k, string(b), tokenizer.Options{ParseSpecial: true}); got != strings.Join(text, "¦") {
			t.Fatalf("%q: %q, want %q", b, got, strings.Join(text, "¦"))
		}
	}
}
