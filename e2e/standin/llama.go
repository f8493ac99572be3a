package main

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"slices"
	"strings"
)

// llamaRoutes are the further ones of a llama-server.
func (s *server) llamaRoutes(mux *http.ServeMux) {
	for path, h := range map[string]http.HandlerFunc{
		"POST /v1/responses": s.respond, "POST /responses": s.respond,
		"POST /tokenize": s.tokenize, "POST /detokenize": s.detokenize, "POST /apply-template": s.applyTemplate,
		"POST /v1/embeddings": s.embed, "POST /v1/rerank": s.rerank,
		"GET /props": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, map[string]any{"default_generation_settings": map[string]int{"n_ctx": 4096}, "total_slots": cap(s.slots)})
		},
		"GET /slots": func(w http.ResponseWriter, _ *http.Request) {
			if s.table != nil {
				answer(w, s.table.list())
				return
			}
			var all []any
			for i := range cap(s.slots) {
				all = append(all, map[string]any{"id": i, "is_processing": i < len(s.slots)})
			}
			answer(w, all)
		},
		"POST /slots/{id}": s.act, "POST /completion": s.generate,
		"GET /metrics": func(w http.ResponseWriter, _ *http.Request) {
			if !s.has("--metrics") {
				refuse(w, http.StatusNotImplemented, "This server does not support metrics endpoint. Start it with `--metrics`", "not_supported_error")
				return
			}
			fmt.Fprintf(w, "llamacpp:requests_processing %d\n", len(s.slots))
		},
	} {
		mux.HandleFunc(path, h)
	}
}

// tokenize makes a token of each word.
func (s *server) tokenize(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Content string `json:"content"`
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		refuse(w, http.StatusBadRequest, "bad body", "invalid_request_error")
		return
	}
	tokens := []int{}
	for i := range strings.Fields(in.Content) {
		tokens = append(tokens, i)
	}
	answer(w, map[string]any{"tokens": tokens})
}

func (s *server) detokenize(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Tokens []int `json:"tokens"`
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		refuse(w, http.StatusBadRequest, "bad body", "invalid_request_error")
		return
	}
	answer(w, map[string]any{"content": strings.TrimSpace(strings.Repeat("word ", len(in.Tokens)))})
}

// applyTemplate puts one word before each message.
func (s *server) applyTemplate(w http.ResponseWriter, r *http.Request) {
	a, ok := s.read(w, r)
	if !ok {
		return
	}
	var b strings.Builder
	for _, m := range a.Messages {
		var text string
		_ = json.Unmarshal(m.Content, &text) // parts count as nothing here
		fmt.Fprintf(&b, "<%s> %s ", m.Role, text)
	}
	answer(w, map[string]any{"prompt": b.String()})
}

// vector makes eight numbers of the words of a text: texts that share words are near each other.
func vector(text string) []float32 {
	v := make([]float32, 8)
	for _, word := range strings.Fields(strings.ToLower(text)) {
		h := fnv.New32a()
		h.Write([]byte(word))
		v[h.Sum32()%8]++
	}
	var sum float64
	for _, x := range v {
		sum += float64(x * x)
	}
	for i := range v {
		if sum > 0 {
			v[i] /= float32(math.Sqrt(sum))
		}
	}
	return v
}

// embed answers with a vector for each text.
func (s *server) embed(w http.ResponseWriter, r *http.Request) {
	if !s.has("--embedding") {
		refuse(w, http.StatusNotImplemented, "This server does not support embeddings. Start it with `--embeddings`", "not_supported_error")
		return
	}
	var in struct {
		asked
		Format string `json:"encoding_format"`
	}
	var raw json.RawMessage
	if json.NewDecoder(r.Body).Decode(&raw) != nil || json.Unmarshal(raw, &in) != nil {
		refuse(w, http.StatusBadRequest, "bad body", "invalid_request_error")
		return
	}
	note(map[string]any{"event": "request", "path": r.URL.Path, "body": string(raw), "device": s.device})
	var texts []string
	if json.Unmarshal(in.Input, &texts) != nil {
		var one string
		_ = json.Unmarshal(in.Input, &one) // token arrays count as nothing here
		texts = []string{one}
	}
	var data []any
	for i, text := range texts {
		var value any = vector(text)
		if in.Format == "base64" {
			b, err := binary.Append(nil, binary.LittleEndian, vector(text))
			if err != nil {
				refuse(w, http.StatusInternalServerError, err.Error(), "server_error")
				return
			}
			value = base64.StdEncoding.EncodeToString(b)
		}
		data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": value})
	}
	answer(w, map[string]any{"object": "list", "model": s.model, "data": data, "usage": map[string]int{"prompt_tokens": len(texts), "total_tokens": len(texts)}})
}

// rerank scores texts by the words that they share with the query.
func (s *server) rerank(w http.ResponseWriter, r *http.Request) {
	if !s.has("--reranking") {
		refuse(w, http.StatusNotImplemented, "This server does not support reranking. Start it with `--reranking`", "not_supported_error")
		return
	}
	var in struct {
		Model     *string  `json:"model"`
		Query     string   `json:"query"`
		Documents []string `json:"documents"`
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		refuse(w, http.StatusBadRequest, "bad body", "invalid_request_error")
		return
	}
	type result struct {
		Index int     `json:"index"`
		Score float64 `json:"relevance_score"`
	}
	var results []result
	query := vector(in.Query)
	for i, d := range in.Documents {
		score := 0.0
		for k, x := range vector(d) {
			score += float64(x * query[k])
		}
		results = append(results, result{i, score})
	}
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(b.Score, a.Score) })
	named := ""
	if in.Model != nil {
		named = *in.Model
	}
	note(map[string]any{"event": "request", "path": r.URL.Path, "model": named, "device": s.device})
	answer(w, map[string]any{"object": "list", "model": s.model, "results": results, "usage": map[string]int{"prompt_tokens": 1, "total_tokens": 1}})
}
