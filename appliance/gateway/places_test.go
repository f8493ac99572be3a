package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/engine"
	"onebit/engine/backendtest"
	"onebit/engine/wire"
	"onebit/extensions"
)

// several is a fleet whose models are had or not as a test says.
type several struct {
	fleet
	names  []string
	refuse map[string]error                     // by model
	wait   map[string]func(ctx context.Context) // before a model is had
	order  []string                             // in which they were asked for
}

func (f *several) Acquire(ctx context.Context, w gateway.Wish) (gateway.Hold, error) {
	f.order = append(f.order, w.Model)
	if wait := f.wait[w.Model]; wait != nil {
		wait(ctx)
	}
	if ctx.Err() != nil {
		return gateway.Hold{}, context.Cause(ctx)
	}
	if err := f.refuse[w.Model]; err != nil {
		return gateway.Hold{}, err
	}
	return f.fleet.Acquire(ctx, w)
}

func (f *several) List() []gateway.Listed {
	var all []gateway.Listed
	for _, n := range f.names {
		all = append(all, gateway.Listed{Name: n, Device: engine.CPU, Backend: f.models[n], Load: 0.5, Wait: 3 * time.Second})
	}
	return all
}

// answering is a backend that answers as the model that is asked for, unless it fails first.
func answering(name string, fail error, after bool) engine.Backend {
	return &scripted{state: engine.Ready, generate: func(_ context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
		if fail != nil && !after {
			return engine.Usage{}, fail
		}
		chunk := fmt.Sprintf(`{"model":"x","choices":[{"index":0,"message":{"role":"assistant","content":"I am %s"}}],"timings":{"prompt_n":100,"prompt_ms":50,"predicted_n":20,"predicted_ms":400}}`, name)
		if err := emit(engine.Chunk{Raw: []byte(chunk)}); err != nil {
			return engine.Usage{}, err
		}
		return engine.Usage{Prompt: 100, Completion: 20}, fail
	}}
}

// spread puts a gateway before three models.
func spread(t *testing.T, d *decider, f *several) (*served, *door) {
	t.Helper()
	f.names = []string{"a", "b", "c", "d"}
	f.models = map[string]engine.Backend{}
	for _, n := range f.names {
		f.models[n] = answering(n, nil, false)
	}
	log, at := &logbook{}, &door{}
	g, err := gateway.New(gateway.Config{Fleet: f, Door: at, Decider: d, Limits: config.Defaults(), Log: slog.New(slog.NewTextHandler(log, nil)),
		Expect: func(req *engine.Request) func(string) int {
			return func(model string) int { return len(model) + len(req.Scope) }
		}})
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
	return &served{t: t, client: &http.Client{Transport: transport}, log: log}, at
}

// TestFailover: while its place cannot have a request and nothing was answered, the next ones of its order are tried.
func TestFailover(t *testing.T) {
	down := &engine.UnavailableError{Reason: "a does not run", RetryAfter: time.Second}
	full := &wire.Error{Status: 507, Type: wire.TypeUnavailable, Code: "not_enough_memory", Message: "no memory"}
	for name, tt := range map[string]struct {
		ranked  []string
		refuse  map[string]error
		fail    map[string]error // of the backend
		after   bool             // a piece of the answer has come
		patient time.Duration
		wait    map[string]func(ctx context.Context)
		body    string

		status  int
		by      string // that has answered
		tried   string
		why     string
		settled string
	}{
		"all is well":        {ranked: []string{"a", "b"}, status: 200, by: "a", tried: "a", why: "m", settled: "a"},
		"it does not load":   {ranked: []string{"a", "b"}, refuse: map[string]error{"a": down}, status: 200, by: "b", tried: "a b", why: "m; failover=b", settled: "b"},
		"there is no memory": {ranked: []string{"a", "b"}, refuse: map[string]error{"a": full}, status: 200, by: "b", tried: "a b", why: "m; failover=b", settled: "b"},
		"its load takes too long": {ranked: []string{"a", "b"}, refuse: map[string]error{"a": &engine.TimeoutError{Timer: "load"}}, status: 200, by: "b", tried: "a b",
			why: "m; failover=b", settled: "b"},
		"it is lost twice":  {ranked: []string{"a", "b"}, fail: map[string]error{"a": engine.ErrLost}, status: 200, by: "b", tried: "a b", why: "m; failover=b", settled: "b"},
		"it kills them all": {ranked: []string{"a", "b", "c"}, fail: map[string]error{"a": engine.ErrLost, "b": engine.ErrLost}, status: 502, tried: "a b", why: "m; failover=b"},
		"it goes away":      {ranked: []string{"a", "b"}, fail: map[string]error{"a": down}, status: 200, by: "b", tried: "a b", why: "m; failover=b", settled: "b"},
		"the third": {ranked: []string{"a", "b", "c", "d"}, refuse: map[string]error{"a": down, "b": full}, status: 200, by: "c", tried: "a b c",
			why: "m; failover=c", settled: "c"},
		"no more than three": {ranked: []string{"a", "b", "c", "d"}, refuse: map[string]error{"a": down, "b": full, "c": down}, status: 503, tried: "a b c", why: "m"},
		"nobody else":        {ranked: []string{"a"}, refuse: map[string]error{"a": full}, status: 507, tried: "a", why: "m"},
		"its own fault":      {ranked: []string{"a", "b"}, fail: map[string]error{"a": &engine.StatusError{Status: 400, Body: []byte(`{"error":"no"}`)}}, status: 400, tried: "a", why: "m"},
		"a limit of its own": {ranked: []string{"a", "b"}, refuse: map[string]error{"a": &wire.Error{Status: 429, Type: "rate_limit_error", Code: "queue_full", Message: "you"}}, status: 429,
			tried: "a", why: "m"},
		"an answer has begun": {ranked: []string{"a", "b"}, fail: map[string]error{"a": engine.ErrLost}, after: true, body: `,"stream":true`, status: 200, by: "a", tried: "a",
			why: "m", settled: "a"},
		"a stream that has not": {ranked: []string{"a", "b"}, fail: map[string]error{"a": engine.ErrLost}, body: `,"stream":true`, status: 200, by: "b", tried: "a b",
			why: "m; failover=b", settled: "b"},
		"by name": {ranked: []string{"a", "b"}, refuse: map[string]error{"a": down}, body: `,"model":"a"`, status: 503, tried: "a"},
		"too long a wait": {ranked: []string{"a", "b"}, patient: 4 * time.Second, wait: map[string]func(context.Context){"a": func(ctx context.Context) { <-ctx.Done() }}, status: 200, by: "b",
			tried: "a b", why: "m; failover=b", settled: "b"},
		"a wait that is worth it": {ranked: []string{"a", "b"}, patient: 4 * time.Second, wait: map[string]func(context.Context){"a": func(context.Context) { time.Sleep(3 * time.Second) }},
			status: 200, by: "a", tried: "a", why: "m", settled: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &decider{outcome: extensions.Outcome{Candidate: tt.ranked[0], Ranked: tt.ranked, Patience: tt.patient, Class: "code", Confidence: 0.5, Why: "m"}}
				f := &several{refuse: tt.refuse, wait: tt.wait}
				s, at := spread(t, d, f)
				for n, err := range tt.fail {
					f.models[n] = answering(n, err, tt.after)
				}
				got := s.do(t.Context(), "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]`+tt.body+`}`)
				synctest.Wait()
				if got.status != tt.status || tt.by != "" && (!strings.Contains(got.body, "I am "+tt.by) || strings.Count(got.body, "I am ") != 1) {
					t.Errorf("%d %s", got.status, got.body)
				}
				if tried := strings.Join(f.order, " "); tried != tt.tried || got.header.Get("X-1bit-Route-Why") != tt.why || f.out != 0 {
					t.Errorf("tried %q, says %q, %d are held", tried, got.header.Get("X-1bit-Route-Why"), f.out)
				}
				var settled []string
				for _, one := range d.settled {
					settled = append(settled, one.Candidate)
					if one.Tokens != 120 {
						t.Errorf("%+v", one)
					}
				}
				if strings.Join(settled, " ") != tt.settled {
					t.Errorf("settled at %q", settled)
				}
				if o := at.outcomes[0]; tt.by != "" && o.Model != tt.by || len(at.outcomes) != 1 {
					t.Errorf("%d outcomes, of %s", len(at.outcomes), o.Model)
				}
			})
		})
	}
}

