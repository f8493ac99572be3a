package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/backendtest"
)

// served is a gateway on a network in memory, and a client of it. Everything runs in the bubble of the test, so a
// goroutine that the gateway leaves behind fails the test.
type served struct {
	t      *testing.T
	client *http.Client
	log    *logbook
}

// logbook keeps what is logged.
type logbook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve puts a gateway before a backend.
func serve(t *testing.T, b engine.Backend, change func(*config.Limits)) *served {
	t.Helper()
	limits := config.Defaults()
	if change != nil {
		change(&limits)
	}
	log := &logbook{}
	g, err := gateway.New(gateway.Config{
		Model:  gateway.Model{Name: "served", Device: engine.CPU, Why: "as asked", Created: time.Unix(7, 0), Backend: b},
		Limits: limits,
		Log:    slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	network := backendtest.NewNetwork()
	stop := network.Serve(g)
	transport := &http.Transport{DialContext: network.Dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
	})
	return &served{t: t, client: &http.Client{Transport: transport}, log: log}
}

// standin puts a gateway before a Remote to a stand-in.
func standin(t *testing.T, s *backendtest.Standin, change func(*config.Limits)) *served {
	t.Helper()
	return serve(t, far(t, s), change)
}

func far(t *testing.T, h http.Handler) *backend.Remote {
	t.Helper()
	network := backendtest.NewNetwork()
	stop := network.Serve(h)
	r, err := backend.NewRemote(backend.RemoteConfig{Name: "cpu", URL: "http://memory", Slots: 1, Dial: network.Dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		stop()
	})
	return r
}

// answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

// do sends a request and reads the response.
func (s *served) do(ctx context.Context, method, path, body string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1"+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	res, err := s.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(b), err}
}

// chat sends a chat that tells the stand-in what to do.
func (s *served) chat(word string, stream bool) answer {
	s.t.Helper()
	return s.do(s.t.Context(), "POST", "/v1/chat/completions", body(word, stream))
}

func body(word string, stream bool) string {
	b := `{"messages":[{"role":"user","content":"hi"}],"model":"any","standin":"` + word + `"`
	if stream {
		b += `,"stream":true,"stream_options":{"include_usage":true}`
	}
	return b + "}"
}

// problem is the error object of a body.
type problem struct {
	Message, Type string
	Param, Code   *string
	Prompt        int `json:"n_prompt_tokens"`
}

// refusal decodes an error object.
func refusal(t *testing.T, body string) problem {
	t.Helper()
	var e struct{ Error *problem }
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error == nil || e.Error.Message == "" || e.Error.Type == "" {
		t.Fatalf("%q is no error object (%v)", body, err)
	}
	return *e.Error
}

// events splits a stream into the data of its events, and checks that it is nothing but that and comments.
func events(t *testing.T, stream string) (data []string) {
	t.Helper()
	for event := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		if strings.HasPrefix(event, ":") {
			continue
		}
		d, ok := strings.CutPrefix(event, "data: ")
		if !ok || strings.Contains(d, "\n") {
			t.Fatalf("%q is no event of one data line", event)
		}
		if d != "[DONE]" && !json.Valid([]byte(d)) {
			t.Fatalf("%q is not JSON", d)
		}
		data = append(data, d)
	}
	return data
}

// scripted is a backend that does what a test says.
type scripted struct {
	mu       sync.Mutex
	name     string // cpu unless it is given
	state    engine.State
	ready    func(context.Context) error
	generate func(ctx context.Context, try int, emit func(engine.Chunk) error) (engine.Usage, error)
	tries    int
}

func (s *scripted) Name() string { return cmp.Or(s.name, "cpu") }
func (s *scripted) Slots() int   { return 1 }

func (s *scripted) State() engine.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *scripted) Ready(ctx context.Context) error {
	if s.ready == nil {
		return nil
	}
	return s.ready(ctx)
}

func (s *scripted) Generate(ctx context.Context, _ *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	s.mu.Lock()
	s.tries++
	try := s.tries
	s.mu.Unlock()
	if s.generate == nil {
		return engine.Usage{}, errors.New("not expected to be asked")
	}
	return s.generate(ctx, try, emit)
}
