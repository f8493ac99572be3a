package gateway_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/engine"
	"onebit/engine/backendtest"
	"onebit/extensions"
	"onebit/extensions/abi"
)

// decider decides what it is told to, and keeps what it was asked.
type decider struct {
	outcome extensions.Outcome
	decides bool
	asked   []extensions.Input
	settled []extensions.Served
}

func (d *decider) Decides() bool { return d.decides }

func (d *decider) Decide(_ context.Context, in extensions.Input) extensions.Outcome {
	d.asked = append(d.asked, in)
	return d.outcome
}

func (d *decider) Settle(_ context.Context, o extensions.Outcome, s extensions.Served) {
	d.settled = append(d.settled, s)
}

// choice is a fleet of two chat models that work, and others.
type choice struct {
	fleet
	hide string
}

func (f *choice) List() []gateway.Listed {
	all := []gateway.Listed{
		{Name: "small", Device: engine.CPU, State: "loaded", Info: engine.Info{Context: 99}, Backend: f.models["small"]},
		{Name: "large", Device: engine.HRX, State: "unloaded", Waiting: 3},
		{Name: "failed", Device: engine.Vulkan, State: "failed", Failed: true},
		{Name: "broken", Device: engine.Vulkan},
		{Name: "vectors", Role: gateway.Embedding},
	}
	if f.hide != "" {
		return all[:1]
	}
	return all
}

// deciding puts a gateway that asks d before two models.
func deciding(t *testing.T, d *decider, f *choice) (*served, *door, *spy) {
	t.Helper()
	child := &spy{Remote: far(t, &backendtest.Standin{Model: "child"})}
	f.models = map[string]engine.Backend{"small": child, "large": child, "vectors": child}
	log, at := &logbook{}, &door{}
	g, err := gateway.New(gateway.Config{Fleet: f, Door: at, Decider: d, Limits: config.Defaults(), Log: slog.New(slog.NewTextHandler(log, nil))})
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
	return &served{t: t, client: &http.Client{Transport: transport}, log: log}, at, child
}

// TestDecides: a request that names no model, or auto, is decided about; the others are not.
func TestDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{outcome: extensions.Outcome{
			Candidate: "large", Class: "code", Confidence: 0.876, Why: "module=m@12345678; rule", Headers: map[string]string{"x-laya-rule": "7"},
			Params: map[string]json.RawMessage{"temperature": json.RawMessage("0.5"), "max_tokens": json.RawMessage("20")},
		}}
		s, at, child := deciding(t, d, &choice{})
		const chat = `{"session_id":"s1","messages":[{"role":"user","content":"hello"}]`
		for name, tt := range map[string]struct {
			path, body string
			model      string // that serves
			asked      bool
			sent       string // to the backend
		}{
			"auto":               {"/v1/chat/completions", chat + `,"model":"auto"}`, "large", true, `"model":"large","max_tokens":20,"temperature":0.5}`},
			"none":               {"/v1/chat/completions", chat + `,"temperature":1}`, "large", true, `"temperature":0.5,"max_tokens":20}`},
			"by name":            {"/v1/chat/completions", chat + `,"model":"small"}`, "small", false, `"model":"small"}`},
			"streamed":           {"/v1/chat/completions", chat + `,"model":"auto","stream":true,"max_completion_tokens":30}`, "large", true, `"max_completion_tokens":20`},
			"a completion":       {"/v1/completions", `{"model":"auto","prompt":"hello"}`, "large", true, `"model":"large"`},
			"vectors":            {"/v1/embeddings", `{"model":"auto","input":"hello"}`, "vectors", false, ``},
			"llama-server's own": {"/completion", `{"model":"auto","prompt":"hello"}`, "small", false, ``},
		} {
			before, asked := len(child.seen.String()), len(d.asked)
			got := s.do(t.Context(), "POST", tt.path, tt.body)
			synctest.Wait()
			served := at.outcomes[len(at.outcomes)-1].Model
			if ok := got.status == 200 || got.status == 501 && !tt.asked; !ok || served != tt.model { // the stand-in has no vectors
				t.Errorf("%s: %d %s, by %s", name, got.status, got.body, served)
			}
			if len(d.asked) > asked != tt.asked {
				t.Errorf("%s: asked is %v", name, !tt.asked)
			}
			if sent := child.seen.String()[before:]; !strings.Contains(sent, tt.sent) || strings.Contains(sent, "session_id") {
				t.Errorf("%s: the backend got %s", name, sent)
			}
			h := got.header
			if tt.asked && (h.Get("X-1bit-Route") != "code 0.88 cpu" || h.Get("X-1bit-Route-Why") != "module=m@12345678; rule" || h.Get("X-Laya-Rule") != "7") {
				t.Errorf("%s: %v", name, h)
			}
			if !tt.asked && (h.Get("X-1bit-Route") != "" || h.Get("X-1bit-Route-Why") != "") {
				t.Errorf("%s: %v", name, h)
			}
		}
		got := d.asked[0]
		if !strings.Contains(string(got.Body), "hello") || got.ID == "" || got.Model != "auto" {
			t.Errorf("%+v", got)
		}
		want := []abi.Candidate{ // broken is none that this client may know of
			{ID: "small", Backend: "cpu", Device: "cpu", Model: "small", Context: 99, Healthy: true},
			{ID: "large", Backend: "hrx", Device: "hrx", Model: "large", Healthy: true, Queue: 3},
			{ID: "failed", Backend: "vulkan", Device: "vulkan", Model: "failed"},
		}
		if diff := cmp.Diff(want, got.Candidates); diff != "" {
			t.Error(diff)
		}
	})
}

// TestTurnsAway: a module's refusal is our error object, counted like any request.
func TestTurnsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{outcome: extensions.Outcome{Candidate: "small", Why: "module=guard@12345678", Refusal: &extensions.Refusal{Status: 403, Code: "blocked", Message: "not here"}}}
		s, at, child := deciding(t, d, &choice{})
		got := s.do(t.Context(), "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"stream":true}`)
		e := refusal(t, got.body)
		if got.status != 403 || *e.Code != "blocked" || e.Message != "not here" || got.header.Get("X-1bit-Route-Why") == "" || child.seen.String() != "" {
			t.Errorf("%d %s %v", got.status, got.body, got.header)
		}
		d.outcome.Refusal = &extensions.Refusal{Status: 503, Code: "extension_failed", Message: "later"}
		got = s.do(t.Context(), "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
		if got.status != 503 || *refusal(t, got.body).Code != "extension_failed" {
			t.Errorf("%d %s", got.status, got.body)
		}
		synctest.Wait()
		if len(at.outcomes) != 2 || at.outcomes[0].Status != 403 || at.outcomes[0].Reason != "blocked" {
			t.Errorf("%+v", at.outcomes)
		}
	})
}

// TestListsAuto: the list of models shows auto where there is something to choose.
func TestListsAuto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			decider *decider
			fleet   *choice
			want    bool
		}{
			"two models":             {&decider{}, &choice{}, true},
			"one model":              {&decider{}, &choice{hide: "the others"}, false},
			"one model and a module": {&decider{decides: true}, &choice{hide: "the others"}, true},
		} {
			s, _, _ := deciding(t, tt.decider, tt.fleet)
			list, one := s.do(t.Context(), "GET", "/v1/models", ""), s.do(t.Context(), "GET", "/v1/models/auto", "")
			if strings.Contains(list.body, `"id":"auto"`) != tt.want || (one.status == 200) != tt.want {
				t.Errorf("%s: %s, %d", name, list.body, one.status)
			}
		}
	})
}
