package search

import (
	"context"
	"fmt"
)

// First is a Reranker that asks another for the first passages only, which is
// what that costs; those behind keep their places.
type First struct {
	Reranker
	Most int // passages that are read; 0 for 16
}

const usualFirst = 16

// Rerank scores the first passages between 0 and 1, the rest below.
func (f First) Rerank(ctx context.Context, query string, texts []string) ([]float64, error) {
	n := f.Most
	if n <= 0 {
		n = usualFirst
	}
	n = min(n, len(texts))
	scores, err := f.Reranker.Rerank(ctx, query, texts[:n])
	if err != nil {
		return nil, err
	}
	if len(scores) != n {
		return nil, fmt.Errorf("the reranker returned %d scores for %d texts", len(scores), n)
	}
	out := make([]float64, len(texts))
	for i := range out {
		if i < n {
			out[i] = min(1, max(0, scores[i]))
		} else {
			out[i] = -float64(i) / float64(len(texts))
		}
	}
	return out, nil
}
