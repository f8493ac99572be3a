package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// world is the box with its model servers.
type world struct {
	options
	dir    string
	box    *exec.Cmd
	url    string
	roots  *x509.CertPool
	socket *http.Client
	plain  string // a key that the default policy decides for
	policy string // a key that a policy in JSON decides for; empty without one
}

// stop ends the box.
func (w *world) stop() {
	if w.box == nil {
		return
	}
	_ = w.box.Process.Signal(syscall.SIGTERM) // it may have ended
	t := time.AfterFunc(20*time.Second, func() { _ = w.box.Process.Kill() })
	defer t.Stop()
	_ = w.box.Wait()
}

var (
	address = regexp.MustCompile(`1bit appliance: https://[^:]+:(\d+)`)
	code    = regexp.MustCompile(`code    ([A-Z0-9-]{35})`)
)

// start brings up a box of several models, its keys, and the policy of one of them.
func (w *world) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, model, state := filepath.Join(w.dir, "llama-server"), filepath.Join(w.dir, "bench.gguf"), filepath.Join(w.dir, "state")
	var models strings.Builder
	for i := range w.models {
		fmt.Fprintf(&models, "  - {name: m%d, file: %q, device: cpu, parallel: 8, ctx_size: 1048576, preload: true}\n", i+1, model)
	}
	config := fmt.Sprintf("models:\n%sprograms: {llama_server: %q}\nlog: {level: warn, requests: metadata}\ndiscovery: false\n", models.String(), program)
	if err := errors.Join(os.Symlink(self, program), os.WriteFile(model, emptyModel(), 0o600), os.Mkdir(state, 0o700),
		os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(config), 0o600)); err != nil {
		return err
	}
	said, err := w.run(state)
	if err != nil {
		return err
	}
	w.url = "https://127.0.0.1:" + string(address.FindSubmatch(said)[1])
	w.socket = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(state, "admin.sock"))
	}}}
	var certificate struct{ Root string }
	if err := w.admin("GET", "/certificate", "", nil, &certificate); err != nil {
		return err
	}
	w.roots = x509.NewCertPool()
	w.roots.AppendCertsFromPEM([]byte(certificate.Root))
	claim := fmt.Sprintf(`{"code":%q,"name":"root","password":"correct horse battery"}`, code.FindSubmatch(said)[1])
	r, err := http.NewRequest(http.MethodPost, w.url+"/claim", strings.NewReader(claim))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if err := send(w.client(), r, nil); err != nil {
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

// run starts the box and waits until it says where it is.
func (w *world) run(state string) ([]byte, error) {
	log, err := os.Create(filepath.Join(w.dir, "box.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(w.bin, "appliance", "--state", state, "--host", "127.0.0.1", "--port", "0", "--http-port", "-1")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w.box = cmd
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		said, err := os.ReadFile(log.Name())
		if err != nil || address.Match(said) && code.Match(said) {
			return said, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the box did not come up:\n%s", said)
		}
	}
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
	var made struct{ Secret, ID string }
	err = w.admin("POST", "/keys", "application/json", strings.NewReader(`{"name":"`+name+`","tokens_per_day":1000000000,"concurrency":10000}`), &made)
	return made.Secret, made.ID, err
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
	if err := send(w.socket, r, nil); err != nil {
		return err
	}
	var failed error
	for _, policy := range []string{rules, simple} {
		in, err := json.Marshal(map[string]any{"module": hash, "keys": []string{key}, "config": json.RawMessage(policy)})
		if err != nil {
			return err
		}
		if err = w.admin("POST", "/bindings/bench/activate", "application/json", bytes.NewReader(in), nil); err == nil {
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// admin calls the control plane.
func (w *world) admin(method, path, kind string, body io.Reader, into any) error {
	r, err := http.NewRequest(method, "http://box/admin/v1"+path, body)
	if err != nil {
		return err
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	return send(w.socket, r, into)
}

// send reads an answer in JSON.
func send(c *http.Client, r *http.Request, into any) error {
	res, err := c.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", r.Method, r.URL.Path, res.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// client speaks HTTP/1.1 over one connection, which adds the least of its own.
func (w *world) client() *http.Client {
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.roots, MinVersion: tls.VersionTLS13}, MaxIdleConnsPerHost: 1, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(true)
	return &http.Client{Transport: t}
}

// ask sends a chat and returns what it took, and what the box says that it took itself, in microseconds.
func (w *world) ask(c *http.Client, x way, messages string) (wait, own float64, err error) {
	body := `{"model":"` + x.model + `","messages":` + messages + `}`
	r, err := http.NewRequest(http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(body))
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

// serveModel speaks as much of llama-server's dialect as it takes to be started by a box, and answers at once.
func serveModel(args []string) error {
	port := ""
	for i, a := range args {
		if a == "--list-devices" {
			fmt.Println("Available devices:")
			return nil
		}
		if a == "--port" && i+1 < len(args) {
			port = args[i+1]
		}
	}
	if port == "" {
		return fmt.Errorf("no --port in %q", args)
	}
	const event = `data: {"choices":[{"finish_reason":%s,"index":0,"delta":{%s}}],"created":1700000000,"id":"chatcmpl-x","model":"bench","object":"chat.completion.chunk"%s}` + "\n\n"
	const whole = `{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"word "}}],"created":1700000000,"id":"chatcmpl-x","model":"bench","object":"chat.completion","usage":{"prompt_tokens":4,"completion_tokens":1,"total_tokens":5}}`
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"status":"ok"}`) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"bench","object":"model","meta":{"n_ctx":131072}}]}`)
	})
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
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // it is all the same
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"text_completion","choices":[{"index":0,"text":"1","finish_reason":"stop"}]}`)
	})
	return http.ListenAndServe("127.0.0.1:"+port, mux)
}

// emptyModel is a GGUF file without tensors.
func emptyModel() []byte {
	var b bytes.Buffer
	text := func(v string) {
		_ = binary.Write(&b, binary.LittleEndian, uint64(len(v))) // a buffer takes everything
		b.WriteString(v)
	}
	b.WriteString("GGUF")
	_ = binary.Write(&b, binary.LittleEndian, []uint32{3, 0, 0, 1, 0}) // version, tensors, metadata
	text("general.architecture")
	_ = binary.Write(&b, binary.LittleEndian, uint32(8)) // a string
	text("qwen3")
	return b.Bytes()
}
