package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"onebit/engine/runner"
)

// fixture is a running server without a network: requests go to its handler.
type fixture struct {
	t      *testing.T
	engine *fakeEngine
	runner *runner.Runner
	stop   func()
}

// quietListener never gets a connection.
type quietListener struct {
	once   sync.Once
	closed chan struct{}
}

func newQuietListener() *quietListener { return &quietListener{closed: make(chan struct{})} }

func (l *quietListener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l *quietListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *quietListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// bubble runs a test in fake time with a server of the given engine. When the
// test ends the server is stopped, and a goroutine left over fails the test.
func bubble(t *testing.T, e *fakeEngine, slots, context int, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := start(t, e, runner.Config{Load: loader(fakeParts(e, slots, context))})
		synctest.Wait()
		test(f)
		f.stop()
	})
}

func loader(p *runner.Parts) runner.Loader {
	return func(context.Context, runner.Config) (*runner.Parts, error) { return p, nil }
}

// start runs a server until stop or the end of the test.
func start(t *testing.T, e *fakeEngine, cfg runner.Config) *fixture {
	t.Helper()
	if cfg.Model == "" {
		cfg.Model, cfg.Alias = "fake.gguf", "fake"
	}
	cfg.Listener = newQuietListener()
	r, err := runner.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	f := &fixture{t: t, engine: e, runner: r}
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

// reply is an answer to a request.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) json(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("the answer is no JSON object: %v\n%s", err, r.body)
	}
	return v
}

// do sends a request to the handler and waits for the whole answer.
func (f *fixture) do(ctx context.Context, method, path, body string) reply {
	req := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	rec := httptest.NewRecorder()
	f.runner.Handler().ServeHTTP(rec, req)
	return reply{rec.Code, rec.Header(), rec.Body.Bytes()}
}

func (f *fixture) get(path string) reply { return f.do(f.t.Context(), "GET", path, "") }

func (f *fixture) post(path, body string) reply { return f.do(f.t.Context(), "POST", path, body) }

// ok posts and fails the test unless the answer is a success.
func (f *fixture) ok(path, body string) map[string]any {
	f.t.Helper()
	r := f.post(path, body)
	if r.status != http.StatusOK {
		f.t.Fatalf("POST %s %s: status %d: %s", path, body, r.status, r.body)
	}
	return r.json(f.t)
}

// events posts and returns the data of a stream's events.
func (f *fixture) events(path, body string) []string {
	f.t.Helper()
	r := f.post(path, body)
	if r.status != http.StatusOK || r.header.Get("Content-Type") != "text/event-stream" {
		f.t.Fatalf("POST %s %s: status %d, %s: %s", path, body, r.status, r.header.Get("Content-Type"), r.body)
	}
	return splitEvents(f.t, r.body)
}

func splitEvents(t testing.TB, body []byte) []string {
	t.Helper()
	var list []string
	for block := range strings.SplitSeq(strings.TrimSuffix(string(body), "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(block, "data: ")
		if !ok && strings.HasPrefix(block, ":") {
			continue
		}
		if !ok || data == "" || strings.Contains(data, "\n") {
			t.Fatalf("not an event: %q", block)
		}
		list = append(list, data)
	}
	return list
}

// dig follows keys and indexes into decoded JSON. A path that ends early gives nil.
func dig(v any, path ...any) any {
	for _, p := range path {
		switch key := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[key]
		case int:
			l, _ := v.([]any)
			if key >= len(l) {
				return nil
			}
			v = l[key]
		}
	}
	return v
}

func parse(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// short writes a value as compact JSON.
func short(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}

// call is a request under way.
type call struct {
	cancel context.CancelFunc
	done   chan struct{}
	reply  reply // after done
}

// begin starts a request and returns at once.
func (f *fixture) begin(path, body string) *call {
	ctx, cancel := context.WithCancel(f.t.Context())
	c := &call{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.reply = f.do(ctx, "POST", path, body)
	}()
	return c
}

func (c *call) wait() reply {
	<-c.done
	c.cancel()
	return c.reply
}

// configWithLimit is a configuration with a largest body.
func configWithLimit(e *fakeEngine, limit int64) runner.Config {
	return runner.Config{Load: loader(fakeParts(e, 1, 64)), MaxBody: limit}
}

// awaitReady waits until the model is loaded.
func (f *fixture) awaitReady() {
	f.t.Helper()
	for f.get("/health").status != http.StatusOK {
		select {
		case <-f.t.Context().Done():
			f.t.Fatal("the server did not become ready")
		default:
			runtime.Gosched()
		}
	}
}

// counter counts events without keeping them.
type counter struct {
	header http.Header
	status int
	events int
}

func (c *counter) Header() http.Header    { return c.header }
func (c *counter) WriteHeader(status int) { c.status = status }
func (c *counter) Flush()                 {}
func (c *counter) Write(p []byte) (int, error) {
	c.events += bytes.Count(p, []byte("data: "))
	return len(p), nil
}

// stream runs one streamed chat of some tokens and counts its events.
func stream(ctx context.Context, h http.Handler, tokens int) (status, events int) {
	body := fmt.Sprintf(`{%s,"stream":true,"ignore_eos":true,"max_tokens":%d}`, hi, tokens)
	c := &counter{header: http.Header{}}
	h.ServeHTTP(c, httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", strings.NewReader(body)))
	return c.status, c.events
}
