package search_test

import (
	"context"
	"slices"
	"testing"

	"onebit/store/documents/search"
)

// scores gives texts these scores.
type scores []float64

func (s scores) Rerank(_ context.Context, _ string, texts []string) ([]float64, error) {
	return s[:min(len(s), len(texts))], nil
}

func TestFirst(t *testing.T) {
	got, err := search.First{Reranker: scores{0.5, 1.2, -0.1, 9}, Most: 3}.Rerank(t.Context(), "q", []string{"a", "b", "c", "d", "e"})
	if want := []float64{0.5, 1, 0, -0.6, -0.8}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := (search.First{Reranker: scores{1}}).Rerank(t.Context(), "q", []string{"a", "b"}); err == nil {
		t.Errorf("too few scores give %v", got)
	}
	if got, err := (search.First{Reranker: scores{0.3}}).Rerank(t.Context(), "q", []string{"a"}); err != nil || len(got) != 1 || got[0] != 0.3 {
		t.Errorf("%v, %v", got, err)
	}
}
