//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const capital = "Which city is the capital of France?"

func TestServeAnswers(t *testing.T) {
	s := start(t, "serve", "-m", smollm2(t), "--port", "0", "--alias", "smol")

	t.Run("not streamed", func(t *testing.T) {
		r := s.post("/v1/chat/completions", chat(capital, obj{"max_tokens": 24}))
		v := r.json(t)
		text, _ := dig(v, "choices", 0, "message", "content").(string)
		if r.status != 200 || !strings.Contains(text, "Paris") {
			t.Fatalf("status %d, text %q: %s", r.status, text, r.body)
		}
		if v["model"] != "smol" {
			t.Errorf("model %v, want the alias", v["model"])
		}
		if r.header.Get("X-Request-Id") == "" {
			t.Error("no x-request-id")
		}
	})
	t.Run("streamed", func(t *testing.T) {
		resp, err := s.send(context.Background(), "/v1/chat/completions", chat(capital, obj{"max_tokens": 24, "stream": true}))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if ct := resp.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/event-stream") {
			t.Errorf("content type %q", ct)
		}
		var text strings.Builder
		var role any
		done, err := events(resp.Body, func(v map[string]any) bool {
			if v["model"] != "smol" || v["object"] != "chat.completion.chunk" {
				t.Errorf("chunk %v", v)
			}
			if role == nil {
				role = dig(v, "choices", 0, "delta", "role")
				if role != "assistant" {
					t.Errorf("first delta %v has no role", v)
				}
			}
			if c, ok := dig(v, "choices", 0, "delta", "content").(string); ok {
				text.WriteString(c)
			}
			return true
		})
		if err != nil || !done || !strings.Contains(text.String(), "Paris") {
			t.Fatalf("done %v, err %v, text %q", done, err, text.String())
		}
	})
	t.Run("models", func(t *testing.T) {
		for _, path := range []string{"/v1/models", "/models", "/v1/v1/models", "/v1/models/"} {
			resp, err := http.Get(s.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || !strings.Contains(string(b), `"smol"`) || !strings.Contains(string(b), `"cpu"`) {
				t.Errorf("%s: %d %s", path, resp.StatusCode, b)
			}
		}
	})
	t.Run("another origin is refused", func(t *testing.T) {
		req, _ := http.NewRequest("POST", s.URL+"/v1/chat/completions", strings.NewReader("{}"))
		req.Header.Set("Origin", "https://evil.example")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("status %d, want 403", resp.StatusCode)
		}
		req, _ = http.NewRequest("GET", s.URL+"/v1/models", nil)
		req.Host = "evil.example"
		resp, err = http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("foreign host: status %d, want 403", resp.StatusCode)
		}
	})
	t.Run("unknown path", func(t *testing.T) {
		r := s.post("/v1/nonsense", obj{})
		if r.status != 404 || dig(r.json(t), "error", "message") == nil {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("reuses the prompt", func(t *testing.T) {
		first := "Tell me one short fact about the number seven."
		s.post("/v1/chat/completions", chat(first, obj{"max_tokens": 8}))
		v := s.post("/v1/chat/completions", chat(first, obj{"max_tokens": 8})).json(t)
		n, _ := dig(v, "usage", "prompt_tokens_details", "cached_tokens").(float64)
		if n < 10 || dig(v, "timings", "cache") != "live" {
			t.Errorf("cached %v, timings.cache %v", n, dig(v, "timings", "cache"))
		}
	})
	t.Run("official Python client", func(t *testing.T) {
		py := os.Getenv("ONEBIT_E2E_PYTHON")
		if py == "" {
			t.Fatal(`ONEBIT_E2E_PYTHON is not set: run "make e2e", or eval "$(bash e2e/setup.sh clients)"`)
		}
		runTool(t, 5*time.Minute, py, "clients/openai_check.py", s.URL+"/v1", "smol")
	})
	t.Run("official Node client", func(t *testing.T) {
		dir := os.Getenv("ONEBIT_E2E_NODE_DIR")
		if dir == "" {
			t.Fatal(`ONEBIT_E2E_NODE_DIR is not set: run "make e2e", or eval "$(bash e2e/setup.sh clients)"`)
		}
		// an ES module finds its packages beside itself
		src, err := os.ReadFile("clients/openai_check.mjs")
		if err != nil {
			t.Fatal(err)
		}
		script := filepath.Join(dir, "openai_check.mjs")
		if err := os.WriteFile(script, src, 0o644); err != nil {
			t.Fatal(err)
		}
		runTool(t, 5*time.Minute, "node", script, s.URL+"/v1", "smol")
	})
}

func TestBadRequests(t *testing.T) {
	s := start(t, "serve", "-m", smollm2(t), "--port", "0", "--ctx-size", "1024", "--parallel", "2")
	user := []obj{{"role": "user", "content": "Hi"}}
	tests := []struct {
		name, path string
		body       any
		field      string // must stand in the message or be the param
	}{
		{"not JSON", "/v1/chat/completions", "{", "JSON"},
		{"not an object", "/v1/chat/completions", "[1]", "object"},
		{"empty body", "/v1/chat/completions", "", "JSON"},
		{"no messages", "/v1/chat/completions", obj{"model": "x"}, "messages"},
		{"empty messages", "/v1/chat/completions", obj{"messages": []obj{}}, "messages"},
		{"messages of the wrong type", "/v1/chat/completions", obj{"messages": "hi"}, "messages"},
		{"a message that is no object", "/v1/chat/completions", obj{"messages": []any{1}}, "messages"},
		{"unknown role", "/v1/chat/completions", obj{"messages": []obj{{"role": "wizard", "content": "x"}}}, "role"},
		{"content of the wrong type", "/v1/chat/completions", obj{"messages": []obj{{"role": "user", "content": 5}}}, "content"},
		{"negative max_tokens", "/v1/chat/completions", obj{"messages": user, "max_tokens": -2}, "max_tokens"},
		{"max_tokens of the wrong type", "/v1/chat/completions", obj{"messages": user, "max_tokens": "many"}, "max_tokens"},
		{"temperature of the wrong type", "/v1/chat/completions", obj{"messages": user, "temperature": "hot"}, "temperature"},
		{"negative temperature", "/v1/chat/completions", obj{"messages": user, "temperature": -1}, "temperature"},
		{"top_p over 1", "/v1/chat/completions", obj{"messages": user, "top_p": 3}, "top_p"},
		{"stream of the wrong type", "/v1/chat/completions", obj{"messages": user, "stream": "yes"}, "stream"},
		{"stop of the wrong type", "/v1/chat/completions", obj{"messages": user, "stop": 7}, "stop"},
		{"logit_bias of the wrong type", "/v1/chat/completions", obj{"messages": user, "logit_bias": 7}, "logit_bias"},
		{"completion without prompt", "/v1/completions", obj{"model": "x"}, "prompt"},
		{"prompt of the wrong type", "/v1/completions", obj{"prompt": obj{"a": 1}}, "prompt"},
		{"token id out of range", "/v1/completions", obj{"prompt": []int{1, 99999999}}, "token"},
		{"tokenize content of the wrong type", "/tokenize", obj{"content": obj{}}, "content"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := s.post(tt.path, tt.body)
			if r.status < 400 || r.status > 499 {
				t.Fatalf("status %d: %s", r.status, r.body)
			}
			v := r.json(t)
			msg, _ := dig(v, "error", "message").(string)
			if !strings.Contains(msg, tt.field) && dig(v, "error", "param") != tt.field {
				t.Errorf("the error does not name %s: %s", tt.field, r.body)
			}
			if typ, _ := dig(v, "error", "type").(string); typ == "" {
				t.Errorf("the error has no type: %s", r.body)
			}
		})
	}
	t.Run("over the context", func(t *testing.T) {
		for _, stream := range []bool{false, true} {
			r := s.post("/v1/chat/completions", chat(strings.Repeat("word ", 5000), obj{"stream": stream}))
			v := r.json(t)
			n, _ := dig(v, "error", "n_prompt_tokens").(float64)
			ctx, _ := dig(v, "error", "n_ctx").(float64)
			msg, _ := dig(v, "error", "message").(string)
			if r.status != 400 || n <= ctx || ctx != 512 || !strings.Contains(msg, "maximum context length") {
				t.Errorf("stream %v: %d %s", stream, r.status, r.body)
			}
			if dig(v, "error", "type") != "exceed_context_size_error" {
				t.Errorf("type: %s", r.body)
			}
		}
	})
	t.Run("still answers", func(t *testing.T) {
		r := s.post("/v1/chat/completions", chat(capital, obj{"max_tokens": 24}))
		if r.status != 200 || !strings.Contains(string(r.body), "Paris") {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("every endpoint reports the context of a slot", func(t *testing.T) {
		for path, keys := range map[string][]any{
			"/props":     {"default_generation_settings", "n_ctx"},
			"/v1/models": {"data", 0, "meta", "n_ctx"},
		} {
			resp, err := http.Get(s.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if got := dig((reply{body: b}).json(t), keys...); got != 512.0 {
				t.Errorf("%s: n_ctx %v, want 512", path, got)
			}
		}
	})
}

// damaged are model files that must be refused with a reason, quickly and without a crash.
func TestDamagedModel(t *testing.T) {
	whole, err := os.ReadFile(smollm2(t))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string][]byte{
		"empty":     {},
		"not GGUF":  []byte(strings.Repeat("hello ", 100)),
		"truncated": whole[:len(whole)/2],
		"header":    whole[:1000],
		"version":   append([]byte("GGUF\x63\x00\x00\x00"), whole[8:4096]...),
		"counts":    append([]byte("GGUF\x03\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x0f"), whole[16:4096]...),
	}
	for name, b := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.gguf")
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			code, _, errs := command(t, 30*time.Second, "engine", "-m", path, "--port", "0")
			if code != 1 || !strings.Contains(errs, "bad.gguf") || strings.Contains(errs, "panic") {
				t.Errorf("exit %d: %s", code, errs)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "missing.gguf")
	tests := []struct {
		args []string
		code int
		out  string // in stdout
		errs string // in stderr
	}{
		{[]string{"version"}, 0, "1bit ", ""},
		{[]string{}, 2, "", "usage"},
		{[]string{"conjure"}, 2, "", "conjure"},
		{[]string{"serve"}, 2, "", "usage"},
		{[]string{"serve", "-h"}, 0, "1bit serve", ""},
		{[]string{"serve", "-m", bad, "--no-such"}, 1, "", "1bit serve: "},
		{[]string{"serve", "-m", bad, "--port", "http"}, 1, "", "--port"},
		{[]string{"serve", "-m"}, 1, "", "-m"},
		{[]string{"serve", "-m", bad, "--device", "warp"}, 1, "", "warp"},
		{[]string{"serve", "-m", bad, "--port", "0"}, 1, "", "missing.gguf"},
		{[]string{"engine"}, 2, "", "usage"},
		{[]string{"engine", "-m", bad}, 1, "", "missing.gguf"},
		{[]string{"model", "list"}, 0, "smollm2", ""},
		{[]string{"model", "pull", "nothing"}, 1, "", "smollm2"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.args), func(t *testing.T) {
			code, out, errs := command(t, 30*time.Second, tt.args...)
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.errs) {
				t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", code, tt.code, out, errs)
			}
		})
	}
}
