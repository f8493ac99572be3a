package extensions_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"onebit/extensions"
	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/payload"
	"onebit/extensions/policy"
)

// ours is the job of the built-in policy, and a runner whose processes cannot start.
func ours(t *testing.T, config string) (extensions.Processes, extensions.Job) {
	t.Helper()
	b, err := policy.Module()
	if errors.Is(err, policy.ErrMissing) {
		t.Skip(err)
	}
	m, merr := payload.ReadManifest(policy.Manifest())
	if err := errors.Join(err, merr); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	return extensions.Processes{Program: []string{"/there/is/no/such/program"}, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)},
		extensions.Job{SHA256: hex.EncodeToString(sum[:]), Manifest: m, Limits: m.Kind.Limits(), Setup: host.Setup{Config: []byte(config)}}
}

const asked = `{"v":1,"class":"code","confidence":0.5,"candidates":[{"id":"a","device":"cpu","healthy":true},{"id":"b","device":"zinc","healthy":true}]}`

// TestOwnPolicyRunsHere: the built-in policy needs no process, and keeps to what a module keeps to.
func TestOwnPolicyRunsHere(t *testing.T) {
	run, job := ours(t, `{"classes": {"code": {"device": "zinc"}}}`)
	w, err := run.Start(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r, err := w.Call(t.Context(), host.Call{Function: abi.Route, Request: []byte(asked)})
	if err != nil || !strings.Contains(string(r.Answer), `["b","a"],"reason":"class to zinc"`) || r.Units == 0 || r.Pages == 0 || w.Gone() {
		t.Fatalf("%s, %+v, %v", r.Answer, r, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		call host.Call
		want error
		kind host.Cause
	}{
		{"another function", t.Context(), host.Call{Function: abi.Classify, Request: []byte(asked)}, nil, ""},
		{"too long", t.Context(), host.Call{Function: abi.Route, Request: make([]byte, abi.MaxRequest+1)}, nil, ""},
		{"nothing", t.Context(), host.Call{Function: abi.Route}, nil, host.CauseAnswer},
		{"too late", t.Context(), host.Call{Function: abi.Route, Request: []byte(asked), Deadline: time.Now().Add(-time.Second)}, extensions.ErrWaited, host.CauseTimeout},
		{"nobody waits", gone, host.Call{Function: abi.Route, Request: []byte(asked)}, context.Canceled, ""},
	} {
		_, err := w.Call(tt.ctx, tt.call)
		failed, ok := errors.AsType[*host.CallError](err)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) || ok != (tt.kind != "") || ok && failed.Cause != tt.kind {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if r, err := w.Call(t.Context(), host.Call{Function: abi.Route, Request: []byte("no request")}); err != nil || len(r.Answer) > 0 {
		t.Errorf("what is no request: %q, %v", r.Answer, err)
	}
}

// TestOwnPolicyHasLimits: its units end it, and a wrong configuration is refused as the module refuses it.
func TestOwnPolicyHasLimits(t *testing.T) {
	run, job := ours(t, `{"classes": {"code": {"device": "zinc"}}}`)
	job.Limits.Units = 100
	w, err := run.Start(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Call(t.Context(), host.Call{Function: abi.Route, Request: []byte(asked)})
	if failed, ok := errors.AsType[*host.CallError](err); !ok || failed.Cause != host.CauseBudget {
		t.Errorf("with 100 units: %v", err)
	}
	run, job = ours(t, `{"classes": {"poem": {"device": "zinc"}}}`)
	_, err = run.Start(t.Context(), job)
	if wrong, ok := errors.AsType[*host.SetupError](err); !ok || wrong.Step != abi.Configure || !strings.Contains(wrong.Refuse, `unknown class "poem"`) {
		t.Errorf("a wrong configuration: %v", err)
	}
}

// TestOthersRunElsewhere: a module that is not byte for byte the built-in policy never runs in this process, whatever it calls itself.
func TestOthersRunElsewhere(t *testing.T) {
	run, job := ours(t, `{"classes": {"code": {"device": "zinc"}}}`)
	for name, change := range map[string]func(*extensions.Job){
		"another hash": func(j *extensions.Job) { j.SHA256 = strings.Repeat("0", 64) },
		"no hash":      func(j *extensions.Job) { j.SHA256 = "" },
		"another kind": func(j *extensions.Job) { j.Manifest.Kind = abi.Classifier },
	} {
		other := job
		change(&other)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := run.Start(ctx, other); err == nil {
			t.Errorf("%s: it runs", name)
		}
		cancel()
	}
}
