//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests in the files real_*.go start the reference llama-server, built by llama/build.sh, behind the program.

// llamaProgram returns one of the reference's programs.
func llamaProgram(t *testing.T, name string) string {
	t.Helper()
	slow(t)
	dir := os.Getenv("ONEBIT_LLAMA_BIN")
	if dir == "" {
		t.Fatal("ONEBIT_LLAMA_BIN is not set: run make test-all, or export ONEBIT_LLAMA_BIN=$(bash e2e/llama/build.sh)")
	}
	return filepath.Join(dir, name)
}

// oneThread is the environment of the reference's servers: threads of theirs that wait for each other use up a machine
// that has something else to do.
const oneThread = "LLAMA_ARG_THREADS=1"

// startLlama serves a model of the catalogue with the reference's server on the processor.
func startLlama(t *testing.T, name string, args ...string) *server {
	t.Helper()
	program := llamaProgram(t, "llama-server")
	s := launchWith(t, []string{oneThread}, append([]string{"serve", "--port", "0", "-m", model(t, name), "--device", "cpu", "--llama-server", program}, args...)...)
	s.waitHealthy(120 * time.Second)
	return s
}

// question has an answer that the models are sure of, whatever way the reference rounds: asked for the capital of France,
// SmolLM2 in 4 bits says Paris with some of the reference's kernels and not with others.
type question struct{ text, answer string }

var (
	german = question{"What is the capital of Germany?", "Berlin"}
	french = question{"What is the capital of France?", "Paris"} // for the larger model
)

func (q question) chat(more obj) obj {
	m := chat(q.text, obj{"max_tokens": 24})
	for k, v := range more {
		m[k] = v
	}
	return m
}

// TestRealChat serves SmolLM2.
func TestRealChat(t *testing.T) {
	s := startLlama(t, "smollm2", "--alias", "smol", "--parallel", "4", "--ctx-size", "4096")
	t.Run("not streamed", func(t *testing.T) { realWhole(t, s, "smol", german, nil) })
	t.Run("streamed", func(t *testing.T) { realStream(t, s, "smol", german) })
	t.Run("models and metrics", func(t *testing.T) {
		for path, want := range map[string][]string{
			"/v1/models": {`"id":"smol"`, `"device":"cpu"`, `"device_reason":"as asked"`, `"n_ctx_train":8192`},
			"/health":    {`"status":"ok"`},
			"/metrics":   {`onebit_`},
		} {
			status, _, body := s.get(path)
			for _, w := range want {
				if status != 200 || !strings.Contains(body, w) {
					t.Errorf("%s: %d, without %s: %s", path, status, w, body)
				}
			}
		}
	})
	t.Run("without thinking", func(t *testing.T) {
		v := realWhole(t, s, "smol", german, obj{"chat_template_kwargs": obj{"enable_thinking": false}})
		if thought := dig(v, "choices", 0, "message", "reasoning_content"); thought != nil {
			t.Errorf("it thought %v", thought)
		}
	})
	t.Run("further routes", func(t *testing.T) { realRoutes(t, s) })
	t.Run("four clients at once", func(t *testing.T) { realClients(t, s) })
	t.Run("over the context", func(t *testing.T) {
		for _, stream := range []bool{false, true} {
			r := s.post("/v1/chat/completions", chat(strings.Repeat("word ", 9000), obj{"stream": stream}))
			v := r.json(t)
			n, _ := dig(v, "error", "n_prompt_tokens").(float64)
			held, _ := dig(v, "error", "n_ctx").(float64)
			message, _ := dig(v, "error", "message").(string)
			if r.status != 400 || n < 9000 || held <= 0 || held >= n || !strings.Contains(message, "maximum context length") ||
				dig(v, "error", "type") != "exceed_context_size_error" {
				t.Errorf("stream %v: %d %s", stream, r.status, r.body)
			}
		}
	})
	t.Run("put together", func(t *testing.T) { realTogether(t, s, realPlain) })
	t.Run("client gone", func(t *testing.T) { realGone(t, s) })
	t.Run("still answers", func(t *testing.T) { realWhole(t, s, "smol", german, nil) })
}

