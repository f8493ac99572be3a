package grammar_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"

	"onebit/engine/grammar"
)

// refusedOrBounded fails the test for an error that is neither a refusal nor a bound.
func refusedOrBounded(t *testing.T, err error) {
	t.Helper()
	_, limit := errors.AsType[*grammar.LimitError](err)
	_, refused := errors.AsType[*grammar.Error](err)
	if !limit && !refused {
		t.Fatal(err)
	}
}

// follow writes a random answer and holds that masks and tokens agree.
func follow(t *testing.T, form *grammar.Expr, seed uint64) (text string, whole bool) {
	t.Helper()
	g, err := grammar.Compile(form, wordVocabulary())
	if err != nil {
		refusedOrBounded(t, err)
		return "", false
	}
	r := rand.New(rand.NewPCG(seed, 1))
	m := g.Matcher()
	logits := make([]float32, len(words))
	for range 60 {
		if m.Done() {
			return text, true
		}
		clear(logits)
		if err := m.Forbid(logits, -1); err != nil {
			refusedOrBounded(t, err)
			return "", false
		}
		var next []int32
		for i, v := range logits {
			if v == 0 {
				next = append(next, int32(i))
			}
		}
		if len(next) == 0 {
			return "", false // so deep that nothing more is taken
		}
		id := next[r.IntN(len(next))]
		if m.Complete() && r.IntN(2) == 0 {
			id = 257
		}
		ok, err := m.Take(id)
		if err != nil {
			refusedOrBounded(t, err)
			return "", false
		}
		if !ok {
			t.Fatalf("after %q the mask allows %q, which is refused", text, words[id])
		}
		if id == 257 {
			return text, true
		}
		text += words[id]
	}
	return "", false
}

// FuzzSchema reads any text as a schema. It is refused, or what follows it is JSON.
func FuzzSchema(f *testing.F) {
	for _, s := range forms {
		f.Add([]byte(s), uint64(1))
	}
	f.Add([]byte(`{"allOf":[{"$ref":"#/$defs/a"},{"additionalProperties":{"type":["string","null"]},"required":["b"]}],"$defs":{"a":{"oneOf":[{"properties":{"b":{"const":1}}},true]}}}`), uint64(2))
	f.Add([]byte(`{"prefixItems":[{"format":"uuid"},{"minimum":-0.5,"exclusiveMaximum":1e3}],"items":{"pattern":"^\\u00e4[^a-z]{2,}$"},"minItems":1,"maxItems":4}`), uint64(3))
	f.Fuzz(func(t *testing.T, schema []byte, seed uint64) {
		form, err := grammar.JSON(schema)
		if err != nil {
			refusedOrBounded(t, err)
			return
		}
		if text, whole := follow(t, form, seed); whole && !json.Valid([]byte(text)) {
			t.Errorf("%s lets come %q", schema, text)
		}
	})
}

// FuzzGBNF reads any text as a grammar. It is refused, or can be followed.
func FuzzGBNF(f *testing.F) {
	for _, s := range []string{
		"root ::= \"a\"", "root ::= a | b # c\na ::= [^a-z\\n]{2,3} .\nb ::= (\"x\" | \"\\u00e4\")* root?\n", "root ::= \"a\" (root \"b\" | root \"c\") |", "root ::= x\nx ::= x",
	} {
		f.Add(s, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		form, err := grammar.GBNF(text)
		if err != nil {
			refusedOrBounded(t, err)
			return
		}
		follow(t, form, seed)
	})
}
