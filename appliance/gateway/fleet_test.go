package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/appliance/queue"
	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/backendtest"
	"onebit/engine/wire"
)

// fleet is two models; broken is one that cannot be loaded.
type fleet struct {
	models map[string]engine.Backend
	device engine.Device // empty: the processor
	load   time.Duration // how long a model takes to be brought up
	mu     sync.Mutex
	out    int // models that were acquired and not given back
	wishes []gateway.Wish
	used   []engine.Usage // as they were given back with

	position int             // in line, that those who come are said to have had
	most     *queue.Priority // that a request may have; nil is any
}

func (f *fleet) Resolve(role gateway.Role, name string) (string, error) {
	if name == "" {
		name = map[gateway.Role]string{gateway.Chat: "small", gateway.Embedding: "vectors"}[role]
	}
	if _, ok := f.models[name]; !ok {
		return "", &gateway.NoModelError{Name: name, Role: role, Known: []string{"small"}}
	}
	return name, nil
}

func (f *fleet) Acquire(_ context.Context, w gateway.Wish) (gateway.Hold, error) {
	name := w.Model
	if name == "broken" {
		return gateway.Hold{}, &engine.UnavailableError{Reason: "there is no memory"}
	}
	time.Sleep(f.load)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out++
	f.wishes = append(f.wishes, w)
	h := gateway.Hold{Model: gateway.Model{Name: name, Device: cmp.Or(f.device, engine.CPU), Backend: f.models[name]}, Waited: f.load, Position: f.position}
	if h.Priority = w.Priority; f.most != nil {
		h.Priority = min(h.Priority, *f.most)
	}
	h.Release = func(u engine.Usage) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.out--
		f.used = append(f.used, u)
	}
	return h, nil
}

func (f *fleet) List() []gateway.Listed {
	return []gateway.Listed{
		{Name: "small", Device: engine.CPU, State: "ready", Info: engine.Info{Context: 99}, Backend: f.models["small"]},
		{Name: "broken", Device: engine.Vulkan, State: "failed"},
	}
}

// door lets in who shows "let me", grants what is not broken, and keeps the outcomes.
type door struct {
	revoke   func(context.CancelCauseFunc)
	outcomes []gateway.Outcome
}

type refused struct{ status int }

func (r refused) Error() string { return "refused" }
func (r refused) Wire() *wire.Error {
	return &wire.Error{Status: r.status, Type: "t", Message: "refused"}
}

func (d *door) Enter(r *http.Request, route string) (context.Context, error) {
	if route != "/health" && r.Header.Get("Authorization") != "let me" {
		return nil, refused{http.StatusUnauthorized}
	}
	return r.Context(), nil
}

func (d *door) Begin(ctx context.Context, u gateway.Use) (gateway.Grant, error) {
	if u.Model == "broken" {
		return gateway.Grant{}, refused{http.StatusForbidden}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if d.revoke != nil {
		d.revoke(cancel)
	}
	return gateway.Grant{Context: ctx, Keep: true, End: func(o gateway.Outcome) {
		cancel(nil)
		d.outcomes = append(d.outcomes, o)
	}}, nil
}

func (d *door) Sees(_ context.Context, model string) bool { return model != "broken" }

func (d *door) Scope(context.Context) string { return "its key" }

// spy notes what a backend is sent.
type spy struct {
	*backend.Remote
	seen  logbook
	reuse *engine.Reuse // what all pieces of answers say
}

func (s *spy) Generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	s.seen.Write(req.Raw)
	return s.Remote.Generate(ctx, req, func(c engine.Chunk) error {
		c.Reuse = s.reuse
		return emit(c)
	})
}

func (s *spy) Relay(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.seen.Write(body)
	s.seen.Write([]byte(r.URL.RawQuery))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return s.Remote.Relay(r)
}

// box puts a gateway with a fleet and a door before a backend, and lets its client in.
func box(t *testing.T, b engine.Backend, d *door) (*served, *fleet) {
	t.Helper()
	f := &fleet{models: map[string]engine.Backend{"small": b, "broken": nil}}
	log := &logbook{}
	g, err := gateway.New(gateway.Config{Fleet: f, Door: d, Limits: config.Defaults(), Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	network := backendtest.NewNetwork()
	stop := network.Serve(g)
	transport := &letIn{&http.Transport{DialContext: network.Dial}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
	})
	return &served{t: t, client: &http.Client{Transport: transport}, log: log}, f
}

// TestRequestIDs holds that each request has an id of its own in the log and the outcome, whatever its client calls it.
func TestRequestIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &door{}
		s, _ := box(t, far(t, &backendtest.Standin{Model: "child"}), d)
		for range 2 {
			req, err := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"hi"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Request-Id", "mine")
			res, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.Header.Get("X-Request-Id") != "mine" {
				t.Errorf("the client gets %v", res.Header)
			}
		}
		synctest.Wait()
		if len(d.outcomes) != 2 || d.outcomes[0].ID == d.outcomes[1].ID {
			t.Fatalf("outcomes %v", d.outcomes)
		}
		for _, o := range d.outcomes {
			if !strings.Contains(s.log.String(), "id="+o.ID+" client_id=mine") {
				t.Errorf("the log does not say %s:\n%s", o.ID, s.log)
			}
		}
	})
}

