package main

import (
	"context"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"

	"onebit/store/documents/local"
	"onebit/store/documents/ragbench/corpus"
)

// stems is an embedder that knows how words begin. It stands for a model that
// finds a part of what is asked.
type stems struct{}

func (stems) Model() string  { return "stems" }
func (stems) MaxTokens() int { return 512 }

func (stems) Count(_ context.Context, text string) (int, error) {
	return 2 + len(strings.Fields(text))*4/3, nil
}

func (stems) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, t := range texts {
		v := make([]float32, 1024)
		for _, w := range strings.Fields(strings.ToLower(t)) {
			if len(w) > 3 {
				h := fnv.New32a()
				h.Write([]byte(w[:4]))
				v[h.Sum32()%1024]++
			}
		}
		var square float64
		for j, x := range v {
			v[j] = float32(math.Log1p(float64(x)))
			square += float64(v[j] * v[j])
		}
		for j := range v {
			v[j] /= float32(math.Sqrt(square) + 1e-9)
		}
		out[i] = v
	}
	return out, nil
}

// TestQualityHolds asks a slice of the set, so that a change of how texts are
// cut, indexed, found or weighed cannot make searches worse without being seen.
func TestQualityHolds(t *testing.T) {
	w, err := corpus.New(1)
	if err != nil {
		t.Fatal(err)
	}
	taken := func(name string) bool {
		return strings.Contains(name, " manual") || strings.Contains(name, " reference") || strings.Contains(name, " terms")
	}
	w.Documents = slices.DeleteFunc(w.Documents, func(d corpus.Document) bool { return !taken(d.Name) })
	w.Questions = slices.DeleteFunc(w.Questions, func(q corpus.Question) bool { return !taken(q.Document) })
	dir := t.TempDir()
	k, err := local.Open(t.Context(), local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	s := &set{world: w, keeper: k, embedder: stems{}, dir: dir}
	if err := s.bringIn(t.Context()); err != nil {
		t.Fatal(err)
	}
	scores := map[string]map[string]*score{}
	for _, w := range s.ways() {
		if scores[w.name], err = s.measure(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		t.Logf("%-8s all %s, keywords %s, paraphrases %s", w.name, scores[w.name]["all"], scores[w.name]["keyword"], scores[w.name]["paraphrase"])
	}
	for _, test := range []struct {
		way, questions string
		recall, gain   float64
	}{
		{"bm25", "all", 0.77, 0.55},
		{"bm25", "keyword", 0.95, 0.92},
		{"hybrid", "all", 0.70, 0.53},
	} {
		if c := scores[test.way][test.questions]; c.recall < test.recall*float64(c.n) || c.gain < test.gain*float64(c.n) {
			t.Errorf("%s on %s questions: %s, less than %.2f %.2f", test.way, test.questions, c, test.recall, test.gain)
		}
	}
	if h, o := scores["hybrid"]["all"], scores["vectors"]["all"]; h.gain <= o.gain || h.recall <= o.recall {
		t.Errorf("hybrid (%s) does not beat vectors (%s)", h, o)
	}
}
