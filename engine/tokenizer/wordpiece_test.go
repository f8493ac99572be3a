package tokenizer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/tokenizer"
)

// wordPieceVocab is a small BERT vocabulary as converters write it: tokens
// that begin a word have U+2581 before them.
func wordPieceVocab() *vocab {
	v := &vocab{model: "bert", keys: map[string]any{
		"cls_token_id": uint32(2), sepKey: uint32(3), "unknown_token_id": uint32(1),
	}}
	for _, s := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} {
		v.add(s, control, 0)
	}
	for _, s := range []string{
		"▁play", "ing", "ed", "▁un", "believ", "able", "▁cafe", "▁a", "a", "▁naive", "▁σ", "σ", "▁[", "▁]", "▁,", "▁.", "▁$", "▁'",
		"▁今", "▁天", "▁カ", "▁ᄒ", "ᅡ", "ᆫ", "▁mask", "▁don", "▁t", "▁“", "▁म", "ा", "▁x", "y", "▁istanbul",
	} {
		v.add(s, normal, 0)
	}
	return v
}

func TestWordPiece(t *testing.T) {
	uncased := wordPieceVocab().tokenizer(t)
	cased := func() *tokenizer.Tokenizer {
		v := wordPieceVocab()
		v.keys["normalizer.lowercase"] = false
		v.add("▁Play", normal, 0)
		v.add("▁café", normal, 0)
		return v.tokenizer(t)
	}()
	long := "a" + strings.Repeat("a", 99)
	for _, c := range []struct {
		name, text, want string
		k                *tokenizer.Tokenizer
	}{
		{"longest first", "unbelievable", " un¦believ¦able", uncased},
		{"words", "play playing \t\r\nplayed", " play¦ play¦ing¦ play¦ed", uncased},
		{"lower case", "PLAYing", " play¦ing", uncased},
		{"case kept", "Play play PLAY", " Play¦ play¦[UNK]", cased},
		{"accents stripped", "Café nai\u0308ve", " cafe¦ naive", uncased},
		{"accents kept", "café", " café", cased},
		{"sigma", "ΣΣ", " σ¦σ", uncased},
		{"dotted capital", "İstanbul", " istanbul", uncased},
		{"punctuation alone", "don't, a.", " don¦ '¦ t¦ ,¦ a¦ .", uncased},
		{"ASCII symbols too", "$a", " $¦ a", uncased},
		{"quotation marks", "“a", " “¦ a", uncased},
		{"ideographs alone", "今天a", " 今¦ 天¦ a", uncased},
		{"kana with its mark", "ガ", " カ", uncased},
		{"Hangul falls apart", "한", " ᄒ¦ᅡ¦ᆫ", uncased},
		{"spacing marks stay", "मा", " म¦ा", uncased},
		{"controls go", "x\x00y x\x0by x\u200by x\ufffdy x\u00ady x\ue000y", " x¦y¦ x¦y¦ x¦y¦ x¦y¦ x¦y¦ x¦y", uncased},
		{"space of all kinds", "x\u00a0x\u3000x\u2028x", " x¦ x¦ x¦ x", uncased},
		{"unknown whole word", "playxq play", "[UNK]¦ play", uncased},
		{"emoji", "🙂 x", "[UNK]¦ x", uncased},
		{"a hundred letters", long, " a" + strings.Repeat("¦a", 99), uncased},
		{"too long a word", long + "a x", "[UNK]¦ x", uncased},
		{"control tokens are only text", "[MASK]", " [¦ mask¦ ]", uncased},
		{"nothing", " \n", "", uncased},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := pieces(c.k, c.text, tokenizer.Options{}); got != c.want {
				t.Errorf("%q: %q, want %q", c.text, got, c.want)
			}
		})
	}
}

func TestWordPieceSpecial(t *testing.T) {
	k := wordPieceVocab().tokenizer(t)
	all := tokenizer.Options{AddSpecial: true, ParseSpecial: true}
	if diff := cmp.Diff("[CLS]¦[SEP]", pieces(k, "", all)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("[CLS]¦ x¦[MASK]¦ x¦[SEP]", pieces(k, "x [MASK] x", all)); diff != "" {
		t.Error(diff)
	}
}

// TestWordPieceGolden compares the ids of a real vocabulary with those of the model's own tokenizer.
func TestWordPieceGolden(t *testing.T) {
	b, err := os.ReadFile("testdata/golden-minilm.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(b, &g); err != nil || len(g.Cases) < 15 {
		t.Fatalf("%d cases, %v", len(g.Cases), err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	b, err = os.ReadFile(filepath.Join(cache, "1bit", "e2e", "minilm-53aa51172d14", "vocab.txt"))
	if err != nil {
		t.Fatalf("the vocabulary of the sentence encoder is not here: %v; run e2e/minilm.sh", err)
	}
	v := &vocab{model: "bert", keys: map[string]any{}}
	for line := range strings.Lines(string(b)) {
		word, kind := strings.TrimRight(line, "\r\n"), normal
		switch inside, ok := strings.CutPrefix(word, "##"); {
		case ok:
			word = inside
		case strings.HasPrefix(word, "[") && strings.HasSuffix(word, "]") && len(word) > 2:
			kind = control
		default:
			word = "▁" + word
		}
		v.add(word, kind, 0)
	}
	k := v.tokenizer(t)
	for _, c := range g.Cases {
		if diff := cmp.Diff(c.IDs, k.Encode(c.Text, tokenizer.Options{})); diff != "" {
			t.Errorf("%q: ids (-want +got):\n%s", c.Text, diff)
		}
		if diff := cmp.Diff(c.Parsed, k.Encode(c.Text, tokenizer.Options{AddSpecial: true, ParseSpecial: true})); diff != "" {
			t.Errorf("%q: ids with special tokens (-want +got):\n%s", c.Text, diff)
		}
	}
}
