package grammar_test

import (
	"math/rand/v2"
	"testing"

	"onebit/engine/grammar"
)

// manyWords is a vocabulary of the size that models have: bytes, and words of some letters, a third behind a space.
func manyWords() (list []string) {
	r := rand.New(rand.NewPCG(5, 6))
	for b := range 256 {
		list = append(list, string([]byte{byte(b)}))
	}
	list = append(list, "<end>")
	syllables := []string{"a", "ber", "co", "de", "en", "fi", "ga", "ing", "ka", "lo", "mi", "no", "o", "per", "qu", "ra", "st", "ti", "un", "ver", "ä", "日", "本", "\xe6", "\":", "{", "}", "12", "\n", "  "}
	seen := map[string]bool{}
	for len(list) < 151_936 {
		word := ""
		if r.IntN(3) == 0 {
			word = " "
		}
		for range 1 + r.IntN(5) {
			word += syllables[r.IntN(len(syllables))]
		}
		if !seen[word] {
			seen[word] = true
			list = append(list, word)
		}
	}
	return list
}

func benchVocabulary(list []string) *grammar.Vocabulary {
	pieces := make([][]byte, len(list))
	for i, w := range list {
		pieces[i] = []byte(w)
	}
	return grammar.NewVocabulary(len(list), func(id int32) []byte { return pieces[id] }, func(id int32) bool { return id == 256 })
}

const benchSchema = `{"type":"object","properties":{"name":{"type":"string","maxLength":40},"age":{"type":"integer","minimum":0,"maximum":120},"email":{"type":"string","format":"email"},
	"tags":{"type":"array","items":{"enum":["red","green","blue"]},"maxItems":5},"address":{"$ref":"#/$defs/address"},"born":{"type":"string","format":"date"},"note":{"type":"string"}},
	"required":["name","age","email","tags","address","born","note"],"additionalProperties":false,
	"$defs":{"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"},"zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street","city","zip"],"additionalProperties":false}}}`

const benchAnswer = `{"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["red", "blue"], "address": {"street": "12 St James's Square", "city": "London", "zip": "12345"}, "born": "1815-12-10", "note": "wrote notes on the engine, and the first program, long before there was one to run it"}`

// cut is the answer in tokens, the longest first.
func cut(list []string, text string) (ids []int32) {
	byText := map[string]int32{}
	for i, w := range list {
		byText[w] = int32(i)
	}
	for text != "" {
		n := min(len(text), 12)
		for ; n > 1; n-- {
			if _, ok := byText[text[:n]]; ok {
				break
			}
		}
		ids, text = append(ids, byText[text[:n]]), text[n:]
	}
	return ids
}

func BenchmarkVocabulary(b *testing.B) {
	list := manyWords()
	b.ReportAllocs()
	for b.Loop() {
		benchVocabulary(list)
	}
}

func BenchmarkCompile(b *testing.B) {
	v := benchVocabulary(manyWords())
	b.ReportAllocs()
	for b.Loop() {
		form, err := grammar.JSON([]byte(benchSchema))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := grammar.Compile(form, v); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAnswer is a whole answer by a new grammar: taken is without a mask, masked with one for each token, the worst
// that a model can do; again is masked where another answer of the grammar came before.
func BenchmarkAnswer(b *testing.B) {
	list := manyWords()
	v := benchVocabulary(list)
	ids := cut(list, benchAnswer)
	logits := make([]float32, len(list))
	compile := func() *grammar.Grammar {
		form, err := grammar.JSON([]byte(benchSchema))
		if err != nil {
			b.Fatal(err)
		}
		g, err := grammar.Compile(form, v)
		if err != nil {
			b.Fatal(err)
		}
		return g
	}
	run := func(g *grammar.Grammar, mask bool) {
		m := g.Matcher()
		for _, id := range ids {
			if mask {
				if err := m.Forbid(logits, -1); err != nil {
					b.Fatal(err)
				}
			}
			if ok, err := m.Take(id); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		if !m.Done() {
			b.Fatal("not done")
		}
	}
	for _, mode := range []string{"taken", "masked", "again"} {
		b.Run(mode, func(b *testing.B) {
			b.ReportAllocs()
			g := compile()
			run(g, mode == "again")
			for b.Loop() {
				if mode != "again" {
					b.StopTimer()
					g = compile()
					b.StartTimer()
				}
				run(g, mode != "taken")
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(ids)), "µs/token")
		})
	}
}