// TestOverhead tells what the box took itself; in the bubble of a test no time passes but for the load.
func TestOverhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := box(t, far(t, &backendtest.Standin{Model: "child"}), &door{})
		f.load = time.Second
		got := s.do(t.Context(), "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`)
		if got.header.Get("X-1bit-Overhead-Us") != "0" || got.header.Get("X-1bit-Backend") != "cpu" {
			t.Errorf("%d %v", got.status, got.header)
		}
	})
}

type letIn struct{ *http.Transport }

func (l letIn) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("anonymous") == "" {
		r.Header.Set("Authorization", "let me")
	}
	return l.Transport.RoundTrip(r)
}

func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &door{}
		child := &spy{Remote: far(t, &backendtest.Standin{Model: "child"})}
		s, f := box(t, child, d)
		chat := `{"id_slot":3,"n_discard":-1,"messages":[{"role":"user","content":"hello"}]`
		for _, c := range []struct {
			name, method, path, body string
			status                   int
			want                     string
		}{
			{"the first of a role", "POST", "/v1/chat/completions", chat + `}`, 200, `"model":"small"`},
			{"by name", "POST", "/v1/chat/completions", chat + `,"model":"small"}`, 200, `"model":"small"`},
			{"streamed", "POST", "/v1/chat/completions", chat + `,"stream":true}`, 200, "data: [DONE]"},
			{"unknown", "POST", "/v1/chat/completions", chat + `,"model":"gpt-5"}`, 404, "model_not_found"},
			{"none of the role", "POST", "/v1/rerank", `{"query":"q","documents":["d"]}`, 404, "model_not_found"},
			{"not allowed", "POST", "/v1/chat/completions", chat + `,"model":"broken"}`, 403, "refused"},
			{"nobody", "POST", "/v1/chat/completions?anonymous=1", chat + `}`, 401, "refused"},
			{"health", "GET", "/health?anonymous=1", "", 200, `{"status":"ok"}`},
			{"list", "GET", "/v1/models", "", 200, `"context_length":99`},
			{"one", "GET", "/v1/models/small", "", 200, `"state":"ready"`},
			{"one that is hidden", "GET", "/v1/models/broken", "", 404, "model_not_found"},
			{"tokenize", "POST", "/tokenize", `{"content":"hello","id_slot":1}`, 200, "tokens"},
			{"slots", "GET", "/slots", "", 404, "unknown_path"},
			{"a slot", "POST", "/slots/0?action=save", "{}", 404, "unknown_path"},
			{"metrics", "GET", "/metrics", "", 200, `onebit_model_state{device="cpu",model="small",state="ready"} 1`},
		} {
			got := s.do(t.Context(), c.method, c.path, c.body)
			if got.status != c.status || !strings.Contains(got.body, c.want) {
				t.Errorf("%s: %d %s", c.name, got.status, got.body)
			}
			if strings.Contains(got.body, "broken") && c.path == "/v1/models" {
				t.Errorf("%s: a hidden model is shown: %s", c.name, got.body)
			}
		}
		if seen := child.seen.String(); !strings.Contains(seen, "hello") || strings.Contains(seen, "id_slot") || strings.Contains(seen, "n_discard") {
			t.Errorf("the backend saw %s", seen)
		}
		if f.out != 0 {
			t.Errorf("%d models were not given back", f.out)
		}
		var models, statuses []string
		for _, o := range d.outcomes {
			models = append(models, o.Endpoint+" "+o.Model)
			statuses = append(statuses, http.StatusText(o.Status))
		}
		if len(d.outcomes) != 4 || d.outcomes[0].Usage.Completion == 0 || !strings.Contains(string(d.outcomes[0].Answer), `"model":"small"`) || !strings.Contains(string(d.outcomes[0].Request), "hello") {
			t.Errorf("outcomes %v %v", models, statuses)
		}
	})
}

// TestRevoked cuts a stream when the permission ends, with an error event that says so.
func TestRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut context.CancelCauseFunc
		d := &door{revoke: func(c context.CancelCauseFunc) { cut = c }}
		s, f := box(t, &scripted{state: engine.Ready, generate: func(ctx context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
			if err := emit(engine.Chunk{Raw: []byte(`{"model":"child","choices":[]}`)}); err != nil {
				return engine.Usage{}, err
			}
			<-ctx.Done()
			return engine.Usage{}, context.Cause(ctx)
		}}, d)
		done := make(chan answer)
		go func() {
			done <- s.do(t.Context(), "POST", "/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"stall"}]}`)
		}()
		synctest.Wait()
		cut(refused{http.StatusUnauthorized})
		got := <-done
		if !strings.Contains(got.body, "refused") {
			t.Errorf("got %d %q %v", got.status, got.body, got.err)
		}
		synctest.Wait()
		if f.out != 0 || len(d.outcomes) != 1 {
			t.Errorf("%d models out, outcomes %v", f.out, d.outcomes)
		}
		if err := d.outcomes[0].Err; !errors.Is(err, refused{http.StatusUnauthorized}) {
			t.Errorf("the outcome's error is %v", err)
		}
	})
}

