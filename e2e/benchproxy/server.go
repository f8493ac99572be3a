package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// wish is what a request asks of the server, written into its text so that any proxy passes it on: "events=N every=US".
type wish struct {
	events int
	every  time.Duration // between two events; 0 sends as fast as it can
}

func (w wish) String() string {
	return fmt.Sprintf("events=%d every=%d", w.events, w.every.Microseconds())
}

// body is the request for it.
func (w wish) body() string {
	return `{"model":"bench","stream":true,"messages":[{"role":"user","content":"` + w.String() + `"}]}`
}

// events is what the server answers to chats; each event holds the time at which it was sent. It writes its port to the
// file $BENCH_PORT.
func events(mux *http.ServeMux, port string) error {
	mux.HandleFunc("POST /v1/chat/completions", stream)
	return os.WriteFile(os.Getenv("BENCH_PORT"), []byte(port), 0o600)
}

// The parts of an event, as llama-server has them.
const (
	before = `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"t=`
	after  = `"}}],"created":1700000000,"id":"chatcmpl-Zm9vYmFyYmF6cXV1eHF1dXpjb3JnZWdyYXU","model":"/models/bench.gguf","system_fingerprint":"b1-bench","object":"chat.completion.chunk"}` + "\n\n"
	last   = `data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1700000000,"id":"chatcmpl-Zm9vYmFyYmF6cXV1eHF1dXpjb3JnZWdyYXU","model":"/models/bench.gguf","system_fingerprint":"b1-bench","object":"chat.completion.chunk"}` + "\n\n"
)

func stream(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	var events, every int
	err := json.NewDecoder(r.Body).Decode(&in)
	if err == nil && len(in.Messages) > 0 {
		text := string(in.Messages[0].Content)
		if at := strings.Index(text, "events="); at >= 0 {
			_, err = fmt.Sscanf(text[at:], "events=%d every=%d", &events, &every)
		}
	}
	if err != nil || events == 0 {
		http.Error(w, `{"error":{"message":"bad wish"}}`, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	next := time.Now()
	var event []byte
	for i := range events {
		if i > 0 && every > 0 {
			next = next.Add(time.Duration(every) * time.Microsecond)
			time.Sleep(time.Until(next))
		}
		event = append(event[:0], before...)
		event = strconv.AppendInt(event, time.Now().UnixNano(), 10)
		event = append(event, after...)
		if _, err := w.Write(event); err != nil || control.Flush() != nil {
			return
		}
	}
	io.WriteString(w, last)
	io.WriteString(w, "data: [DONE]\n\n")
}
