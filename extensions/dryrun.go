package extensions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/payload"
)

// A box may be busy while a module is tried, and units bound the work: so a call of the dry run may take many times its wall
// clock, and one that is late is made again.
const (
	patience = 20
	tries    = 3
)

// plain is the request that is made where there is no other.
func plain() abi.Request {
	return abi.Request{
		V: abi.Version, ID: "dry-run", Conversation: strings.Repeat("0", 32), Turn: 1, API: "chat", Model: "auto", Tenant: "dry-run", Tokens: 8, Bytes: 24,
		Head:       "What is the time in Oslo?",
		Candidates: []abi.Candidate{{ID: "small", Backend: "cpu", Device: "cpu", Model: "small", Context: 4096, Healthy: true}, {ID: "large", Backend: "hrx", Device: "hrx", Model: "large", Context: 32768, Healthy: true}},
	}
}

// hostile are requests made to make a module fail: it must answer each within its limits, if only with no opinion.
func hostile() []abi.Request {
	change := func(f func(r *abi.Request)) abi.Request {
		r := plain()
		f(&r)
		return r
	}
	many := make([]abi.Candidate, 100)
	for i := range many {
		many[i] = abi.Candidate{ID: fmt.Sprintf("m%d", i), Model: fmt.Sprintf("m%d", i), Device: "cpu", Backend: "cpu", Healthy: i%2 == 0}
	}
	return []abi.Request{
		plain(),
		change(func(r *abi.Request) { r.Head, r.Bytes, r.Tokens = "", 0, 0 }),
		change(func(r *abi.Request) { r.Candidates = nil }),
		change(func(r *abi.Request) { r.Candidates = r.Candidates[:1]; r.Candidates[0].Healthy = false }),
		change(func(r *abi.Request) { r.Candidates = many }),
		change(func(r *abi.Request) { *r = abi.Request{V: abi.Version} }),
		change(func(r *abi.Request) {
			r.Head, r.Tail, r.Bytes, r.Tokens = strings.Repeat("a", abi.MaxHead), strings.Repeat("z", abi.MaxTail), 1<<30, 1<<28
		}),
		change(func(r *abi.Request) { r.Head, r.Bytes = strings.Repeat("\u0000\u0001\"\\\n\r\t", 500), 3500 }),
		change(func(r *abi.Request) { r.Head = strings.Repeat("\U0001F600\u0301\u202e漢", 200) }),
		change(func(r *abi.Request) { r.Head = strings.Repeat(`{"a":[`, 600) }),
		change(func(r *abi.Request) { r.Head = `","candidates":[{"id":"not offered"}],"head":"` }),
		change(func(r *abi.Request) { r.Turn, r.Tokens, r.Bytes = 1<<31-1, 1<<31-1, 1<<31-1 }),
		change(func(r *abi.Request) {
			r.Class, r.Confidence, r.Scores = "code", 1, map[string]float64{"code": 1, "": 0, strings.Repeat("k", 1000): 1e-300}
		}),
		change(func(r *abi.Request) {
			r.Headers = map[string]string{}
			for i := range 60 {
				r.Headers[fmt.Sprintf("x-header-%d", i)] = strings.Repeat("v", 200)
			}
		}),
		change(func(r *abi.Request) { r.Model, r.API, r.Tenant = strings.Repeat("m", 4000), "\"", "\x7f" }),
	}
}

// recorder keeps the latest requests that modules were asked about, for dry runs. They are in memory alone.
type recorder struct {
	mu   sync.Mutex
	last []abi.Request
}

// remembered is how many.
const remembered = 32

func (r *recorder) add(req abi.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) == remembered {
		r.last = slices.Delete(r.last, 0, 1)
	}
	r.last = append(r.last, req)
}

func (r *recorder) all() []abi.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.last)
}

// functionOf is what a module of a kind is asked by.
func functionOf(k abi.Kind) string {
	if k == abi.Classifier {
		return abi.Classify
	}
	return abi.Route
}

// dryRun asks a module everything twice. What it answers must be the same both times, valid, and for its own samples what
// they say.
func (m *Manager) dryRun(ctx context.Context, w Worker, j Job) (Report, error) {
	t := trial{m: m, w: w, j: j}
	for i, s := range j.Manifest.Samples {
		s.Request.V = abi.Version
		got, err := t.ask(ctx, s.Request)
		if err != nil {
			return t.r, refused("dry_run", "sample %d of the manifest: %v", i+1, err)
		}
		if why := differs(s.Decision, got); why != "" {
			return t.r, refused("dry_run", "sample %d of the manifest: %s", i+1, why)
		}
		t.r.Samples++
	}
	for i, r := range hostile() {
		if _, err := t.ask(ctx, r); err != nil {
			return t.r, refused("dry_run", "hostile request %d: %v", i+1, err)
		}
		t.r.Hostile++
	}
	for _, r := range m.recorded.all() {
		if _, err := t.ask(ctx, r); err != nil {
			return t.r, refused("dry_run", "a request that this box has served: %v", err)
		}
		t.r.Recorded++
	}
	slices.Sort(t.took)
	if n := len(t.took); n > 0 {
		t.r.Micros = t.took[n/2].Microseconds()
	}
	return t.r, nil
}

