package gateway_test

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/engine"
	"onebit/engine/backendtest"
	"onebit/extensions"
)

// toDevice is a decider that says a class and a device, and keeps what it was offered.
type toDevice struct {
	o   extensions.Outcome
	in  extensions.Input
	log []extensions.Input

	settled []string
}

func (d *toDevice) Decides() bool { return true }

func (d *toDevice) Decide(_ context.Context, in extensions.Input) extensions.Outcome {
	d.in = in
	d.log = append(d.log, in)
	return d.o
}

func (d *toDevice) Settle(_ context.Context, _ extensions.Outcome, s extensions.Served) {
	d.settled = append(d.settled, s.Candidate)
}

// classes is a gateway over three backends: zinc, hrx and cpu.
func classes(t *testing.T, d gateway.Decider, hrx engine.Backend) *served {
	t.Helper()
	model := func(device engine.Device, b engine.Backend) gateway.Model {
		return gateway.Model{Name: "served", Device: device, Created: time.Unix(7, 0), Backend: b}
	}
	log := &logbook{}
	g, err := gateway.New(gateway.Config{
		Model: model(engine.Zinc, &scripted{name: "zinc", state: engine.Ready, generate: whole}), Mode: gateway.Classified, Decider: d,
		Others: []gateway.Model{model(engine.HRX, hrx), model(engine.CPU, &scripted{name: "cpu", state: engine.Ready, generate: whole})},
		Limits: config.Defaults(), Log: slog.New(slog.NewTextHandler(log, nil)),
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

func TestClassified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &toDevice{o: extensions.Outcome{Candidate: "hrx", Class: "code", Confidence: 0.8, Why: "module=policy@12345678; class to hrx"}}
		s := classes(t, d, &scripted{name: "hrx", state: engine.Ready, generate: whole})
		a := s.do(t.Context(), "POST", "/v1/chat/completions", `{"model":"any","messages":[{"role":"user","content":"x"}]}`)
		if a.status != 200 || a.header.Get("X-1bit-Route") != "code 0.80 hrx" || a.header.Get("X-1bit-Route-Why") != d.o.Why || !strings.Contains(a.body, `"served"`) {
			t.Errorf("%d %v %s", a.status, a.header, a.body)
		}
		if len(d.in.Candidates) != 3 || d.in.Candidates[0].ID != "zinc" || !d.in.Candidates[1].Healthy || d.in.API != "chat" || d.in.Model != "any" {
			t.Errorf("offered %+v", d.in)
		}
		if n := strings.Count(s.log.String(), "chose a backend"); n != 1 {
			t.Errorf("%d lines: %s", n, s.log)
		}
		d.o.Kept = true
		s.do(t.Context(), "POST", "/v1/completions", `{"prompt":"x"}`)
		if n := strings.Count(s.log.String(), "chose a backend"); n != 1 || d.in.API != "completion" {
			t.Errorf("%d lines, %s", n, d.in.API)
		}
		t.Log("Responses go only where they are")
		s.do(t.Context(), "POST", "/v1/responses", `{"input":"x"}`)
		if len(d.in.Candidates) != 2 || d.in.Candidates[0].ID != "hrx" {
			t.Errorf("offered %+v", d.in.Candidates)
		}
		t.Log("nobody said a class, and an unknown candidate is the first")
		d.o = extensions.Outcome{Candidate: "elsewhere", Why: "default"}
		if a := s.chat("", false); a.header.Get("X-1bit-Route") != "none 0.00 zinc" {
			t.Errorf("%v", a.header)
		}
		t.Log("a module turns a client away")
		d.o = extensions.Outcome{Refusal: &extensions.Refusal{Status: 403, Code: "no", Message: "not here"}}
		if a := s.chat("", false); a.status != 403 || a.header.Get("X-1bit-Route") != "" {
			t.Errorf("%d %v", a.status, a.header)
		}
		asked := len(d.log)
		t.Log("what has nothing to be classified, and what is no JSON, asks nobody")
		for _, path := range []string{"/v1/embeddings", "/v1/models", "/health"} {
			s.do(t.Context(), "POST", path, `{"input":"x"}`)
		}
		if a := s.do(t.Context(), "POST", "/v1/chat/completions", `{`); a.status != 400 || len(d.log) != asked {
			t.Errorf("%d, asked %d times", a.status, len(d.log)-asked)
		}
		if a := s.do(t.Context(), "GET", "/v1/models", ""); strings.Count(a.body, `"id"`) != 1 || !strings.Contains(a.body, `"device":"laya"`) {
			t.Errorf("%s", a.body)
		}
	})
}

