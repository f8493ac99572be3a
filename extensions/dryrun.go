package extensions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/payload"
	"onebit/extensions/tck"
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

// recorder keeps the latest requests that modules were asked about, for dry runs. They are in memory alone.
type recorder struct {
	mu   sync.Mutex
	last []abi.Request // a ring
	at   int           // the oldest, when it is full
}

// remembered is how many.
const remembered = 32

func (r *recorder) add(req abi.Request) {
	req.Head, req.Tail = strings.Clone(req.Head), strings.Clone(req.Tail) // they are part of a whole body
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) < remembered {
		r.last = append(r.last, req)
		return
	}
	r.last[r.at] = req
	r.at = (r.at + 1) % remembered
}

func (r *recorder) all() []abi.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.last[r.at:], r.last[:r.at])
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
		if why := tck.Differs(s.Decision, got); why != "" {
			return t.r, refused("dry_run", "sample %d of the manifest: %s", i+1, why)
		}
		t.r.Samples++
	}
	for i, u := range append([]tck.Named{{Request: plain()}}, tck.Unusual()...) {
		if _, err := t.ask(ctx, u.Request); err != nil {
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
	var told abi.Request // what is too long was cut
	if err := json.Unmarshal(raw, &told); err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	return payload.ReadDecision(first, t.m.offer(t.j.Manifest, told.Candidates))
}

func (t *trial) call(ctx context.Context, raw []byte) ([]byte, int64, error) {
	begin := time.Now()
	c := host.Call{
		Function: functionOf(t.j.Manifest.Kind), Request: raw, Seed: host.Seed(raw), Text: func(abi.Part) string { return "" },
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

func clip(b []byte) string {
	if len(b) > 120 {
		return string(b[:120]) + "…"
	}
	return string(b)
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
	o.Candidates = make([]string, 0, len(from))
	for _, c := range from {
		o.Candidates = append(o.Candidates, c.ID)
	}
	return o
}
