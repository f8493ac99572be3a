package tokenizer_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/engine/gguf"
	"onebit/engine/tokenizer"
)

// The values of tokenizer.ggml.token_type.
const (
	normal      int32 = 1
	unknown     int32 = 2
	control     int32 = 3
	userDefined int32 = 4
	unused      int32 = 5
	byteType    int32 = 6
)

const sepKey = "seperator_token_id" //nolint:misspell // the format spells it so

// vocab is a vocabulary to write into a GGUF file.
type vocab struct {
	model, pre string
	tokens     []string
	types      []int32
	scores     []float32
	merges     []string
	keys       map[string]any // others, without tokenizer.ggml.
}

// add appends a token and returns its id.
func (v *vocab) add(text string, kind int32, score float32) int32 {
	v.tokens = append(v.tokens, text)
	v.types = append(v.types, kind)
	v.scores = append(v.scores, score)
	return int32(len(v.tokens) - 1)
}

func (v *vocab) id(t testing.TB, text string) int32 {
	t.Helper()
	for i, s := range v.tokens {
		if s == text {
			return int32(i)
		}
	}
	t.Fatalf("the vocabulary has no %q", text)
	return 0
}

// file returns the vocabulary as a GGUF file. Nil and empty fields stay out.
func (v *vocab) file(t testing.TB) *gguf.File {
	t.Helper()
	w := gguf.NewWriter()
	set := func(key string, value any) {
		if err := w.Set(key, value); err != nil {
			t.Fatalf("setting %s: %v", key, err)
		}
	}
	set("general.architecture", "llama")
	const prefix = "tokenizer.ggml."
	if v.model != "" {
		set(prefix+"model", v.model)
	}
	if v.pre != "" {
		set(prefix+"pre", v.pre)
	}
	if v.tokens != nil {
		set(prefix+"tokens", v.tokens)
	}
	if v.types != nil {
		set(prefix+"token_type", v.types)
	}
	if v.scores != nil {
		set(prefix+"scores", v.scores)
	}
	if v.merges != nil {
		set(prefix+"merges", v.merges)
	}
	for k, value := range v.keys {
		if k != "general.name" {
			k = prefix + k
		}
		set(k, value)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (v *vocab) tokenizer(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	k, err := tokenizer.New(v.file(t))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// printable writes bytes the way byte-level vocabularies do.
func printable(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := rune(s[i]); {
		case '!' <= c && c <= '~', 0xa1 <= c && c <= 0xac, 0xae <= c:
			b.WriteRune(c)
		case c <= ' ':
			b.WriteRune(256 + c)
		case c < 0xa1:
			b.WriteRune(256 + 33 + c - 0x7f)
		default:
			b.WriteRune(256 + 67)
		}
	}
	return b.String()
}

// byteLevel returns a byte-level vocabulary with all bytes and with the given
// merges, each "left right" in plain bytes.
func byteLevel(pre string, merges ...[2]string) *vocab {
	v := &vocab{model: "gpt2", pre: pre, keys: map[string]any{"add_bos_token": false}}
	seen := map[string]bool{}
	for i := range 256 {
		b := string([]byte{byte(i)})
		v.add(printable(b), normal, 0)
		seen[b] = true
	}
	v.merges = []string{}
	for _, m := range merges {
		v.merges = append(v.merges, printable(m[0])+" "+printable(m[1]))
		if s := m[0] + m[1]; !seen[s] {
			v.add(printable(s), normal, 0)
			seen[s] = true
		}
	}
	return v
}

// pieces returns the tokens of text as text, parted by ¦.
func pieces(k *tokenizer.Tokenizer, text string, o tokenizer.Options) string {
	var out []string
	for _, id := range k.Encode(text, o) {
		out = append(out, string(k.Piece(id, true)))
	}
	return strings.Join(out, "¦")
}

// findModel returns the path of a model file of that size, "" where there is
// none: in the folder of ONEBIT_TEST_MODELS or in the model cache.
func findModel(t testing.TB, name, sum string, size int64) string {
	t.Helper()
	var patterns []string
	if dir := os.Getenv("ONEBIT_TEST_MODELS"); dir != "" {
		patterns = append(patterns, filepath.Join(dir, name), filepath.Join(dir, "*.gguf"), filepath.Join(dir, "*", "*.gguf"))
	}
	if dir, err := os.UserCacheDir(); err == nil && sum != "" {
		patterns = append(patterns, filepath.Join(dir, "1bit", "models", sum[:12], "*.gguf"))
	}
	for _, p := range patterns {
		paths, err := filepath.Glob(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if st, err := os.Stat(path); err == nil && st.Size() == size {
				return path
			}
		}
	}
	return ""
}

func open(t testing.TB, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func load(t testing.TB, path string) *tokenizer.Tokenizer {
	t.Helper()
	k, err := tokenizer.New(open(t, path))
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", filepath.Base(path), err))
	}
	return k
}