// TestImpatient: who gave up a place for another that cannot have it either comes back.
func TestImpatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{outcome: extensions.Outcome{Candidate: "a", Ranked: []string{"a", "b"}, Patience: time.Second, Why: "m"}}
		tries := 0
		f := &several{refuse: map[string]error{"b": &engine.UnavailableError{Reason: "down"}}, wait: map[string]func(context.Context){"a": func(ctx context.Context) {
			if tries++; tries == 1 {
				<-ctx.Done()
			}
		}}}
		s, _ := spread(t, d, f)
		got := s.do(t.Context(), "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`)
		if got.status != 200 || strings.Join(f.order, " ") != "a b a" || !strings.Contains(got.body, "I am a") {
			t.Errorf("%d %s, tried %v", got.status, got.body, f.order)
		}
	})
}

// TestOffer: what is known of the models reaches who decides: how fast they were, how busy they are, what they have.
func TestOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{outcome: extensions.Outcome{Candidate: "a", Ranked: []string{"a"}, Why: "m"}}
		f := &several{}
		s, _ := spread(t, d, f)
		for range 2 {
			if got := s.do(t.Context(), "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`); got.status != 200 {
				t.Fatal(got.body)
			}
		}
		synctest.Wait()
		first, then := d.asked[0], d.asked[1]
		if c := first.Candidates[0]; c.PromptS != 0 || c.DecodeS != 0 || c.Load != 0.5 {
			t.Errorf("%+v", c)
		}
		if c := then.Candidates[0]; c.PromptS != 2000 || c.DecodeS != 50 {
			t.Errorf("%+v", c)
		}
		if c := then.Candidates[1]; c.PromptS != 0 {
			t.Errorf("%+v", c)
		}
		if diff := cmp.Diff([]string{"a", "b", "c", "d"}, then.Free); diff != "" || then.Wait("b") != 3*time.Second || then.Expect("abc") != 3+len("its key") {
			t.Errorf("%s; %v, %d", diff, then.Wait("b"), then.Expect("abc"))
		}
	})
}

// TestRates: a stream of a server that says nothing is measured by its pieces.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{outcome: extensions.Outcome{Candidate: "a", Ranked: []string{"a"}, Why: "m"}}
		f := &several{}
		s, _ := spread(t, d, f)
		f.models["a"] = &scripted{state: engine.Ready, generate: func(_ context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
			time.Sleep(time.Second) // 400 tokens of the prompt, of which 300 are reused
			for range 21 {
				if err := emit(engine.Chunk{Raw: []byte(`{"choices":[{"index":0,"delta":{"content":"x"}}]}`)}); err != nil {
					return engine.Usage{}, err
				}
				time.Sleep(100 * time.Millisecond)
			}
			return engine.Usage{Prompt: 400, Cached: 300, Completion: 22}, nil
		}}
		for range 2 {
			s.do(t.Context(), "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"stream":true}`)
		}
		if c := d.asked[1].Candidates[0]; c.PromptS != 100 || c.DecodeS != 10 {
			t.Errorf("%+v", c)
		}
	})
}
