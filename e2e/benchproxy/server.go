package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
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

// serveEvents is the server: it speaks as much of llama-server's dialect as it takes to be started by `1bit serve`.
// It writes its port to the file $BENCH_PORT. Each event holds the time at which it was sent.
func serveEvents(args []string) error {
	if slices.Contains(args, "--list-devices") {
		fmt.Println("Available devices:")
		return nil
	}
	i := slices.Index(args, "--port")
	if i < 0 || i+1 == len(args) {
		return fmt.Errorf("no --port in %q", args)
	}
	port := args[i+1]
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"status":"ok"}`) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"bench","object":"model","meta":{"n_ctx":4096}}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", stream)
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"text_completion","choices":[{"index":0,"text":"1","finish_reason":"stop"}]}`)
	})
	if err := os.WriteFile(os.Getenv("BENCH_PORT"), []byte(port), 0o600); err != nil {
		return err
	}
	return http.ListenAndServe("127.0.0.1:"+port, mux)
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
