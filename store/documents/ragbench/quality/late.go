package main

import (
	"context"
	"fmt"
	"math"
)

// late is a search.Reranker by late interaction: each token of the question is
// held against the one of the passage that is nearest to it, and the mean of
// these is the score.
type late struct {
	*remote
	top   int
	keep  float64 // how much of the order that was there counts
	known map[string][][]float32
}

func (l *late) Rerank(ctx context.Context, query string, texts []string) ([]float64, error) {
	n := min(l.top, len(texts))
	q, err := l.tokens(ctx, query)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(texts))
	for i, t := range texts {
		if i >= n {
			out[i] = -2 - float64(i) // stays behind, in order
			continue
		}
		p, err := l.tokens(ctx, t)
		if err != nil {
			return nil, err
		}
		var sum float64
		for _, a := range q {
			best := math.Inf(-1)
			for _, b := range p {
				best = max(best, dot(a, b))
			}
			sum += best
		}
		out[i] = sum/float64(len(q)) + l.keep/(1+float64(i)/10)
	}
	return out, nil
}

func dot(a, b []float32) float64 {
	var s float32
	for i := range a {
		s += a[i] * b[i]
	}
	return float64(s)
}

// tokens returns the vectors of a text's tokens, of length one, without those
// at the two ends, which stand for nothing.
func (l *late) tokens(ctx context.Context, text string) ([][]float32, error) {
	if v, ok := l.known[text]; ok {
		return v, nil
	}
	var answer []struct {
		Embedding [][]float32 `json:"embedding"`
	}
	if err := l.post(ctx, l.url+"/embeddings", map[string]any{"content": text, "pooling": "none", "embd_normalize": 2}, &answer); err != nil {
		return nil, err
	}
	if len(answer) != 1 || len(answer[0].Embedding) < 3 {
		return nil, fmt.Errorf("the server made no vectors for the tokens of %.40q", text)
	}
	v := answer[0].Embedding
	v = v[1 : len(v)-1]
	l.known[text] = v
	return v, nil
}