// realWhole asks and checks the answer.
func realWhole(t *testing.T, s *server, name string, q question, more obj) map[string]any {
	t.Helper()
	r := s.post("/v1/chat/completions", q.chat(more))
	v := r.json(t)
	text, _ := dig(v, "choices", 0, "message", "content").(string)
	if r.status != 200 || !strings.Contains(text, q.answer) || v["model"] != name || dig(v, "choices", 0, "finish_reason") != "stop" {
		t.Errorf("%d %s", r.status, r.body)
	}
	realCosts(t, v)
	return v
}

// realCosts checks that usage adds up and that timings came.
func realCosts(t *testing.T, v map[string]any) {
	t.Helper()
	in, _ := dig(v, "usage", "prompt_tokens").(float64)
	out, _ := dig(v, "usage", "completion_tokens").(float64)
	speed, _ := dig(v, "timings", "predicted_per_second").(float64)
	if in < 20 || out < 3 || dig(v, "usage", "total_tokens") != in+out || speed <= 0 {
		t.Errorf("usage %v, timings %v", v["usage"], v["timings"])
	}
}

// realStream asks and checks the events.
func realStream(t *testing.T, s *server, name string, q question) {
	t.Helper()
	resp, err := s.send(t.Context(), "/v1/chat/completions", q.chat(obj{"stream": true, "stream_options": obj{"include_usage": true}}))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		t.Errorf("content type %q", kind)
	}
	var text strings.Builder
	n, ends, last := 0, 0, map[string]any{}
	done, err := events(resp.Body, func(v map[string]any) bool {
		if v["model"] != name || v["object"] != "chat.completion.chunk" || (n == 0 && dig(v, "choices", 0, "delta", "role") != "assistant") {
			t.Errorf("chunk %d: %v", n, v)
		}
		if c, ok := dig(v, "choices", 0, "delta", "content").(string); ok {
			text.WriteString(c)
		}
		if dig(v, "choices", 0, "finish_reason") != nil {
			ends++
		}
		n, last = n+1, v
		return true
	})
	if err != nil || !done || n < 5 || ends != 1 || !strings.Contains(text.String(), q.answer) {
		t.Errorf("%d chunks, %d ends, done %v, %v: %q", n, ends, done, err, text.String())
	}
	if choices, ok := last["choices"].([]any); !ok || len(choices) != 0 {
		t.Errorf("last chunk %v", last)
	}
	realCosts(t, last)
}

// realRoutes checks that the server's own routes agree with each other.
func realRoutes(t *testing.T, s *server) {
	q := german.chat(nil)
	prompt, _ := s.post("/apply-template", q).json(t)["prompt"].(string)
	if !strings.Contains(prompt, german.text) || !strings.HasSuffix(prompt, "<|im_start|>assistant\n") {
		t.Errorf("the prompt is %q", prompt)
	}
	tokens, _ := s.post("/tokenize", obj{"content": prompt, "parse_special": true}).json(t)["tokens"].([]any)
	if used := dig(s.post("/v1/chat/completions", q).json(t), "usage", "prompt_tokens"); used != float64(len(tokens)) {
		t.Errorf("/tokenize finds %d tokens, usage says %v", len(tokens), used)
	}
	words := "Two words, and ünïcödé."
	ids := s.post("/tokenize", obj{"content": words}).json(t)["tokens"]
	if back := s.post("/detokenize", obj{"tokens": ids}).json(t)["content"]; back != words {
		t.Errorf("back came %q", back)
	}
	status, _, body := s.get("/props")
	held, _ := dig(reply{body: []byte(body)}.json(t), "default_generation_settings", "n_ctx").(float64)
	if status != 200 || held < 1024 || !strings.Contains(body, `"total_slots":4`) {
		t.Errorf("/props: %d %s", status, body)
	}
	if n := len(working(t, s)); n != 4 {
		t.Errorf("%d slots", n)
	}
}

