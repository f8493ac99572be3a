package ingest

import (
	"context"
	"fmt"
	"math"
	"unicode/utf8"
)

// Long embeds texts of any length: one that is longer than the model takes is
// embedded in pieces, whose mean it gets. Passages are cut to the model's size;
// this is for those that were cut for another one, and for long questions.
func Long(ctx context.Context, e Embedder, texts []string) ([][]float32, error) {
	var pieces []string
	counts := make([]int, len(texts))
	for i, t := range texts {
		cut, err := fitting(ctx, e, t)
		if err != nil {
			return nil, err
		}
		counts[i] = len(cut)
		pieces = append(pieces, cut...)
	}
	vectors, err := e.Embed(ctx, pieces)
	if err != nil {
		return nil, err
	}
	if len(vectors) != len(pieces) {
		return nil, fmt.Errorf("the embedding model %q returned %d vectors for %d texts", e.Model(), len(vectors), len(pieces))
	}
	out := make([][]float32, len(texts))
	for i, n := range counts {
		out[i] = mean(vectors[:n])
		vectors = vectors[n:]
	}
	return out, nil
}

// fitting halves a text until the model takes every piece.
func fitting(ctx context.Context, e Embedder, t string) ([]string, error) {
	n, err := e.Count(ctx, t)
	if err != nil {
		return nil, err
	}
	if n <= e.MaxTokens() || utf8.RuneCountInString(t) < 2 {
		return []string{t}, nil
	}
	at := len(t) / 2
	for !utf8.RuneStart(t[at]) {
		at--
	}
	if at == 0 {
		_, at = utf8.DecodeRuneInString(t)
	}
	a, err := fitting(ctx, e, t[:at])
	if err != nil {
		return nil, err
	}
	b, err := fitting(ctx, e, t[at:])
	return append(a, b...), err
}

// mean returns the direction between vectors.
func mean(vectors [][]float32) []float32 {
	if len(vectors) == 1 {
		return vectors[0]
	}
	sum := make([]float64, len(vectors[0]))
	for _, v := range vectors {
		for i, x := range v {
			if i < len(sum) {
				sum[i] += float64(x)
			}
		}
	}
	var square float64
	for _, x := range sum {
		square += x * x
	}
	out := make([]float32, len(sum))
	if square > 0 {
		for i, x := range sum {
			out[i] = float32(x / math.Sqrt(square))
		}
	}
	return out
}
