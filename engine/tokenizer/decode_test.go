package tokenizer_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestPiece(t *testing.T) {
	spm, bpe := spmVocab(), byteLevel("gpt-2", [2]string{" ", "é"[:1]})
	spm.add("[spare]", unused, 0)
	bpe.add("<|im_end|>", control, 0)
	bpe.add("é", userDefined, 0)
	bpe.add("<｜x｜>", normal, 0)
	for _, c := range []struct {
		v           *vocab
		token       string
		hide, shown string
	}{
		{spm, "▁a", " a", " a"},
		{spm, "<0x41>", "A", "A"},
		{spm, "<0xE4>", "\xe4", "\xe4"},
		{spm, "<s>", "", "<s>"},
		{spm, "<unk>", "", "<unk>"},
		{spm, "  ", "  ", "  "},
		{spm, "[spare]", "", ""},
		{bpe, printable(" \xc3"), " \xc3", " \xc3"},
		{bpe, "<|im_end|>", "", "<|im_end|>"},
		{bpe, "é", "é", "é"}, // user-defined, so not the byte that is written so
		{bpe, "<｜x｜>", "<｜x｜>", "<｜x｜>"},
	} {
		k, id := c.v.tokenizer(t), c.v.id(t, c.token)
		if c.token == "é" {
			id = int32(len(c.v.tokens) - 2)
		}
		if got := string(k.Piece(id, false)); got != c.hide {
			t.Errorf("%q: %q, want %q", c.token, got, c.hide)
		}
		if got := string(k.Piece(id, true)); got != c.shown {
			t.Errorf("%q with special tokens: %q, want %q", c.token, got, c.shown)
		}
	}
	if k := spm.tokenizer(t); k.Piece(-1, true) != nil || k.Piece(1<<30, true) != nil {
		t.Error("an id that is no token has a piece")
	}
}

// TestStream pushes bytes one by one: nothing is cut, nothing is held longer
// than it must be.
func TestStream(t *testing.T) {
	k := byteLevel("gpt-2").tokenizer(t)
	const bad = "\ufffd"
	for _, c := range []struct {
		name, bytes string
		want        []string // per byte, and the last from Flush
	}{
		{"ASCII", "ab", []string{"a", "b", ""}},
		{"two bytes", "é", []string{"", "é", ""}},
		{"four bytes", "🙂", []string{"", "", "", "🙂", ""}},
		{"after text", "aé", []string{"a", "", "é", ""}},
		{"cut at the end", "a\xf0\x9f\x99", []string{"a", "", "", "", bad}},
		{"never one", "\xffa", []string{bad, "a", ""}},
		{"stray continuation", "\x80", []string{bad, ""}},
		{"broken off", "\xe4\xbdx", []string{"", "", bad + "x", ""}},
		{"broken off by another", "\xe4\xbd\xe4\xbd\xa0", []string{"", "", bad, "", "你", ""}},
		{"surrogate", "\xed\xa0\x80", []string{"", bad + bad, bad, ""}},
		{"too long a form", "\xc0\x80", []string{bad, bad, ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := k.NewStream(false)
			var got []string
			for i := range len(c.bytes) {
				got = append(got, s.Push(int32(c.bytes[i])))
			}
			got = append(got, s.Flush())
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s.Flush() != "" {
				t.Error("Flush leaves something")
			}
		})
	}
}

// TestDecodeIsTheStream: Decode gives what a stream gives, and it is UTF-8.
func TestDecodeIsTheStream(t *testing.T) {
	k := chatVocab().tokenizer(t)
	for seed := range 200 {
		var ids []int32
		for i := range 30 {
			ids = append(ids, int32((seed*7919+i*i*31+i*seed)%(k.Size()+3)-1))
		}
		for _, special := range []bool{false, true} {
			s := k.NewStream(special)
			var b strings.Builder
			for _, id := range ids {
				piece := s.Push(id)
				if !utf8.ValidString(piece) {
					t.Fatalf("%v: pushed %q", ids, piece)
				}
				b.WriteString(piece)
			}
			b.WriteString(s.Flush())
			if got := k.Decode(ids, special); got != b.String() {
				t.Fatalf("%v: %q, the stream gives %q", ids, got, b.String())
			}
		}
	}
}