// working returns which of the server's slots are busy.
func working(t *testing.T, s *server) []bool {
	t.Helper()
	var all []struct {
		Busy bool `json:"is_processing"`
	}
	status, _, body := s.get("/slots")
	if err := json.Unmarshal([]byte(body), &all); err != nil || status != 200 {
		t.Fatalf("/slots: %d %v %s", status, err, body)
	}
	var out []bool
	for _, slot := range all {
		out = append(out, slot.Busy)
	}
	return out
}

// busy counts the slots that are at work.
func busy(t *testing.T, s *server) int {
	t.Helper()
	n := 0
	for _, b := range working(t, s) {
		if b {
			n++
		}
	}
	return n
}

// realClients has four answers made at the same time.
func realClients(t *testing.T, s *server) {
	var group sync.WaitGroup
	texts := make([]string, 4)
	for i := range texts {
		group.Go(func() {
			q := chat("Write a long story about a river.", obj{"max_tokens": 32, "ignore_eos": true, "stream": i%2 == 0})
			text, err := ask(t.Context(), s, q, i%2 == 0)
			if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			texts[i] = text
		})
	}
	await(t, 60*time.Second, "four slots are busy at once", func() bool { return busy(t, s) == 4 })
	group.Wait()
	for i, text := range texts {
		if len(text) < 60 {
			t.Errorf("client %d got %q", i, text)
		}
	}
	for i := range texts {
		group.Go(func() {
			if text, err := ask(t.Context(), s, german.chat(obj{"stream": i < 2}), i < 2); err != nil || !strings.Contains(text, german.answer) {
				t.Errorf("client %d: %v %q", i, err, text)
			}
		})
	}
	group.Wait()
}

// realGone leaves requests; their slots must be free at once. The reference frees the slot of a stream with its next
// event. That of an unstreamed answer it frees when no result of any request has come for a second: until then nothing
// may be asked of it. In the middle of a prompt it ends its batch first, so that state is not among these.
func realGone(t *testing.T, s *server) {
	for _, c := range []struct {
		stream       bool
		quiet, limit time.Duration
	}{
		{true, 0, time.Second},
		{false, 0, time.Second},
	} {
		var took []time.Duration
		for len(took) < 3 && (len(took) == 0 || slices.Min(took) > c.limit) { // a busy machine may spoil one
			took = append(took, realLeave(t, s, c.stream, c.quiet))
		}
		t.Logf("stream %v: free after %v", c.stream, took)
		if slices.Min(took) > c.limit {
			t.Errorf("stream %v: the slot was free only after %v", c.stream, took)
		}
	}
}

// realLeave begins a long answer, goes, looks after a while, and returns how long the slot was busy.
func realLeave(t *testing.T, s *server, stream bool, quiet time.Duration) time.Duration {
	await(t, 10*time.Second, "the slots are idle", func() bool { return busy(t, s) == 0 })
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := ask(ctx, s, chat("Write a long story.", obj{"max_tokens": 3000, "ignore_eos": true, "stream": stream}), stream); err == nil {
			t.Error("it came to its end")
		}
	})
	await(t, 60*time.Second, "a slot is busy", func() bool { return busy(t, s) == 1 })
	went := time.Now()
	cancel()
	group.Wait()
	time.Sleep(quiet)
	await(t, 60*time.Second, "the slot is free", func() bool { return busy(t, s) == 0 })
	return time.Since(went)
}

var weatherTool = obj{"type": "function", "function": obj{
	"name": "get_weather", "description": "Tells the weather of a city",
	"parameters": obj{"type": "object", "properties": obj{"city": obj{"type": "string"}}, "required": []string{"city"}},
}}

