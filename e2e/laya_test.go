//go:build unix

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestLaya binds the built-in classifier by one line of the configuration, and reads its word in the header.
func TestLaya(t *testing.T) {
	state := boxState(t, fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048}]\nextensions: {laya: true}\n", smollm2(t)))
	b := startBox(t, state)
	b.claim()
	key, _ := b.key("")
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(b.log.String(), "bound the built-in classifier"); time.Sleep(100 * time.Millisecond) {
		if strings.Contains(b.log.String(), "classifier is not bound") || time.Now().After(end) {
			t.Fatalf("it is not bound (make laya builds it)\n%s", b.log)
		}
	}
	for text, class := range map[string]string{
		"Write a Python function that reverses a string.":                          "code",
		"Which city is the capital of France?":                                     "short",
		"Explain in a few paragraphs how rain is formed and why it matters.":       "prose",
		strings.Repeat("The minutes of the meeting go on and on. ", 40) + "Sum up": "long_doc",
	} {
		res := b.send(key, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":"auto","max_tokens":1,"messages":[{"role":"user","content":%q}]}`, text))
		route, why := res.Header.Get("X-1bit-Route"), res.Header.Get("X-1bit-Route-Why")
		res.Body.Close()
		if res.StatusCode != 200 || !strings.HasPrefix(route, class+" ") {
			t.Errorf("%.40q: status %d, route %q, why %q; want %s", text, res.StatusCode, route, why, class)
		}
	}
	// another start finds it where it was
	b.stop()
	b = startBox(t, state)
	if m := fmt.Sprint(b.admin("GET", "/extensions", "")); !strings.Contains(m, "laya@") || strings.Count(m, "sha256:") > 3 {
		t.Errorf("after a restart: %s", m)
	}
}
