package main

import (
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"onebit/extensions/laya"
)

// TestGrammars: each grammar is whole, and makes many texts.
func TestGrammars(t *testing.T) {
	open := func(lang string, base *grammar) *grammar {
		b, err := fs.ReadFile(grammars, "grammar/"+lang+".txt")
		if err != nil {
			t.Fatal(err)
		}
		g, err := readGrammar(lang, strings.NewReader(string(b)), base)
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
