package main

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
)

// client asks servers of llama-server's dialect.
type client struct{ http http.Client }

func (c *client) post(ctx context.Context, url string, in, out any) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		return fmt.Errorf("%s: %s: %s", url, res.Status, said)
	}
	return json.NewDecoder(res.Body).Decode(out)
}

// remote is an ingest.Embedder. It remembers what it was asked.
type remote struct {
	*client
	url     string
	limit   int
	Counts  map[string]int
	Vectors map[string][]float32
}

func newRemote(url string, limit int) *remote {
	return &remote{client: &client{}, url: url, limit: limit, Counts: map[string]int{}, Vectors: map[string][]float32{}}
}

// kept is what a cache holds.
type kept struct {
	Counts  map[string]int
	Vectors map[string][]float32
}

func (r *remote) load(path string) error {
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var k kept
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&k); err != nil {
		return fmt.Errorf("reading the kept vectors: %w", err)
	}
	r.Counts, r.Vectors = k.Counts, k.Vectors
	return nil
}

func (r *remote) save(path string) error {
	if path == "" {
		return nil
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(kept{r.Counts, r.Vectors}); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

func (r *remote) Model() string  { return "quality" }
func (r *remote) MaxTokens() int { return r.limit }

func (r *remote) Count(ctx context.Context, text string) (int, error) {
	if n, ok := r.Counts[text]; ok {
		return n, nil
	}
	var answer struct {
		Tokens []int `json:"tokens"`
	}
	if err := r.post(ctx, r.url+"/tokenize", map[string]any{"content": text, "add_special": true}, &answer); err != nil {
		return 0, err
	}
	r.Counts[text] = len(answer.Tokens)
	return len(answer.Tokens), nil
}

func (r *remote) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	var asked []string
	for _, t := range texts {
		if _, ok := r.Vectors[t]; !ok {
			asked = append(asked, t)
		}
	}
	if len(asked) > 0 {
		var answer struct {
			Data []struct {
				Index     int       `json:"index"`
				Embedding []float32 `json:"embedding"`
			} `json:"data"`
		}
		if err := r.post(ctx, r.url+"/v1/embeddings", map[string]any{"input": asked, "encoding_format": "float"}, &answer); err != nil {
			return nil, err
		}
		for _, d := range answer.Data {
			if d.Index < 0 || d.Index >= len(asked) {
				return nil, fmt.Errorf("the server made a vector for text %d of %d", d.Index+1, len(asked))
			}
			r.Vectors[asked[d.Index]] = d.Embedding
		}
	}
	out := make([][]float32, len(texts))
	for i, t := range texts {
		if out[i] = r.Vectors[t]; len(out[i]) == 0 {
			return nil, fmt.Errorf("the server made no vector for text %d of %d", i+1, len(texts))
		}
	}
	return out, nil
}

// ranker is a search.Reranker at a server.
type ranker struct {
	*client
	url    string
	late   bool // by an embedding model's vectors of tokens
	tokens int  // of a passage that it reads then
}

func (r *ranker) Rerank(ctx context.Context, query string, texts []string) ([]float64, error) {
	var answer struct {
		Results []struct {
			Index int     `json:"index"`
			Score float64 `json:"relevance_score"`
		} `json:"results"`
	}
	body := map[string]any{"query": query, "documents": texts}
	if r.late {
		body["late"], body["late_tokens"] = true, r.tokens
	}
	if err := r.post(ctx, r.url+"/v1/rerank", body, &answer); err != nil {
		return nil, err
	}
	out := make([]float64, len(texts))
	for _, a := range answer.Results {
		if a.Index < 0 || a.Index >= len(out) {
			return nil, fmt.Errorf("the server ranked text %d of %d", a.Index+1, len(texts))
		}
		out[a.Index] = a.Score
	}
	return out, nil
}
