//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// python is the interpreter that has the official clients.
func python(t *testing.T) string {
	t.Helper()
	py := os.Getenv("ONEBIT_E2E_PYTHON")
	if py == "" {
		t.Fatal(`ONEBIT_E2E_PYTHON is not set: run "make e2e", or eval "$(bash e2e/setup.sh clients)"`)
	}
	return py
}

// TestMessagesClient: Anthropic's official client, over `serve`.
func TestMessagesClient(t *testing.T) {
	s := start(t, "serve", "-m", smollm2(t), "--alias", "smol", "--port", "0", "--ctx-size", "4096", "--parallel", "1")
	runTool(t, 5*time.Minute, python(t), "clients/anthropic_check.py", s.URL, "smol")
}

// TestMessagesTools: the same client, over a stand-in that calls tools, thinks and fails when it is told to.
func TestMessagesTools(t *testing.T) {
	st := newStage(t)
	s := st.vulkan()
	runTool(t, time.Minute, python(t), "clients/anthropic_tools.py", s.URL)
}

// TestMessagesBox: the same client, over a box.
func TestMessagesBox(t *testing.T) {
	b := startBox(t, boxState(t, fmt.Sprintf("models:\n  - {name: smol, file: %q, ctx_size: 4096, parallel: 1}\n", smollm2(t))))
	b.claim()
	key, _ := b.key("")
	runTool(t, 5*time.Minute, python(t), "clients/anthropic_check.py", "https://127.0.0.1:"+b.port, "smol", b.rootFile(), key)
	other, _ := b.key(`,"endpoints":["/v1/chat/completions"]`)
	status, text := b.do(other, "POST", "/v1/messages", `{"model":"smol","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`)
	if status != 403 || !strings.Contains(text, `"type":"permission_error"`) {
		t.Errorf("with a key for chats: %d %s", status, text)
	}
	b.soon("the usage to say so", func() bool { // it is written a moment later
		return strings.Contains(fmt.Sprint(b.admin("GET", "/usage?by=endpoint", "")), "/messages")
	})
}

// codingAgent is a request as a coding agent sends it: a line that differs in each, marks, many tools, thinking, a stream.
func codingAgent(hash string, turns ...string) []byte {
	ephemeral := obj{"type": "ephemeral"}
	text := func(s string, mark obj) obj {
		b := obj{"type": "text", "text": s}
		if mark != nil {
			b["cache_control"] = mark
		}
		return b
	}
	var tools []obj
	for i := range 16 {
		tools = append(tools, obj{"name": fmt.Sprintf("Tool%d", i), "description": "Does one thing well. " + strings.Repeat("It has rules. ", 8),
			"input_schema": obj{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false, "required": []string{"path"},
				"properties": obj{"path": obj{"type": "string", "description": "The path"}}}})
	}
	var messages []obj
	for i, turn := range turns {
		role, content := "user", []obj{text("<system-reminder>\nToday is a day.\n</system-reminder>\n", nil), text(turn, nil)}
		if i%2 == 1 {
			role, content = "assistant", []obj{text(turn, nil)}
		}
		if i == len(turns)-1 {
			content[len(content)-1]["cache_control"] = ephemeral
		}
		messages = append(messages, obj{"role": role, "content": content})
	}
	body, err := json.Marshal(obj{
		"model": "claude-opus-4-8", "max_tokens": 16, "stream": true, "temperature": 0, "thinking": obj{"type": "adaptive"}, "messages": messages, "tools": tools,
		"system": []obj{
			text("x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch="+hash+";", nil),
			text("You are a coding agent.", ephemeral),
			text(strings.Repeat("Work with care, read before you write, and test what you change. ", 60), obj{"type": "ephemeral", "ttl": "1h"}),
		},
		"metadata":           obj{"user_id": `{"device_id":"x","session_id":"y"}`},
		"context_management": obj{"edits": []obj{{"type": "clear_thinking_20251015", "keep": "all"}}}, "output_config": obj{"effort": "medium"},
	})
	if err != nil {
		panic(err)
	}
	return body
}

// TestMessagesAgent replays two turns of a coding agent as it sends them. What it changes in each request costs nothing.
func TestMessagesAgent(t *testing.T) {
	s := start(t, "serve", "-m", smollm2(t), "--alias", "smol", "--port", "0", "--ctx-size", "8192", "--parallel", "1", "--strict-model")
	ask := func(body []byte) (kinds []string, usage map[string]any, text string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/messages?beta=true", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "X-Api-Key": "any", "Anthropic-Version": "2023-06-01", "Anthropic-Beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
			"X-App": "cli", "X-Claude-Code-Session-Id": "5f1c", "X-Stainless-Lang": "js", "Anthropic-Dangerous-Direct-Browser-Access": "true",
		} {
			req.Header.Set(name, value)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		_, err = events(res.Body, func(e map[string]any) bool {
			if kind := fmt.Sprint(e["type"]); kind != "ping" { // those come when it takes long
				kinds = append(kinds, kind)
			}
			if d, ok := dig(e, "delta", "text").(string); ok {
				text += d
			}
			if u, ok := e["usage"].(map[string]any); ok {
				usage = u
			}
			return true
		})
		if err != nil || res.StatusCode != 200 || usage == nil {
			t.Fatalf("%d %v %v", res.StatusCode, err, kinds)
		}
		return kinds, usage, text
	}
	kinds, first, text := ask(codingAgent("aaaaa", "Say hello."))
	if got := strings.Join([]string{kinds[0], kinds[1], kinds[2], kinds[len(kinds)-3], kinds[len(kinds)-2], kinds[len(kinds)-1]}, " "); got != "message_start content_block_start content_block_delta content_block_stop message_delta message_stop" {
		t.Errorf("events %v", kinds)
	}
	_, second, _ := ask(codingAgent("bbbbb", "Say hello.", text, "And again."))
	tokens := func(u map[string]any, name string) float64 { n, _ := u[name].(float64); return n }
	before := tokens(first, "input_tokens") + tokens(first, "cache_read_input_tokens")
	read, fresh := tokens(second, "cache_read_input_tokens"), tokens(second, "input_tokens")
	t.Logf("the first turn has %v tokens; the second reads %v of them from the cache and computes %v", before, read, fresh)
	if before < 800 || read < 0.98*before || tokens(second, "cache_creation_input_tokens") != 0 {
		t.Errorf("the first turn had %v, the second %v", first, second)
	}
}

// TestRealMessages: counts and caches, of the built-in engine and of the reference's llama-server.
func TestRealMessages(t *testing.T) {
	slow(t)
	own := start(t, "serve", "-m", model(t, "qwen2.5-coder-0.5b"), "--port", "0", "--ctx-size", "4096", "--parallel", "1")
	runTool(t, 5*time.Minute, python(t), "clients/anthropic_real.py", own.URL)
	own.stop()
	reference := startLlama(t, "qwen2.5-coder-0.5b", "--ctx-size", "4096", "--parallel", "1")
	runTool(t, 5*time.Minute, python(t), "clients/anthropic_real.py", reference.URL)
}
