package search_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"onebit/store/documents/search"
)

// spelled gives each word of a text the direction of its first letter.
func spelled(_ context.Context, texts []string) ([][][]float32, error) {
	out := make([][][]float32, len(texts))
	for i, t := range texts {
		for _, w := range append(append([]string{"z"}, strings.Fields(t)...), "z") {
			v := make([]float32, 26)
			v[w[0]-'a'] = 1
			out[i] = append(out[i], v)
		}
	}
	return out, nil
}

func TestLate(t *testing.T) {
	l := &search.Late{Tokens: spelled, Top: 3}
	got, err := l.Rerank(t.Context(), "a b c d", []string{"e f", "a x b", "d c b a", "a b c d", "g"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0, 0.5, 1, -0.6, -0.8} {
		if math.Abs(got[i]-want) > 1e-6 {
			t.Errorf("scores %v", got)
			break
		}
	}
	for name, answer := range map[string][][][]float32{
		"too few texts":    {{{1}, {1}, {1}}},
		"uneven vectors":   {{{1, 0}, {1, 0}, {1, 0}}, {{1}, {1}, {1}}},
		"a text of no use": {{{1}, {1}, {1}}, {}},
	} {
		l := &search.Late{Tokens: func(context.Context, []string) ([][][]float32, error) { return answer, nil }}
		scores, err := l.Rerank(t.Context(), "a", []string{"b"})
		if name == "a text of no use" {
			if err != nil || scores[0] != 0 {
				t.Errorf("%s: %v, %v", name, scores, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: %v", name, scores)
		}
	}
}
