package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// pieces are what is said to everything.
var pieces = []string{"The", " capital", " of", " France", " is", " Paris", "."}

// calls are the tools that it calls, when told to.
var calls = []map[string]any{
	{"index": 0, "id": "call_1", "type": "function", "function": map[string]any{"name": "weather", "arguments": ""}},
	{"index": 0, "function": map[string]any{"arguments": `{"city"`}},
	{"index": 0, "function": map[string]any{"arguments": `:"Paris"}`}},
	{"index": 1, "id": "call_2", "type": "function", "function": map[string]any{"name": "clock", "arguments": ""}},
}

// asked is a request as far as it matters.
type asked struct {
	Model    *string         `json:"model"`
	Prompt   json.RawMessage `json:"prompt"`
	Input    json.RawMessage `json:"input"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Stream  bool `json:"stream"`
	Options struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Variables struct {
		Thinking *bool `json:"enable_thinking"`
	} `json:"chat_template_kwargs"`
	Standin  string `json:"standin"`
	Progress bool   `json:"return_progress"`

	// what matters where slots hold something
	Tools       json.RawMessage `json:"tools"`
	Slot        *int            `json:"id_slot"`
	CachePrompt *bool           `json:"cache_prompt"`
	MaxTokens   *int            `json:"max_tokens"`
	IgnoreEOS   bool            `json:"ignore_eos"`
	turn        *turn
}

// text is what the request says, roughly.
func (a asked) text() string {
	var b strings.Builder
	for _, m := range a.Messages {
		b.Write(m.Content)
	}
	b.Write(a.Prompt)
	return b.String()
}

// read takes a request's body and notes it. A body that is no JSON is answered here.
func (s *server) read(w http.ResponseWriter, r *http.Request) (a asked, ok bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return a, false
	}
	note(map[string]any{"event": "request", "path": r.URL.Path, "body": string(body), "id": r.Header.Get("X-Request-Id"), "device": s.device})
	if err := json.Unmarshal(body, &a); err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "invalid_request_error")
		return a, false
	}
	return a, true
}

// generate answers chats and completions.
func (s *server) generate(w http.ResponseWriter, r *http.Request) {
	a, ok := s.read(w, r)
	if !ok {
		return
	}
	switch {
	case s.loading():
		refuse(w, http.StatusServiceUnavailable, "Loading model", "unavailable_error")
	case s.kind == zinc && a.Model != nil && *a.Model != s.model:
		refuse(w, http.StatusBadRequest, "no such model: "+*a.Model, "invalid_request_error")
	case s.kind == mlx && a.Model != nil && *a.Model != s.model:
		refuse(w, http.StatusNotFound, "no such model: "+*a.Model, "invalid_request_error")
	case s.has("--embedding") || s.has("--reranking"):
		refuse(w, http.StatusNotImplemented, "This server does not support completions", "not_supported_error")
	default:
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
			if s.table != nil {
				var ok bool
				if a.turn, ok = s.table.begin(r, a); !ok {
					leave(r, "slot")
					return
				}
				defer s.table.end(a.turn, s.said(a))
			}
			if f := s.of(r, a); s.before(w, r, f) {
				s.reply(w, r, a, f)
			}
		case <-r.Context().Done():
			leave(r, "queued")
		}
	}
}

// chat reports whether a request is a chat.
func chat(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/chat/completions") }

// usage and timings are those of every answer. An NPU server has fewer.
func (s *server) costs(o map[string]any, a asked) {
	prompt, cached, made := 14, 9, len(s.said(a))
	if a.turn != nil {
		prompt, cached = len(a.turn.prompt), a.turn.cached
	}
	o["usage"] = map[string]any{
		"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made, "prompt_tokens_details": map[string]int{"cached_tokens": cached},
	}
	t := map[string]any{"prompt_ms": 61.5, "predicted_ms": 40.2, "predicted_per_second": 174.1}
	switch s.kind {
	case npu:
		t["cache"] = "live"
	case zinc:
		return // it says no timings
	default:
		t["cache_n"], t["prompt_n"], t["predicted_n"] = cached, prompt-cached, made
	}
	o["timings"] = t
}

// reply writes an answer.
func (s *server) reply(w http.ResponseWriter, r *http.Request, a asked, f fault) {
	thinks := chat(r) && (a.Variables.Thinking == nil || *a.Variables.Thinking)
	if a.Stream {
		s.stream(w, r, a, f, thinks)
		return
	}
	said := s.said(a)
	text := strings.Join(said, "")
	choice := map[string]any{"index": 0, "finish_reason": "stop"}
	o := map[string]any{"id": "standin-1", "created": time.Now().Unix(), "model": s.model, "choices": []any{choice}}
	if chat(r) {
		o["object"] = "chat.completion"
		message := map[string]any{"role": "assistant", "content": text}
		if thinks {
			message["reasoning_content"] = "Let me think."
		}
		choice["message"] = message
	} else {
		o["object"], choice["text"] = "text_completion", text
	}
	s.costs(o, a)
	w.Header().Set("Content-Type", "application/json")
	for i := range said { // an unstreamed answer takes its time too
		if !s.during(r, f, i, func(string) bool { return true }) {
			return
		}
	}
	answer(w, o)
}

// stream writes an answer in events.
func (s *server) stream(w http.ResponseWriter, r *http.Request, a asked, f fault, thinks bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	send := func(text string) bool {
		_, err := io.WriteString(w, text)
		return err == nil && flush.Flush() == nil
	}
	event := func(choices []any, more map[string]any) bool {
		o := map[string]any{"id": "standin-1", "created": time.Now().Unix(), "model": s.model, "choices": choices}
		o["object"] = "text_completion"
		if chat(r) {
			o["object"] = "chat.completion.chunk"
		}
		for k, v := range more {
			o[k] = v
		}
		raw, err := json.Marshal(o)
		if err != nil {
			return false
		}
		text := "data: " + string(raw) + "\n\n"
		if f.kind == "torn-utf8" {
			text = strings.Replace(text, "Paris", "\xe2\x82", 1)
		}
		return send(text)
	}
	step := func(delta map[string]any, text string, finish any) bool {
		c := map[string]any{"index": 0, "finish_reason": finish}
		if chat(r) {
			c["delta"] = delta
		} else {
			c["text"] = text
		}
		return event([]any{c}, nil)
	}
	if chat(r) && a.Progress && !event([]any{map[string]any{"index": 0, "finish_reason": nil, "delta": map[string]any{"role": "assistant", "content": nil}}},
		map[string]any{"prompt_progress": map[string]int{"total": 14, "cache": 9, "processed": 9, "time_ms": 1}}) {
		return
	}
	if chat(r) && !step(map[string]any{"role": "assistant", "content": nil}, "", nil) {
		return
	}
	if thinks && !step(map[string]any{"reasoning_content": "Let me think."}, "", nil) {
		return
	}
	for i, p := range s.said(a) {
		if !s.during(r, f, i, send) || !step(map[string]any{"content": p}, p, nil) {
			return
		}
	}
	finish := "stop"
	if f.kind == "call" {
		finish = "tool_calls"
		for _, delta := range calls {
			if !step(map[string]any{"tool_calls": []any{delta}}, "", nil) {
				return
			}
		}
	}
	step(map[string]any{}, "", finish)
	if a.Options.IncludeUsage {
		more := map[string]any{}
		s.costs(more, a)
		event([]any{}, more)
	}
	send("data: [DONE]\n\n")
}

// respond answers OpenAI's Responses.
func (s *server) respond(w http.ResponseWriter, r *http.Request) {
	a, ok := s.read(w, r)
	if !ok {
		return
	}
	object := map[string]any{
		"id": "resp-1", "object": "response", "model": s.model, "error": nil,
		"output": []any{map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": strings.Join(pieces, "")}}}},
		"usage":  map[string]any{"input_tokens": 14, "output_tokens": len(pieces), "total_tokens": 14 + len(pieces)},
	}
	if !a.Stream {
		answer(w, object)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	number := 0
	send := func(kind string, more map[string]any) {
		more["type"], more["sequence_number"] = kind, number
		number++
		raw, err := json.Marshal(more)
		if err == nil {
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, raw)
		}
	}
	send("response.created", map[string]any{"response": object})
	for _, p := range pieces {
		send("response.output_text.delta", map[string]any{"delta": p})
	}
	send("response.completed", map[string]any{"response": object})
}
