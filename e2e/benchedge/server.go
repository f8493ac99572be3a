package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// answers is what the model server answers. A request whose text says "stream MS N" gets N events, one every MS
// milliseconds; any other a short answer, streamed or not.
func answers(mux *http.ServeMux, _ string) error {
	mux.HandleFunc("POST /v1/chat/completions", chat)
	mux.HandleFunc("POST /v1/embeddings", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // it is all the same
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, vector)
	})
	return nil
}

// vector is an answer of some length that is neither streamed nor long in the making.
var vector = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[` + strings.Repeat("0.0123,", 63) + `0.5]}],"model":"bench","usage":{"prompt_tokens":4,"total_tokens":4}}`

const (
	event = `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"word "}}],"created":1700000000,"id":"chatcmpl-x","model":"bench","object":"chat.completion.chunk"}` + "\n\n"
	last  = `data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1700000000,"id":"chatcmpl-x","model":"bench","object":"chat.completion.chunk","timings":{"cache_n":0,"prompt_n":4,"predicted_n":1}}` + "\n\ndata: [DONE]\n\n"
	whole = `{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"word "}}],"created":1700000000,"id":"chatcmpl-x","model":"bench","object":"chat.completion","usage":{"prompt_tokens":4,"completion_tokens":1,"total_tokens":5}}`
)

func chat(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Stream   bool `json:"stream"`
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Messages) == 0 {
		http.Error(w, `{"error":{"message":"bad request"}}`, http.StatusBadRequest)
		return
	}
	if !in.Stream {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, whole)
		return
	}
	var every, n int
	text := string(in.Messages[0].Content)
	if at := strings.Index(text, "stream "); at >= 0 {
		if _, err := fmt.Sscanf(text[at:], "stream %d %d", &every, &n); err != nil {
			n = 1
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	next := time.Now()
	for range max(n, 1) {
		if _, err := io.WriteString(w, event); err != nil || control.Flush() != nil {
			return
		}
		next = next.Add(time.Duration(every) * time.Millisecond)
		time.Sleep(time.Until(next))
	}
	io.WriteString(w, last)
}
