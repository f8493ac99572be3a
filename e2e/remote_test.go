//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// rootOf writes a box's root into a file, as the trust page gives it out.
func rootOf(t *testing.T, b *appliance) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(path, []byte(b.admin("GET", "/certificate", "")["root"].(string)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// far is a model of the configuration that another box runs.
func far(name, there string, b *appliance, key, root, more string) string {
	return fmt.Sprintf("{name: %s, remote: {url: 'https://127.0.0.1:%s/v1', model: %s, key: %s, root: %q%s}}", name, b.port, there, key, root, more)
}

// modelState is what the control plane says of a model.
func (b *appliance) modelState(name string) map[string]any {
	b.t.Helper()
	for _, m := range b.admin("GET", "/models", "")["models"].([]any) {
		if m := m.(map[string]any); m["name"] == name {
			return m
		}
	}
	return map[string]any{}
}

// TestRemoteBox has one box answer by the model of another.
func TestRemoteBox(t *testing.T) {
	there := startBox(t, boxState(t, fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048}]\n", smollm2(t))))
	there.claim()
	theirs, _ := there.key("")
	root := rootOf(t, there)
	config := func(more string) string { return "models: [" + far("far", "small", there, theirs, root, more) + "]\n" }
	here := startBox(t, boxState(t, config("")))
	here.claim()
	ours, _ := here.key("")
	ask := func(key, model, more string) (*http.Response, string) {
		t.Helper()
		res := here.send(key, "POST", "/v1/chat/completions", `{"model":"`+model+`",`+parisQuestion+more+`}`)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(text)
	}
	res, text := ask(ours, "far", `,"user":"ann"`)
	if res.StatusCode != 200 || !strings.Contains(text, "Paris") || !strings.Contains(text, `"model":"far"`) || !strings.Contains(text, `"prompt_tokens":38`) {
		t.Fatalf("a chat: %d %s\n%s", res.StatusCode, text, here.log)
	}
	if got := res.Header.Get("X-1bit-Backend"); got != "remote" {
		t.Errorf("the backend is called %q", got)
	}
	res = here.send(ours, "POST", "/v1/chat/completions", `{"model":"far",`+parisQuestion+`,"stream":true}`)
	var said strings.Builder
	done, err := events(res.Body, func(e map[string]any) bool {
		if e["model"] != "far" {
			t.Errorf("an event of the model %v", e["model"])
		}
		for _, c := range e["choices"].([]any) {
			if s, ok := c.(map[string]any)["delta"].(map[string]any)["content"].(string); ok {
				said.WriteString(s)
			}
		}
		return true
	})
	res.Body.Close()
	if !done || err != nil || !strings.Contains(said.String(), "Paris") {
		t.Errorf("streamed: %q, %v, %v", said.String(), done, err)
	}
	for path, c := range map[string]struct {
		body string
		want int
	}{
		"/v1/completions": {`{"model":"far","prompt":"The capital of France is","max_tokens":4}`, 200},
		"/v1/responses":   {`{"model":"far","input":"Which city is the capital of France?","max_output_tokens":30}`, 200},
		"/v1/decisions":   {`{"model":"far","input":"The sky is blue.","questions":[{"type":"predicate","instructions":"Is the sky blue?"}]}`, 200},
		"/v1/tokenize":    {`{"model":"far","content":"a"}`, 501},
		"/v1/embeddings":  {`{"model":"far","input":"a"}`, 501},
	} {
		status, text := here.do(ours, "POST", path, c.body)
		if status != c.want {
			t.Errorf("%s: %d %s, want %d", path, status, text, c.want)
		}
	}
	here.soon("the list of models with what the other box says of it", func() bool {
		_, text := here.do(ours, "GET", "/v1/models", "")
		return strings.Contains(text, `"id":"far"`) && strings.Contains(text, `"device":"remote"`) && strings.Contains(text, `"context_length":2048`)
	})
	usage := ""
	here.soon("usage", func() bool {
		usage = fmt.Sprint(here.admin("GET", "/usage?by=model", "")["usage"])
		return strings.Contains(usage, "requests:")
	})
	if !strings.Contains(usage, "far") {
		t.Errorf("usage is %s", usage)
	}
	if m := here.modelState("far"); m["device"] != "remote" || m["state"] != "loaded" && m["state"] != "ready" || m["editable"] != false {
		t.Errorf("the control plane shows %v", m)
	}
	t.Run("left to the box", func(t *testing.T) {
		for _, model := range []string{`"model":"auto",`, ``} {
			if status, text := here.do(ours, "POST", "/v1/chat/completions", `{`+model+parisQuestion+`}`); status != 404 {
				t.Errorf("%s: %d %s", model, status, text)
			}
		}
		here.configure(config(", auto: true"))
		if status, text := here.reload(); status >= 300 {
			t.Fatalf("%d %s", status, text)
		}
		here.soon("auto", func() bool {
			status, text := here.do(ours, "POST", "/v1/chat/completions", `{"model":"auto",`+parisQuestion+`}`)
			return status == 200 && strings.Contains(text, `"model":"far"`)
		})
	})
	t.Run("scopes", func(t *testing.T) {
		other, _ := here.key(`,"models":["another"]`)
		if status, text := here.do(other, "POST", "/v1/chat/completions", `{"model":"far",`+parisQuestion+`}`); status != 403 && status != 404 {
			t.Errorf("%d %s", status, text)
		}
	})
	t.Run("their key", func(t *testing.T) {
		if all := here.log.String() + there.log.String() + fmt.Sprint(here.admin("GET", "/status", ""), here.admin("GET", "/models", ""), here.admin("GET", "/settings", "")); strings.Contains(all, theirs) {
			t.Error("it is shown")
		}
		if status, text := there.do("", "GET", "/v1/models", ""); status != 401 {
			t.Errorf("theirs is open: %d %s", status, text)
		}
	})
	t.Run("goes and comes back", func(t *testing.T) {
		there.stop()
		here.soon("503", func() bool {
			status, text := here.do(ours, "POST", "/v1/chat/completions", `{"model":"far",`+parisQuestion+`}`)
			if strings.Contains(text, there.port) {
				t.Errorf("a client is told where it is: %s", text)
			}
			return status == 503
		})
		here.soon("a word to an admin", func() bool {
			return strings.Contains(fmt.Sprint(here.admin("GET", "/status", "")["problems"]), "does not answer")
		})
		again := startBox(t, there.state, "--port", there.port)
		defer again.stop()
		here.soon("an answer", func() bool {
			status, _ := here.do(ours, "POST", "/v1/chat/completions", `{"model":"far",`+parisQuestion+`}`)
			return status == 200
		})
	})
}

// TestRemoteLoops has boxes be their own remotes.
func TestRemoteLoops(t *testing.T) {
	one, two := startBox(t, boxState(t, "")), startBox(t, boxState(t, ""))
	one.claim()
	two.claim()
	first, _ := one.key("")
	second, _ := two.key("")
	ofOne, ofTwo := rootOf(t, one), rootOf(t, two)
	one.configure("models: [" + far("self", "self", one, first, ofOne, "") + "," + far("there", "back", two, second, ofTwo, "") + "]\n")
	two.configure("models: [" + far("back", "there", one, first, ofOne, "") + "]\n")
	for _, b := range []*appliance{one, two} {
		if status, text := b.reload(); status >= 300 {
			t.Fatalf("%d %s", status, text)
		}
	}
	one.soon("the box to see that it would ask itself", func() bool {
		return strings.Contains(fmt.Sprint(one.modelState("self")["problem"]), "back to this box")
	})
	begin := time.Now()
	var status int
	var text string
	one.soon("an answer", func() bool {
		status, text = one.do(first, "POST", "/v1/chat/completions", `{"model":"there",`+parisQuestion+`}`)
		return status != 503 // until the other is up
	})
	if status != 508 || !strings.Contains(text, "loop_detected") {
		t.Errorf("from one to two to one: %d %s after %v", status, text, time.Since(begin))
	}
	if got := fmt.Sprint(two.modelState("back")["problem"]); !strings.Contains(got, "back to this box") {
		t.Errorf("an admin of two is told %q", got)
	}
}

// compatible is a server that speaks OpenAI's API and notes what it was sent.
type compatible struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	heads  []http.Header
	status int
}

func newCompatible(t *testing.T) *compatible {
	c := &compatible{status: 200}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/base/v1/models" {
			fmt.Fprint(w, `{"object":"list","data":[{"id":"gpt","object":"model"}]}`)
			return
		}
		c.mu.Lock()
		c.bodies, c.heads = append(c.bodies, string(body)), append(c.heads, r.Header)
		status := c.status
		c.mu.Unlock()
		if status != 200 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(status)
			fmt.Fprint(w, `{"error":{"message":"your key sk-secret is out of money"}}`)
			return
		}
		if r.URL.Path != "/base/v1/chat/completions" {
			http.NotFound(w, r)
			return
		}
		var asked struct {
			Stream bool `json:"stream"`
		}
		json.Unmarshal(body, &asked)
		if !asked.Stream {
			fmt.Fprint(w, `{"id":"x","object":"chat.completion","model":"gpt","choices":[{"index":0,"message":{"role":"assistant","content":"Paris"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"id":"x","object":"chat.completion.chunk","model":"gpt","choices":[{"index":0,"delta":{"role":"assistant","content":"Paris"},"finish_reason":null}]}`+"\n\n")
		fmt.Fprint(w, `data: {"id":"x","object":"chat.completion.chunk","model":"gpt","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n")
		fmt.Fprint(w, `data: {"id":"x","object":"chat.completion.chunk","model":"gpt","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8}}`+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(c.Close)
	return c
}

// TestRemoteCompatible has a box answer by a server that knows nothing of boxes, and keep its documents from it.
func TestRemoteCompatible(t *testing.T) {
	c := newCompatible(t)
	config := func(more string) string {
		return fmt.Sprintf("models: [{name: cloud, parallel: 2, remote: {url: %q, model: gpt, key: sk-secret%s}}]\n", c.URL+"/base/v1", more)
	}
	b := startBox(t, boxState(t, config("")))
	b.claim()
	key, _ := b.key("")
	ask := func(more string) (int, string, http.Header) {
		t.Helper()
		res := b.send(key, "POST", "/v1/chat/completions", `{"model":"cloud",`+parisQuestion+more+`}`)
		defer res.Body.Close()
		var out bytes.Buffer
		out.ReadFrom(res.Body)
		return res.StatusCode, out.String(), res.Header
	}
	b.soon("an answer", func() bool { status, _, _ := ask(""); return status == 200 })
	if status, text, _ := ask(`,"stream":true`); status != 200 || !strings.Contains(text, "Paris") || !strings.HasSuffix(text, "data: [DONE]\n\n") || strings.Contains(text, `"usage"`) {
		t.Errorf("streamed: %d %s", status, text)
	}
	ask(`,"user":"ann","metadata":{"who":"ann"},"store":true`)
	c.mu.Lock()
	for i, body := range c.bodies {
		if strings.Contains(body, "ann") || strings.Contains(body, "store") || !strings.Contains(body, `"model":"gpt"`) {
			t.Errorf("sent %s", body)
		}
		for name, values := range c.heads[i] {
			if strings.Contains(strings.Join(values, " "), key) || strings.HasPrefix(name, "X-Request") || strings.HasPrefix(name, "X-Forwarded") {
				t.Errorf("sent %s: %q", name, values)
			}
		}
		if got := c.heads[i].Get("Authorization"); got != "Bearer sk-secret" {
			t.Errorf("the key was %q", got)
		}
	}
	c.mu.Unlock()
	for path, body := range map[string]string{
		"/v1/embeddings": `{"model":"cloud","input":"a"}`, "/v1/rerank": `{"model":"cloud","query":"a","documents":["b"]}`,
		"/v1/completions": `{"model":"cloud","prompt":"a"}`, "/v1/decisions": `{"model":"cloud","input":"The sky is blue.","questions":[{"type":"predicate","instructions":"Is the sky blue?"}]}`,
		"/v1/tokenize": `{"model":"cloud","content":"a"}`,
	} {
		if status, text := b.do(key, "POST", path, body); status != 501 {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	for _, status := range []int{401, 402, 403, 429, 503} {
		c.mu.Lock()
		c.status = status
		c.mu.Unlock()
		got, text, h := ask("")
		if got != 503 || strings.Contains(text, "money") || strings.Contains(text, "sk-") || h.Get("Retry-After") == "" {
			t.Errorf("theirs answers %d: %d %s, Retry-After %q", status, got, text, h.Get("Retry-After"))
		}
		if status == 402 {
			if p := fmt.Sprint(b.admin("GET", "/status", "")["problems"]); !strings.Contains(p, "refuses the key") || strings.Contains(p, "money") {
				t.Errorf("an admin is told %s", p)
			}
		}
		if status >= 429 {
			time.Sleep(2 * time.Second) // it wants to be left alone for so long
		}
	}
	c.mu.Lock()
	c.status, c.bodies, c.heads = 200, nil, nil
	c.mu.Unlock()
	t.Run("documents", func(t *testing.T) {
		status, text := b.do(key, "POST", "/v1/vector_stores", `{"name":"secrets"}`)
		if status != 200 && status != 201 {
			t.Fatalf("%d %s", status, text)
		}
		status, text, _ = ask(`,"documents":{"collections":["secrets"]}`)
		if status != 403 || !strings.Contains(text, "documents_stay_here") {
			t.Errorf("%d %s", status, text)
		}
		if status, text := b.do(key, "POST", "/v1/responses", `{"model":"cloud","input":"what is in it?","tools":[{"type":"file_search","vector_store_ids":["secrets"]}]}`); status < 400 {
			t.Errorf("as a tool: %d %s", status, text)
		}
		c.mu.Lock()
		if len(c.bodies) > 0 {
			t.Errorf("sent %q", c.bodies)
		}
		c.mu.Unlock()
		b.configure(config(", documents: true"))
		if status, text := b.reload(); status >= 300 {
			t.Fatalf("%d %s", status, text)
		}
		b.soon("documents allowed", func() bool {
			status, _, _ := ask(`,"documents":{"collections":["secrets"]}`)
			return status == 200
		})
	})
	t.Run("disabled", func(t *testing.T) {
		b.configure(config(", disabled: true"))
		if status, text := b.reload(); status >= 300 {
			t.Fatalf("%d %s", status, text)
		}
		if status, text, _ := ask(""); status != 503 || !strings.Contains(text, "not in use") {
			t.Errorf("%d %s", status, text)
		}
		if m := b.modelState("cloud"); m["state"] != "absent" || !strings.Contains(fmt.Sprint(m["problem"]), "disabled") {
			t.Errorf("the control plane shows %v", m)
		}
	})
}

// TestRemoteFailover has a request that leaves the choice to the box answered here while the other server cannot, and what of
// documents may not leave the box here always.
func TestRemoteFailover(t *testing.T) {
	c := newCompatible(t)
	b := startBox(t, boxState(t, fmt.Sprintf("models: [{name: cloud, remote: {url: %q, model: gpt, key: sk-secret, auto: true}}, {name: small, file: %q, ctx_size: 2048}]\n", c.URL+"/base/v1", smollm2(t))))
	b.claim()
	key, _ := b.key("")
	n := 0
	ask := func(more string) (model, why, text string) {
		t.Helper()
		n++ // a conversation of its own
		res := b.send(key, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":"auto","max_tokens":4,"messages":[{"role":"user","content":"Request %d"}]%s}`, n, more))
		defer res.Body.Close()
		var answer bytes.Buffer
		answer.ReadFrom(res.Body)
		var named struct{ Model string }
		json.Unmarshal([]byte(strings.TrimPrefix(answer.String(), "data: ")), &named)
		if strings.HasPrefix(answer.String(), "data: ") {
			named.Model = ""
			if strings.Contains(answer.String(), `"model":"cloud"`) {
				named.Model = "cloud"
			} else if strings.Contains(answer.String(), `"model":"small"`) {
				named.Model = "small"
			}
		}
		return named.Model, res.Header.Get("X-1bit-Route-Why"), fmt.Sprint(res.StatusCode, " ", answer.String())
	}
	b.soon("the first choice", func() bool { model, _, _ := ask(""); return model == "cloud" })
	if status, text := b.do(key, "POST", "/v1/vector_stores", `{"name":"secrets"}`); status != 200 && status != 201 {
		t.Fatalf("%d %s", status, text)
	}
	if model, _, text := ask(`,"documents":{"collections":["secrets"]}`); model != "small" {
		t.Errorf("with documents: %s", text)
	}
	for _, status := range []int{503, 401, 429} {
		c.mu.Lock()
		c.status, c.bodies = status, nil
		c.mu.Unlock()
		for i, more := range []string{"", `,"stream":true`} {
			model, why, text := ask(more)
			if model != "small" {
				t.Errorf("theirs answers %d, %q: %s, %s", status, more, why, text)
			}
			if i == 0 && !strings.Contains(why, "failover") {
				t.Errorf("theirs answers %d: why is %q", status, why)
			}
		}
		time.Sleep(2500 * time.Millisecond) // it wants to be left alone for so long
	}
	c.mu.Lock()
	c.status = 200
	c.mu.Unlock()
	b.soon("the first choice again", func() bool { model, _, _ := ask(""); return model == "cloud" })
	c.CloseClientConnections()
	c.Close()
	for range 3 {
		if model, why, text := ask(""); model != "small" {
			t.Errorf("theirs is gone: %s, %s", why, text)
		}
	}
}