// trial is one dry run.
type trial struct {
	m    *Manager
	w    Worker
	j    Job
	r    Report
	took []time.Duration
}

// ask puts one request twice.
func (t *trial) ask(ctx context.Context, r abi.Request) (*abi.Decision, error) {
	raw, err := payload.AppendRequest(nil, &r)
	if err != nil {
		return nil, fmt.Errorf("writing it: %w", err)
	}
	first, units, err := t.call(ctx, raw)
	if err != nil {
		return nil, err
	}
	again, more, err := t.call(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("the second time: %w", err)
	}
	if !bytes.Equal(first, again) {
		return nil, fmt.Errorf("it decides otherwise when it is asked again: %s, then %s", clip(first), clip(again))
	}
	if units != more {
		return nil, fmt.Errorf("it uses %d units, and %d when it is asked again", units, more)
	}
	return payload.ReadDecision(first, t.m.offer(t.j.Manifest, r.Candidates))
}

func (t *trial) call(ctx context.Context, raw []byte) ([]byte, int64, error) {
	begin := time.Now()
	c := host.Call{
		Function: functionOf(t.j.Manifest.Kind), Request: raw, Seed: seed(raw), Text: func(abi.Part) string { return "" },
		Deadline: begin.Add(patience * t.j.Limits.Deadline),
		Services: host.Services{ // steady ones: what a module answers must not hang on the moment
			Now:    func() time.Time { return time.Unix(1_800_000_000, 0) },
			Tokens: func(_ context.Context, text string) (int, error) { return estimate(text), nil },
			KV:     forgetful{}, Metric: func(string, float64) {},
		},
	}
	res, err := t.w.Call(ctx, c)
	for n := 1; n < tries && late(err) && ctx.Err() == nil; n++ {
		begin = time.Now()
		c.Deadline = begin.Add(patience * t.j.Limits.Deadline)
		res, err = t.w.Call(ctx, c)
	}
	if err != nil {
		return nil, 0, err
	}
	t.took = append(t.took, time.Since(begin))
	t.r.Units, t.r.Pages = max(t.r.Units, res.Units), max(t.r.Pages, int64(res.Pages))
	return res.Answer, res.Units, nil
}

// late tells whether a call took too long.
func late(err error) bool {
	c, ok := errors.AsType[*host.CallError](err)
	return ok && c.Cause == host.CauseTimeout
}

// estimate is about how many tokens a text has.
func estimate(text string) int { return (len(text) + 3) / 4 }

// seed makes a guest's random bytes a function of the request.
func seed(raw []byte) uint64 {
	h := fnv.New64a()
	h.Write(raw)
	return h.Sum64()
}

func clip(b []byte) string {
	if len(b) > 120 {
		return string(b[:120]) + "…"
	}
	return string(b)
}

// differs compares a decision with the one that a sample names, in what the sample says.
func differs(want abi.Decision, got *abi.Decision) string {
	if got == nil {
		if want.Action == abi.ActionAbstain || want.Action == "" {
			return ""
		}
		return fmt.Sprintf("it has no opinion; its decision must be %q", want.Action)
	}
	if want.Action != "" && got.Action != want.Action {
		return fmt.Sprintf("its action is %q, it must be %q", got.Action, want.Action)
	}
	if want.Class != "" && got.Class != want.Class {
		return fmt.Sprintf("its class is %q, it must be %q", got.Class, want.Class)
	}
	if want.Candidates != nil && !slices.Equal(got.Candidates, want.Candidates) {
		return fmt.Sprintf("its candidates are %q, they must be %q", got.Candidates, want.Candidates)
	}
	if want.Reject != nil && (got.Reject == nil || got.Reject.Status != want.Reject.Status || got.Reject.Code != want.Reject.Code) {
		return fmt.Sprintf("it must reject with %d %s", want.Reject.Status, want.Reject.Code)
	}
	for name, v := range want.Params {
		if !same(v, got.Params[name]) {
			return fmt.Sprintf("its parameter %q is %s, it must be %s", name, got.Params[name], v)
		}
	}
	for name, v := range want.Headers {
		if got.Headers[name] != v {
			return fmt.Sprintf("its header %q is %q, it must be %q", name, got.Headers[name], v)
		}
	}
	return ""
}

// same compares two JSON values.
func same(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// forgetful is a memory in which nothing stays, for dry runs: what is stored in one would change the next.
type forgetful struct{}

func (forgetful) Get(context.Context, string) ([]byte, bool, error)        { return nil, false, nil }
func (forgetful) Set(context.Context, string, []byte, time.Duration) error { return nil }
func (forgetful) Add(_ context.Context, _ string, d int64, _ time.Duration) (int64, error) {
	return d, nil
}

// offer is what a module's answer may use.
func (m *Manager) offer(mf abi.Manifest, from []abi.Candidate) payload.Offer {
	o := payload.Offer{Classes: mf.Classes, Params: m.cfg.Policy().Params, RAG: mf.Kind == abi.Policy, Reject: mf.Kind == abi.Policy}
	for _, c := range from {
		o.Candidates = append(o.Candidates, c.ID)
	}
	return o
}
