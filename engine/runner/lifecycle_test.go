package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onebit/engine/batch"
	"onebit/engine/runner"
)

func decode(t *testing.T, body []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
}

// The server is not ready before the model has made a token.
func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loaded, evaluated := make(chan struct{}), make(chan struct{})
		e := &fakeEngine{atProof: true, during: func([]batch.Step) error {
			<-evaluated
			return nil
		}}
		f := start(t, e, runner.Config{Load: func(context.Context, runner.Config) (*runner.Parts, error) {
			<-loaded
			return fakeParts(e, 1, 64), nil
		}})
		notReady := func(when string) {
			synctest.Wait()
			for _, path := range []string{"/health", "/v1/health", "/v1/models", "/props", "/slots"} {
				r := f.get(path)
				if r.status != http.StatusServiceUnavailable || dig(r.json(t), "error", "type") != "unavailable_error" || r.header.Get("Retry-After") == "" {
					t.Errorf("%s, %s: %d %s", when, path, r.status, r.body)
				}
			}
			if r := f.post("/v1/chat/completions", `{`+hi+`}`); r.status != http.StatusServiceUnavailable {
				t.Errorf("%s: chat has status %d", when, r.status)
			}
		}
		notReady("while loading")
		close(loaded)
		notReady("before the first token")
		close(evaluated)
		synctest.Wait()
		if r := f.get("/health"); r.status != http.StatusOK || string(r.body) != `{"status":"ok"}` {
			t.Errorf("health %d %s", r.status, r.body)
		}
		f.stop()
		if e.sessions != 0 || !e.closed {
			t.Errorf("%d sessions left, closed %v", e.sessions, e.closed)
		}
	})
}

func TestRunFailures(t *testing.T) {
	broken := &fakeEngine{atProof: true, during: func([]batch.Step) error { return errors.New("cannot allocate") }}
	deaf := &fakeEngine{}
	tests := []struct {
		name string
		load runner.Loader
		want string
	}{
		{"no such model", func(context.Context, runner.Config) (*runner.Parts, error) { return nil, errors.New("no such file") }, `loading "fake.gguf": no such file`},
		{"no token", loader(fakeParts(broken, 1, 64)), `trying "fake.gguf": cannot allocate`},
		{"no probabilities", loader(&runner.Parts{Engine: mute{deaf}, Tokenizer: fakeTokenizer{}, Slots: 1, Context: 64}), "no usable probabilities"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := runner.New(runner.Config{Model: "fake.gguf", Listener: newQuietListener(), Load: tt.load})
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
			})
		})
	}
}

// mute is an engine whose logits are no numbers.
type mute struct{ *fakeEngine }

func (m mute) Eval(ctx context.Context, steps []batch.Step) error {
	if err := m.fakeEngine.Eval(ctx, steps); err != nil {
		return err
	}
	for i := range steps {
		steps[i].Out = []float32{nan(), nan()}
	}
	return nil
}

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  runner.Config
	}{
		{"no model", runner.Config{}},
		{"port", runner.Config{Model: "x", Port: 70000}},
		{"context", runner.Config{Model: "x", Context: -1}},
		{"slots", runner.Config{Model: "x", Parallel: 1000}},
		{"threads", runner.Config{Model: "x", Threads: -1}},
	} {
		if _, err := runner.New(tt.cfg); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
	}
}

// A stop ends all answers at once: streams with an error event, the rest with
// an error.
func TestStop(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(50 * time.Millisecond)}, 1, 4096, func(f *fixture) {
		stream := f.begin("/completion", prompt("a", 4000, `"stream":true`))
		synctest.Wait()
		queued := f.begin("/completion", prompt("b", 10))
		time.Sleep(time.Second)
		began := time.Now()
		f.stop()
		if d := time.Since(began); d > time.Second {
			t.Errorf("stopping took %v", d)
		}
		events := splitEvents(t, stream.wait().body)
		if last := parse(t, events[len(events)-1]); dig(last, "error", "code") != "stopping" {
			t.Errorf("the stream ends with %s", events[len(events)-1])
		}
		if r := queued.wait(); r.status != http.StatusServiceUnavailable {
			t.Errorf("the queued request got %d %s", r.status, r.body)
		}
		if r := f.post("/completion", prompt("c", 1)); r.status != http.StatusServiceUnavailable {
			t.Errorf("a later request got %d %s", r.status, r.body)
		}
	})
}

// A stop does not wait for a model that takes long to load.
func TestStopWhileLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, &fakeEngine{}, runner.Config{Load: func(ctx context.Context, _ runner.Config) (*runner.Parts, error) {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil, errors.New("too late")
		}})
		synctest.Wait()
		began := time.Now()
		f.stop()
		if d := time.Since(began); d > time.Second {
			t.Errorf("stopping took %v", d)
		}
		time.Sleep(time.Hour) // for the load to end
	})
}

// A handler that panics costs its own request.
func TestPanic(t *testing.T) {
	bubble(t, &fakeEngine{next: echo("x")}, 1, 64, func(f *fixture) {
		r := f.post("/completion", `{"prompt":"`+panicText+`"}`)
		if r.status != http.StatusInternalServerError || dig(r.json(t), "error", "type") != "server_error" {
			t.Errorf("status %d: %s", r.status, r.body)
		}
		f.ok("/completion", prompt("a", 1))
	})
}

// Over a real connection: the address is known, answers stream, and a closed
// connection frees the slot.
func TestNetwork(t *testing.T) {
	e := &fakeEngine{}
	r, err := runner.New(runner.Config{Model: "fake.gguf", Alias: "fake", Load: loader(fakeParts(e, 1, 1<<20))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	for r.Addr() == nil {
		select {
		case err := <-done:
			t.Fatalf("Run: %v", err)
		default:
		}
	}
	url := "http://" + r.Addr().String()
	f := &fixture{t: t, engine: e, runner: r}
	f.awaitReady()

	resp, err := http.Post(url+"/completion", "application/json", strings.NewReader(prompt("a", 1<<19, `"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for busy := true; busy; {
		var slots []map[string]any
		decode(t, f.get("/slots").body, &slots)
		busy, _ = slots[0]["is_processing"].(bool)
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	resp, err = http.Post(url+"/completion", "application/json", strings.NewReader(prompt("b", 3)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"tokens_predicted":3`) {
		t.Errorf("%v, status %d: %s", err, resp.StatusCode, body)
	}
}
