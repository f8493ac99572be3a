package main

import (
	"context"
	"fmt"
)

// tokens asks the embedding model for the vectors of all tokens, once for each
// text.
type tokens struct {
	*remote
	known map[string][][]float32
}

func (t *tokens) of(ctx context.Context, texts []string) ([][][]float32, error) {
	out := make([][][]float32, len(texts))
	for i, text := range texts {
		v, ok := t.known[text]
		if !ok {
			var answer []struct {
				Embedding [][]float32 `json:"embedding"`
			}
			if err := t.post(ctx, t.url+"/embeddings", map[string]any{"content": text, "pooling": "none", "embd_normalize": 2}, &answer); err != nil {
				return nil, err
			}
			if len(answer) != 1 {
				return nil, fmt.Errorf("the server made no vectors for the tokens of %.40q", text)
			}
			v = answer[0].Embedding
			t.known[text] = v
		}
		out[i] = v
	}
	return out, nil
}