// TestStreamsAreCounted counts the tokens of streams whose client did not ask for that, and shows it nothing new.
func TestStreamsAreCounted(t *testing.T) {
	last := map[engine.Device]string{
		engine.CPU:  `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"timings":{"cache_n":2,"prompt_n":3,"predicted_n":4}}`,
		engine.Zinc: `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":4}}`,
	}
	for device, chunk := range last {
		synctest.Test(t, func(t *testing.T) {
			d := &door{}
			s, f := box(t, &scripted{state: engine.Ready, generate: func(_ context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
				if err := emit(engine.Chunk{Raw: []byte(chunk)}); err != nil {
					return engine.Usage{}, err
				}
				if device == engine.Zinc {
					return engine.Usage{Prompt: 5, Completion: 4}, nil
				}
				return engine.Usage{}, nil
			}}, d)
			f.device = device
			got := s.do(t.Context(), "POST", "/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"hi"}]}`)
			if strings.Contains(got.body, `"choices":[]`) || !strings.Contains(got.body, "[DONE]") {
				t.Errorf("%s: %s", device, got.body)
			}
			if u := d.outcomes[0].Usage; u.Prompt != 5 || u.Completion != 4 {
				t.Errorf("%s: counted %+v", device, u)
			}
		})
	}
}

// TestLogQuotesNobody sends mistakes whose words must not be in the log.
func TestLogQuotesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &door{}
		s, _ := box(t, &scripted{state: engine.Ready, generate: func(context.Context, int, func(engine.Chunk) error) (engine.Usage, error) {
			return engine.Usage{}, &engine.StatusError{Status: 400, Body: []byte(`{"error":{"message":"cannot parse canary"}}`)}
		}}, d)
		for _, body := range []string{
			`{"messages":[{"role":"canary","content":"x"}]}`,
			`{"messages":"canary`,
			`{"model":"canary","messages":[{"role":"user","content":"x"}]}`,
			`{"messages":[{"role":"user","content":"canary"}]}`,
			`{"max_tokens":"canary","messages":[{"role":"user","content":"x"}]}`,
		} {
			if got := s.do(t.Context(), "POST", "/v1/chat/completions", body); got.status < 400 {
				t.Errorf("%s: %d", body, got.status)
			}
		}
		if log := s.log.String(); strings.Contains(log, "canary") || strings.Count(log, "error=") != 5 {
			t.Errorf("the log is %s", log)
		}
		for _, o := range d.outcomes {
			if o.Reason == "" || strings.Contains(o.Reason, "canary") {
				t.Errorf("the reason is %q", o.Reason)
			}
		}
	})
}

// scoped lets everybody in who may know of some models only.
type scoped struct {
	door
	may string
}

func (d *scoped) Sees(_ context.Context, model string) bool { return model == d.may }

func (d *scoped) Scope(context.Context) string { return "its key" }

// two is a fleet of two chat models.
type two struct{ fleet }

func (*two) List() []gateway.Listed { return []gateway.Listed{{Name: "first"}, {Name: "second"}} }

func (*two) Resolve(role gateway.Role, name string) (string, error) {
	switch name {
	case "":
		return "first", nil
	case "first", "second":
		return name, nil
	}
	return "", &gateway.NoModelError{Name: name, Role: role, Known: []string{"first", "second"}}
}

// TestScopeHidesModels holds that a key's client gets the first model that it may use, and no word of the others, and
// that what fails inside is told to the log and not to it.
func TestScopeHidesModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{state: engine.Ready, generate: func(context.Context, int, func(engine.Chunk) error) (engine.Usage, error) {
			return engine.Usage{}, errors.New("open /home/anna/secret: permission denied")
		}}
		log := &logbook{}
		g, err := gateway.New(gateway.Config{
			Fleet: &two{fleet{models: map[string]engine.Backend{"first": b, "second": b}}}, Door: &scoped{may: "second"},
			Limits: config.Defaults(), Log: slog.New(slog.NewTextHandler(log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		network := backendtest.NewNetwork()
		stop := network.Serve(g)
		transport := &letIn{&http.Transport{DialContext: network.Dial}}
		t.Cleanup(func() {
			transport.CloseIdleConnections()
			stop()
		})
		s := &served{t: t, client: &http.Client{Transport: transport}, log: log}
		unknown := s.do(t.Context(), "POST", "/v1/chat/completions", `{"model":"x","messages":[{"role":"user","content":"hi"}]}`)
		if unknown.status != 404 || strings.Contains(unknown.body, "first") || !strings.Contains(unknown.body, "second") {
			t.Errorf("an unknown model: %d %s", unknown.status, unknown.body)
		}
		inside := s.do(t.Context(), "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`)
		if inside.status != 500 || strings.Contains(inside.body, "/home") || !strings.Contains(log.String(), "/home/anna") {
			t.Errorf("a failure inside: %d %s\n%s", inside.status, inside.body, log)
		}
		if b.tries != 1 {
			t.Error("the backend was not asked")
		}
	})
}
