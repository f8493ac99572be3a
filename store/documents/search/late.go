package search

import (
	"context"
	"errors"
	"fmt"
)

// Late is a Reranker by late interaction, for where there is no model that
// ranks: each token of the question is held against the token of the passage
// that is nearest to it, and the mean of these cosines is the passage's score.
// It reads the embedding model's own vectors of tokens.
type Late struct {
	// Tokens returns for each text the vectors of its tokens, of length one and
	// equal size, with those of the two marks around it.
	Tokens func(ctx context.Context, texts []string) ([][][]float32, error)
	// Top is how many passages are read, which is what it costs; those behind
	// keep their places. 0 for 16.
	Top int
}

// Rerank scores the first passages between 0 and 1, the rest below.
func (l *Late) Rerank(ctx context.Context, query string, texts []string) ([]float64, error) {
	top := l.Top
	if top <= 0 {
		top = 16
	}
	top = min(top, len(texts))
	all, err := l.Tokens(ctx, append([]string{query}, texts[:top]...))
	if err != nil {
		return nil, err
	}
	if len(all) != top+1 {
		return nil, fmt.Errorf("the embedding model returned the tokens of %d texts for %d", len(all), top+1)
	}
	if len(all[0]) == 0 {
		return nil, errors.New("the embedding model returned no tokens of the question")
	}
	for i, tokens := range all {
		if len(tokens) > 2 {
			all[i] = tokens[1 : len(tokens)-1]
		}
		for _, v := range tokens {
			if len(v) != len(all[0][0]) {
				return nil, fmt.Errorf("the embedding model returned vectors of %d and %d numbers", len(all[0][0]), len(v))
			}
		}
	}
	out := make([]float64, len(texts))
	for i := range out {
		if i < top {
			out[i] = min(1, max(0, meeting(all[0], all[i+1])))
		} else {
			out[i] = -float64(i) / float64(len(texts))
		}
	}
	return out, nil
}

// meeting is the mean over one text's tokens of the nearest in the other.
func meeting(query, passage [][]float32) float64 {
	if len(query) == 0 || len(passage) == 0 {
		return 0
	}
	var sum float64
	for _, q := range query {
		best := float32(-1)
		for _, p := range passage {
			var dot float32
			for i, x := range q {
				dot += x * p[i]
			}
			best = max(best, dot)
		}
		sum += float64(best)
	}
	return sum / float64(len(query))
}
