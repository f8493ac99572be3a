package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/worker"
)

// FuzzHear: whatever a worker that was taken over says, the box reads it to its end without a crash, and believes no answer
// that breaks a bound.
func FuzzHear(f *testing.F) {
	good := host.Result{Answer: []byte("{}"), Units: 7, Pages: 2, HostCalls: 1, Log: []host.Line{{Level: abi.Warn, Text: "line"}}}
	f.Add(worker.ResultFrame(1, good, nil))
	f.Add(worker.ResultFrame(2, good, nil))
	f.Add(worker.ResultFrame(1, host.Result{}, &host.CallError{Cause: host.CauseTrap, Detail: "unreachable", Trace: "at"}))
	f.Add(append(worker.AskFrame(1, "text"), worker.ResultFrame(1, good, nil)...))
	f.Add(append(worker.AskFrame(1, "text"), worker.AskFrame(1, "text")...))
	f.Add(worker.Frame(5, 0, nil))
	f.Add(worker.Frame(9, 1, []byte{0xff, 1, 0, 0, 0, 'x'}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 9, 1, 0, 0, 0, 0, 0, 0, 0})
	services := host.Services{
		Tokens: func(_ context.Context, text string) (int, error) { return len(text), nil },
		Embed:  func(context.Context, string) ([]float32, error) { return []float32{1}, nil },
		Decide: func(_ context.Context, _ string, criteria map[string]string) (string, float64, map[string]float64, error) {
			return "a", float64(len(criteria)), nil, nil
		},
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		c := host.Call{Function: abi.Route, Request: []byte("{}"), Text: func(abi.Part) string { return "prompt" }, Services: services}
		c.Services.KV = host.NewKeys(time.Now)
		r, err := worker.Hear(said, &c)
		if len(r.Answer) > abi.MaxDecision || r.Units < 0 || len(r.Log) > 256 {
			t.Errorf("%d bytes of answer, %d units, %d lines", len(r.Answer), r.Units, len(r.Log))
		}
		for _, l := range r.Log {
			if l.Level < abi.Debug || l.Level > abi.Error || len(l.Text) > abi.MaxLog {
				t.Errorf("line %+v", l)
			}
		}
		if failed, ok := errors.AsType[*host.CallError](err); ok && failed.Cause == "" {
			t.Errorf("a failure without a cause: %v", err)
		}
	})
}

// FuzzReadSaid reads what a child says of a preparation.
func FuzzReadSaid(f *testing.F) {
	f.Add([]byte(`{"text":"no","refusal":{"Section":"code","Index":1,"Reason":"r","Remedy":"m"}}`))
	f.Add([]byte(`{"text":"no","setup":{"step":"laya_route","cause":"trap"}}`))
	f.Add([]byte(`{"sha256":"","manifest":{"name":"x"},"imports":[{"Module":"m","Name":"n"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := worker.ReadSaid(b); err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}

// FuzzReadCall reads what a child is sent: from the box, but it should not die of a fault there.
func FuzzReadCall(f *testing.F) {
	f.Add(make([]byte, 29))
	f.Add(append(make([]byte, 25), 3, 0, 0, 0, 'a', 'b', 'c'))
	f.Fuzz(func(t *testing.T, b []byte) { _ = worker.ReadCallFrame(b) })
}

// TestHear: the seeds mean what they should.
func TestHear(t *testing.T) {
	good := host.Result{Answer: []byte("{}"), Units: 7, Pages: 2}
	c := host.Call{Function: abi.Route, Services: host.Services{Tokens: func(context.Context, string) (int, error) { return 1, nil }}}
	if r, err := worker.Hear(append(worker.AskFrame(1, "x"), worker.ResultFrame(1, good, nil)...), &c); err != nil || string(r.Answer) != "{}" || r.Units != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	for name, said := range map[string][]byte{
		"an answer to another call":      worker.ResultFrame(2, good, nil),
		"an answer that is too long":     worker.ResultFrame(1, host.Result{Answer: make([]byte, abi.MaxDecision+1)}, nil),
		"nothing":                        nil,
		"half an answer":                 worker.ResultFrame(1, good, nil)[:20],
		"a length that nobody may send":  {0xff, 0xff, 0xff, 0xff, 9, 1, 0, 0, 0, 0, 0, 0, 0},
		"more questions than a call has": repeat(worker.AskFrame(1, "x"), 100),
	} {
		if r, err := worker.Hear(said, &c); err == nil || r.Answer != nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

func repeat(b []byte, n int) (all []byte) {
	for range n {
		all = append(all, b...)
	}
	return all
}