// TestClassifiedStart: a backend that does not come up is a 503 that names it, without a route.
func TestClassifiedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &toDevice{o: extensions.Outcome{Candidate: "hrx", Class: "code"}}
		b := &scripted{name: "hrx", state: engine.Ready, generate: whole, ready: func(context.Context) error {
			return &engine.UnavailableError{Reason: "hrx did not become ready", RetryAfter: time.Second}
		}}
		s := classes(t, d, b)
		if a := s.chat("", true); a.status != 503 || refusal(t, a.body).Message != "hrx did not become ready" || a.header.Get("X-1bit-Route") != "" {
			t.Errorf("%d %v %s", a.status, a.header, a.body)
		}
		b.state = engine.Down
		s.chat("", false)
		if d.in.Candidates[1].Healthy || !d.in.Candidates[2].Healthy {
			t.Errorf("offered %+v", d.in.Candidates)
		}
		if a := s.do(t.Context(), "GET", "/health", ""); a.status != 200 || !strings.Contains(a.body, "degraded") {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// TestClassifiedFailover: while a backend cannot have a request and nothing was answered, the next of the policy's order is tried.
func TestClassifiedFailover(t *testing.T) {
	down := func(context.Context) error {
		return &engine.UnavailableError{Reason: "hrx did not become ready", RetryAfter: time.Second}
	}
	fails := func(err error) func(context.Context, int, func(engine.Chunk) error) (engine.Usage, error) {
		return func(context.Context, int, func(engine.Chunk) error) (engine.Usage, error) { return engine.Usage{}, err }
	}
	for name, tt := range map[string]struct {
		ranked []string
		hrx    *scripted
		path   string
		body   string

		status  int
		route   string
		why     string
		settled string
	}{
		"all is well":       {ranked: []string{"hrx", "cpu"}, hrx: &scripted{generate: whole}, status: 200, route: "code 0.80 hrx", why: "m", settled: "hrx"},
		"it does not start": {ranked: []string{"hrx", "cpu", "zinc"}, hrx: &scripted{ready: down}, status: 200, route: "code 0.80 cpu", why: "m; failover=cpu", settled: "cpu"},
		"a message":         {ranked: []string{"hrx", "cpu"}, hrx: &scripted{ready: down}, path: "/v1/messages", status: 200, route: "code 0.80 cpu", why: "m; failover=cpu", settled: "cpu"},
		"it is lost twice":  {ranked: []string{"hrx", "cpu"}, hrx: &scripted{generate: fails(engine.ErrLost)}, status: 200, route: "code 0.80 cpu", why: "m; failover=cpu", settled: "cpu"},
		"its own fault": {ranked: []string{"hrx", "cpu"}, hrx: &scripted{generate: fails(&engine.StatusError{Status: 400, Body: []byte(`{"error":"no"}`)})}, status: 400,
			route: "code 0.80 hrx", why: "m"},
		"nobody else":            {ranked: []string{"hrx"}, hrx: &scripted{ready: down}, status: 503, why: "m"},
		"nobody of that name":    {ranked: []string{"hrx", "npu"}, hrx: &scripted{ready: down}, status: 503, why: "m"},
		"not where it cannot be": {ranked: []string{"hrx", "zinc", "cpu"}, hrx: &scripted{ready: down}, path: "/v1/responses", body: `{"input":"x"}`, status: 200, route: "code 0.80 cpu", why: "m; failover=cpu", settled: "cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &toDevice{o: extensions.Outcome{Candidate: tt.ranked[0], Ranked: tt.ranked, Class: "code", Confidence: 0.8, Why: "m"}}
				tt.hrx.name, tt.hrx.state = "hrx", engine.Ready
				s := classes(t, d, tt.hrx)
				a := s.do(t.Context(), "POST", cmp.Or(tt.path, "/v1/chat/completions"), cmp.Or(tt.body, `{"model":"any","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`))
				if a.status != tt.status || a.header.Get("X-1bit-Route") != tt.route || a.header.Get("X-1bit-Route-Why") != tt.why {
					t.Errorf("%d %q %q %s", a.status, a.header.Get("X-1bit-Route"), a.header.Get("X-1bit-Route-Why"), a.body)
				}
				if tt.status == 503 && refusal(t, a.body).Message != "hrx did not become ready" {
					t.Errorf("%s", a.body)
				}
				if got := strings.Join(d.settled, " "); got != tt.settled {
					t.Errorf("settled at %q", got)
				}
			})
		})
	}
}

func TestClassifiedNeedsADecider(t *testing.T) {
	_, err := gateway.New(gateway.Config{Mode: gateway.Classified, Model: gateway.Model{Name: "m", Backend: &scripted{}}, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		t.Error("it is taken")
	}
}
