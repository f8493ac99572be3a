package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"onebit/e2e/rig"
)

// world is the box with its model servers.
type world struct {
	options
	dir    string
	box    *rig.Box
	plain  string // a key that the default policy decides for
	policy string // a key that a policy in JSON decides for; empty without one
}

// stop ends the box.
func (w *world) stop() {
	if w.box != nil {
		rig.Stop(w.box.Cmd)
	}
}

// start brings up a box of several models, its keys, and the policy of one of them.
func (w *world) start() error {
	var models strings.Builder
	models.WriteString("models:\n")
	for i := range w.models {
		fmt.Fprintf(&models, "  - {name: m%d, file: %q, device: cpu, parallel: 8, ctx_size: 1048576, preload: true}\n", i+1, filepath.Join(w.dir, "bench.gguf"))
	}
	var err error
	if w.box, err = rig.StartBox(w.bin, w.dir, models.String()); err != nil {
		return err
	}
	if w.plain, _, err = w.key("plain"); err != nil {
		return err
	}
	if w.module != "" {
		var id string
		if w.policy, id, err = w.key("policy"); err != nil {
			return err
		}
		if err := w.bind(id); err != nil {
			return fmt.Errorf("binding the policy: %w", err)
		}
	}
	return w.warm()
}

// warm asks each model once.
func (w *world) warm() error {
	c := w.client()
	defer c.CloseIdleConnections()
	for i := range w.models {
		x := way{model: "m" + strconv.Itoa(i+1), key: w.plain}
		if _, _, err := w.ask(c, x, conversation(-i, 100)); err != nil {
			return fmt.Errorf("the first request to %s: %w", x.model, err)
		}
	}
	return nil
}

// key makes one with quotas that are never reached.
func (w *world) key(name string) (secret, id string, err error) {
	return w.box.Key(`{"name":"` + name + `","tokens_per_day":1000000000,"concurrency":10000}`)
}

// rules is the policy: classes as the reference has them, and rules over all that a request brings.
const rules = `{"classes": {"code": {"device": "hrx"}, "prose": {"device": "vulkan"}, "short": {"device": "cpu"}, "long_doc": {"device": "rocm"}},
"rules": [{"name": "night", "when": {"hour": {"from": 22, "below": 6}}, "prefer": ["m3"]},
{"name": "long", "when": {"tokens": {"from": 100000}}, "prefer": ["m4", "most ctx"]},
{"name": "usual", "prefer": ["most cached", "least load", "least queue"]}], "min_confidence": 0.16, "default": "cpu"}`

// simple is one that every version of the format has.
const simple = `{"classes": {"code": {"device": "hrx"}, "prose": {"device": "vulkan"}, "short": {"device": "cpu"}, "long_doc": {"device": "rocm"}}, "min_confidence": 0.16, "default": "cpu"}`

// bind has the module decide for one key.
func (w *world) bind(key string) error {
	module, err := os.ReadFile(w.module)
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(w.manifest)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	f := multipart.NewWriter(&body)
	for _, part := range []struct {
		name  string
		bytes []byte
	}{{"manifest", manifest}, {"module", module}} {
		p, err := f.CreateFormField(part.name)
		if err != nil {
			return err
		}
		_, _ = p.Write(part.bytes) // a buffer takes everything
	}
	_ = f.Close()
	sum := sha256.Sum256(module)
	hash := hex.EncodeToString(sum[:])
	r, err := http.NewRequest(http.MethodPost, "http://box/admin/v1/extensions", &body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", f.FormDataContentType())
	r.Header.Set("X-1bit-Sha256", hash)
	if err := rig.Send(w.box.Socket, r, nil); err != nil {
		return err
	}
	var failed error
	for _, policy := range []string{rules, simple} {
		in, err := json.Marshal(map[string]any{"module": hash, "keys": []string{key}, "config": json.RawMessage(policy)})
		if err != nil {
			return err
		}
		if err = w.box.Admin("POST", "/bindings/bench/activate", bytes.NewReader(in), nil); err == nil {
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// client speaks HTTP/1.1 over one connection, which adds the least of its own.
func (w *world) client() *http.Client {
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.box.Roots, MinVersion: tls.VersionTLS13}, MaxIdleConnsPerHost: 1, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(true)
	return &http.Client{Transport: t}
}

// ask sends a chat and returns what it took, and what the box says that it took itself, in microseconds.
func (w *world) ask(c *http.Client, x way, messages string) (wait, own float64, err error) {
	body := `{"model":"` + x.model + `","messages":` + messages + `}`
	r, err := http.NewRequest(http.MethodPost, w.box.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+x.key)
	begin := time.Now()
	res, err := c.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	wait = float64(time.Since(begin).Nanoseconds()) / 1e3
	if err != nil {
		return 0, 0, err
	}
	if res.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("status %d %s", res.StatusCode, text)
	}
	own, err = strconv.ParseFloat(res.Header.Get("X-1bit-Overhead-Us"), 64)
	return wait, own, err
}

// answers is what the model server answers to chats, at once.
func answers(mux *http.ServeMux, _ string) error {
	const event = `data: {"choices":[{"finish_reason":%s,"index":0,"delta":{%s}}],"created":1700000000,"id":"chatcmpl-x","model":"bench","object":"chat.completion.chunk"%s}` + "\n\n"
	const whole = `{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"word "}}],"created":1700000000,"id":"chatcmpl-x","model":"bench","object":"chat.completion","usage":{"prompt_tokens":4,"completion_tokens":1,"total_tokens":5}}`
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a broken one ends the request
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, whole)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, event+event+"data: [DONE]\n\n", "null", `"content":"word "`, "", `"stop"`, "", `,"timings":{"cache_n":0,"prompt_n":4,"predicted_n":1}`)
	})
	return nil
}
