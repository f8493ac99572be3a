package main

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"onebit/extensions/laya"
)

// TestGrammars: each grammar is whole, and makes many texts.
func TestGrammars(t *testing.T) {
	open := func(lang string, base *grammar) *grammar {
		g, err := openGrammar(lang, base)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	common := open("common", nil)
	en := open("en", common)
	common.slots["person"], common.slots["work"] = en.slots["person"], en.slots["work"]
	for _, lang := range []string{"en", "es", "de", "fr", "pt", "it", "ru", "zh", "ja", "hi"} {
		g := open(lang, common)
		for class := range laya.Chosen {
			r, seen := rand.New(rand.NewPCG(1, 2)), map[string]bool{}
			for range 2000 {
				seen[g.text(r, class)] = true
			}
			if len(seen) < 1000 {
				t.Errorf("%s, %v: 2000 texts are %d", lang, laya.Class(class), len(seen))
			}
		}
	}
}

func TestGrammarRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no slot": "@ code\nwrite {nothing}", "open": "@ code\nwrite [a|b", "circle": "= a\n{b}\n= b\n{a}\n@ code\n{a}", "no class": "@ poem\nx", "outside": "x",
	} {
		if _, err := readGrammar("xx", strings.NewReader(text), nil); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestByHand: each line of the labels is the beginning of a hash and a class, in order, and none is there twice.
func TestByHand(t *testing.T) {
	line := regexp.MustCompile(`^[0-9a-f]{16}\t(code|short|prose|unsure)$`)
	lines := strings.Split(strings.TrimSpace(byHand), "\n")[1:]
	for i, l := range lines {
		if !line.MatchString(l) || i > 0 && l[:16] <= lines[i-1][:16] {
			t.Errorf("line %d: %q", i+2, l)
		}
	}
	if n := len(readByHand()); n != len(lines) || n < 1000 {
		t.Errorf("%d labels of %d lines", n, len(lines))
	}
}

// TestHeldOut: of the prompts that were read a fifth is kept from training, those that the reader was unsure of are left out, and so are
// long ones; the others get their class from a rule.
func TestHeldOut(t *testing.T) {
	dir, labels := t.TempDir(), map[string]int{}
	f, err := os.Create(filepath.Join(dir, "public-prompts.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	put := func(text, guess string) [32]byte {
		b, err := json.Marshal(publicLine{Text: text, Guess: guess, Source: "x"})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(z, "%s\n", b)
		return sha256.Sum256([]byte(text))
	}
	var held []string
	for i := range 500 {
		text := fmt.Sprint("prompt ", i)
		sum := put(text, "code")
		labels[hex.EncodeToString(sum[:8])] = int(laya.Short)
		if binary.BigEndian.Uint32(sum[:])%5 == 0 {
			held = append(held, text)
		}
	}
	sum := put("unsure", "code")
	labels[hex.EncodeToString(sum[:8])] = -1
	put("by rule", "code")
	put("nobody knows", "")
	put(strings.Repeat("long ", 300), "code")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := readPublic(dir, labels)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.ruled) != 1 || p.ruled[0] != (example{text: "by rule", class: int(laya.Code)}) || len(p.read)+len(p.held) != 500 || len(p.held) != len(held) {
		t.Fatalf("ruled %v, read %d, held %d of %d", p.ruled, len(p.read), len(p.held), len(held))
	}
	for _, e := range append(p.read, p.held...) {
		if e.class != int(laya.Short) {
			t.Errorf("%v", e)
		}
	}
	for _, e := range p.read {
		if slices.Contains(held, e.text) {
			t.Errorf("%q is trained on", e.text)
		}
	}
}