// TestRealTools serves the 0.5B, which has a template with tools.
func TestRealTools(t *testing.T) {
	s := startLlama(t, "qwen2.5-coder-0.5b", "--alias", "coder", "--ctx-size", "4096")
	t.Run("not streamed", func(t *testing.T) { realWhole(t, s, "coder", french, nil) })
	t.Run("streamed", func(t *testing.T) { realStream(t, s, "coder", french) })
	t.Run("tools", func(t *testing.T) {
		q := chat("What is the weather in Paris? Use the tool.", obj{"max_tokens": 64, "tools": []obj{weatherTool}})
		prompt, _ := s.post("/apply-template", q).json(t)["prompt"].(string)
		if !strings.Contains(prompt, "get_weather") || !strings.Contains(prompt, "<tools>") {
			t.Errorf("the prompt is %q", prompt)
		}
		v := s.post("/v1/chat/completions", q).json(t)
		if v["model"] != "coder" || dig(v, "choices", 0, "message", "role") != "assistant" {
			t.Errorf("answer %v", v)
		}
		text, _ := dig(v, "choices", 0, "message", "content").(string)
		calls, _ := dig(v, "choices", 0, "message", "tool_calls").([]any)
		t.Logf("content %q, calls %v, finish reason %v", text, calls, dig(v, "choices", 0, "finish_reason"))
		if text == "" && len(calls) == 0 {
			t.Errorf("an empty answer: %v", v)
		}
		for _, c := range calls {
			arguments, _ := dig(c, "function", "arguments").(string)
			if id, _ := dig(c, "id").(string); id == "" || dig(c, "function", "name") != "get_weather" || !json.Valid([]byte(arguments)) {
				t.Errorf("the call %v", c)
			}
		}
		if (len(calls) > 0) != (dig(v, "choices", 0, "finish_reason") == "tool_calls") {
			t.Errorf("%d calls and the finish reason %v", len(calls), dig(v, "choices", 0, "finish_reason"))
		}
		realToolStream(t, s, q, text, len(calls))
	})
	t.Run("put together", func(t *testing.T) { realTogether(t, s, realToolCases) })
	t.Run("responses", func(t *testing.T) { realResponses(t, s, french) })
}

// realToolStream checks that the events of a request with tools say what the whole answer said.
func realToolStream(t *testing.T, s *server, q obj, text string, calls int) {
	q["stream"] = true
	resp, err := s.send(t.Context(), "/v1/chat/completions", q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got strings.Builder
	seen := map[float64]bool{}
	done, err := events(resp.Body, func(v map[string]any) bool {
		if v["model"] != "coder" {
			t.Errorf("chunk %v", v)
		}
		if c, ok := dig(v, "choices", 0, "delta", "content").(string); ok {
			got.WriteString(c)
		}
		parts, _ := dig(v, "choices", 0, "delta", "tool_calls").([]any)
		for _, p := range parts {
			index, ok := dig(p, "index").(float64)
			if !ok {
				t.Errorf("a call without an index: %v", v)
			}
			seen[index] = true
		}
		return true
	})
	if err != nil || !done || got.String() != text || len(seen) != calls {
		t.Errorf("done %v, %v: %q and %d calls; not streamed %q and %d", done, err, got.String(), len(seen), text, calls)
	}
}

// realResponses asks in OpenAI's newer form.
func realResponses(t *testing.T, s *server, ask question) {
	q := obj{"model": "any", "input": ask.text, "max_output_tokens": 24, "temperature": 0}
	r := s.post("/v1/responses", q)
	v := r.json(t)
	if r.status != 200 || v["object"] != "response" || v["model"] != "coder" || v["status"] != "completed" || !strings.Contains(string(r.body), ask.answer) {
		t.Errorf("%d %s", r.status, r.body)
	}
	q["stream"] = true
	r = s.post("/v1/responses", q)
	var text strings.Builder
	kinds := map[string]int{}
	for _, line := range bytes.Split(r.body, []byte("\n")) {
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		v := reply{body: data}.json(t)
		kind, _ := v["type"].(string)
		kinds[kind]++
		if kind == "response.output_text.delta" {
			delta, _ := v["delta"].(string)
			text.WriteString(delta)
		}
		if name := dig(v, "response", "model"); name != nil && name != "coder" {
			t.Errorf("the event %s is of the model %v", kind, name)
		}
	}
	if r.status != http.StatusOK || kinds["response.created"] != 1 || kinds["response.completed"] != 1 || !strings.Contains(text.String(), ask.answer) {
		t.Errorf("%d, events %v, text %q", r.status, kinds, text.String())
	}
}
