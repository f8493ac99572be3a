// Package tck is the conformance kit of the contract laya_v1 (ABI.md). For guests: Load takes a module in as a box does, and
// its tests ask what a box asks before a module may serve, and worse. For hosts: Cases has one small guest for each
// promise of the contract, and says what the host under test got wrong. Nothing here needs a server.
package tck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/meter"
	"onebit/extensions/module"
	"onebit/extensions/payload"
)

// Module is what a guest is made of.
type Module struct {
	Code     []byte
	Manifest abi.Manifest
	Config   []byte            // the operator's JSON; nil for none
	Assets   map[string][]byte // by name
	Limits   abi.Limits        // the zero value for those of the kind, as the manifest asks
	Cache    string            // a folder for compiled code; "" for none
}

// Guest is a module that was taken in. It serves one goroutine.
type Guest struct {
	Metered int           // bytes after the rewrite
	Took    time.Duration // for check, rewrite and compilation
	Limits  abi.Limits

	m        Module
	metered  []byte
	host     *host.Module
	instance *host.Instance
}

// Load checks, rewrites, compiles and sets a module up. Every capability that the manifest asks for is granted. Errors are
// those of packages module, host and payload; a refusal says what to do.
func Load(ctx context.Context, m Module) (*Guest, error) {
	g := &Guest{m: m, Limits: limits(m)}
	begin := time.Now()
	if err := g.judge(); err != nil {
		return nil, err
	}
	var err error
	if g.host, err = host.Compile(ctx, g.config(g.m.Cache)); err != nil {
		return nil, err
	}
	g.Took = time.Since(begin)
	if g.instance, err = g.host.Instance(ctx, g.setup()); err != nil {
		return nil, errors.Join(err, g.host.Close(ctx))
	}
	return g, nil
}

// limits are those that a box gives a module which asks for no more than its kind has.
func limits(m Module) abi.Limits {
	if m.Limits != (abi.Limits{}) {
		return m.Limits
	}
	l := m.Manifest.Kind.Limits()
	if n := m.Manifest.Units; n > 0 {
		l.Units = min(l.Units, n)
	}
	if n := m.Manifest.Pages; n > 0 {
		l.Memory = min(l.Memory, n)
	}
	return l
}

// judge checks the module and rewrites it.
func (g *Guest) judge() error {
	bounds := host.Structure(g.Limits)
	parsed, err := module.Parse(g.m.Code, bounds)
	if err != nil {
		return err
	}
	asked := func(c abi.Capability) bool { return slices.Contains(g.m.Manifest.Capabilities, c) }
	if err := parsed.Guest(asked); err != nil {
		return err
	}
	if err := payload.CheckConfig(g.m.Manifest.ConfigSchema, g.m.Config); g.m.Config != nil && err != nil {
		return err
	}
	if g.metered, err = meter.Rewrite(g.m.Code, bounds); err != nil {
		return err
	}
	g.Metered = len(g.metered)
	return nil
}

func (g *Guest) config(cache string) host.Config {
	return host.Config{Metered: g.metered, Manifest: g.m.Manifest, Limits: g.Limits, Granted: g.m.Manifest.Capabilities, Cache: cache}
}

func (g *Guest) setup() host.Setup {
	return host.Setup{Config: g.m.Config, Assets: g.m.Assets, Warm: write(ordinary())}
}

// Setup says what setting up used: all steps together.
func (g *Guest) Setup() host.Result { return g.instance.Report() }

// Close frees the guest.
func (g *Guest) Close(ctx context.Context) error {
	return errors.Join(g.instance.Close(ctx), g.host.Close(ctx))
}

// Functions are the deciding functions that the module has.
func (g *Guest) Functions() (list []string) {
	for _, name := range []string{abi.Classify, abi.Route} {
		if g.host.Exports(name) {
			list = append(list, name)
		}
	}
	return list
}

// Function is what a box asks a module of this kind by.
func (g *Guest) Function() string {
	if g.m.Manifest.Kind == abi.Classifier {
		return abi.Classify
	}
	return abi.Route
}

// Question is one call.
type Question struct {
	Function string
	Request  []byte
	Text     func(abi.Part) string // nil for the head and tail that the request has
	Services *host.Services        // nil for Steady
	Patience int                   // how many times its wall clock a call may take; 0 for once
}

// Answer is what came of it.
type Answer struct {
	host.Result
	Decision *abi.Decision // nil for no opinion
	Took     time.Duration
}

// Ask calls the guest once and reads its answer as a box does. The answer is filled as far as the call went when there is
// an error too.
func (g *Guest) Ask(ctx context.Context, q Question) (Answer, error) {
	return ask(ctx, g.instance, g, q)
}

func ask(ctx context.Context, i *host.Instance, g *Guest, q Question) (a Answer, err error) {
	c := host.Call{Function: q.Function, Request: q.Request, Text: q.Text, Seed: host.Seed(q.Request)}
	var r abi.Request
	if err := json.Unmarshal(q.Request, &r); err != nil {
		r = abi.Request{} // nothing is offered
	}
	if c.Text == nil {
		c.Text = textOf(r)
	}
	if c.Services = Steady(); q.Services != nil {
		c.Services = *q.Services
	}
	begin := time.Now()
	c.Deadline = begin.Add(time.Duration(max(q.Patience, 1)) * g.Limits.Deadline)
	a.Result, err = i.Call(ctx, c)
	if a.Took = time.Since(begin); err != nil {
		return a, err
	}
	a.Decision, err = payload.ReadDecision(a.Answer, g.offer(r))
	return a, err
}

// textOf is a prompt that has the request's message alone.
func textOf(r abi.Request) func(abi.Part) string {
	return func(p abi.Part) string {
		switch p {
		case abi.LastUser:
			return r.Head + r.Tail
		case abi.Whole:
			return r.Head + r.Tail + "\n"
		}
		return ""
	}
}

// params are those that operators commonly let a module set.
var params = [...]string{"temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "stop", "presence_penalty", "frequency_penalty", "reasoning_effort"}

// offer is what an answer may use: all that any operator might allow.
func (g *Guest) offer(r abi.Request) payload.Offer {
	o := payload.Offer{Classes: g.m.Manifest.Classes, Params: params[:], RAG: true, Reject: g.m.Manifest.Kind == abi.Policy}
	for _, c := range r.Candidates {
		o.Candidates = append(o.Candidates, c.ID)
	}
	return o
}

// Steady are services that answer the same at any time, and remember nothing: what a module decides must not hang on the
// moment at which it is tried. Nobody embeds or decides.
func Steady() host.Services {
	now := func() time.Time { return time.Unix(1_800_000_000, 0) }
	return host.Services{
		Now:    now,
		Tokens: func(_ context.Context, text string) (int, error) { return (len(text) + 3) / 4, nil },
		KV:     host.NewKeys(now), Metric: func(string, float64) {},
	}
}

// Willing are steady services in which a model embeds and decides as well.
func Willing() host.Services {
	s := Steady()
	s.Embed = func(_ context.Context, text string) ([]float32, error) {
		v := make([]float32, 384)
		for i, c := range []byte(text) {
			v[i%len(v)] += float32(c) / 255
		}
		return v, nil
	}
	s.Decide = func(_ context.Context, _ string, criteria map[string]string) (string, float64, map[string]float64, error) {
		var names []string
		scores := map[string]float64{}
		for name := range criteria {
			names = append(names, name)
			scores[name] = 1 / float64(len(criteria))
		}
		sort.Strings(names)
		return names[0], scores[names[0]], scores, nil
	}
	return s
}

// Finding is what one test of a guest came to.
type Finding struct {
	Test string
	Err  error // nil for a pass
}

// patience allows for a busy machine: units, not time, bound a guest here.
const patience = 40

// Test runs every test of a guest: its buffer, its samples and the hostile inputs.
func (g *Guest) Test(ctx context.Context) []Finding {
	list := []Finding{{"laya_buffer keeps within memory", g.buffer(ctx)}}
	for i, s := range g.m.Manifest.Samples {
		list = append(list, Finding{fmt.Sprintf("sample %d", i+1), g.sample(ctx, s)})
	}
	for _, in := range Hostile() {
		for _, f := range g.Functions() {
			list = append(list, Finding{f + ": " + in.Name, g.hostile(ctx, f, in.Bytes)})
		}
	}
	return list
}

// sample asks for a decision that the manifest names.
func (g *Guest) sample(ctx context.Context, s abi.Sample) error {
	s.Request.V = abi.Version
	raw, err := payload.AppendRequest(nil, &s.Request)
	if err != nil {
		return err
	}
	got, err := g.twice(ctx, Question{Function: g.Function(), Request: raw, Patience: patience}, Steady)
	if err != nil {
		return err
	}
	if why := Differs(s.Decision, got.Decision); why != "" {
		return errors.New(why)
	}
	return nil
}

// hostile asks with services that answer and with none that do.
func (g *Guest) hostile(ctx context.Context, function string, raw []byte) error {
	for _, services := range []func() host.Services{Willing, func() host.Services { return host.Services{} }} {
		if _, err := g.twice(ctx, Question{Function: function, Request: raw, Patience: patience}, services); err != nil {
			return err
		}
	}
	return nil
}

// twice asks the same again and compares.
func (g *Guest) twice(ctx context.Context, q Question, services func() host.Services) (Answer, error) {
	s := services()
	q.Services = &s
	first, err := g.Ask(ctx, q)
	if err != nil {
		return first, err
	}
	s = services() // a new memory
	again, err := g.Ask(ctx, q)
	switch {
	case err != nil:
		return again, fmt.Errorf("the second time: %w", err)
	case !bytes.Equal(first.Answer, again.Answer):
		return again, fmt.Errorf("it decides otherwise when it is asked again: %.120q, then %.120q", first.Answer, again.Answer)
	case first.Units != again.Units:
		return again, fmt.Errorf("it uses %d units, and %d when it is asked again", first.Units, again.Units)
	}
	return first, nil
}

// Stack finds how many slots of stack a call needs, by trying with less until it fails. Without a cache it makes one for
// a while.
func (g *Guest) Stack(ctx context.Context, q Question) (int64, error) {
	dir := g.m.Cache
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "1bit-stack-"); err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
	}
	q.Patience = patience
	var failed error
	slots := sort.Search(int(g.Limits.Depth), func(depth int) bool {
		c := g.config(dir)
		c.Limits.Depth = int64(depth)
		err := g.with(ctx, c, q)
		failed = errors.Join(failed, unlessStack(err))
		return err == nil
	})
	return int64(slots), failed
}

// unlessStack drops the failure that is looked for.
func unlessStack(err error) error {
	var e *host.CallError
	if errors.As(err, &e) && e.Cause == host.CauseStack {
		return nil
	}
	return err
}

// with makes one call under another configuration.
func (g *Guest) with(ctx context.Context, c host.Config, q Question) error {
	m, err := host.Compile(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close(ctx) }()
	i, err := m.Instance(ctx, g.setup())
	if err != nil {
		return err
	}
	_, err = ask(ctx, i, g, q)
	return err
}

// Differs compares a decision with the one that a sample names, in what the sample says; "" when they agree. No opinion is
// the decision to abstain.
func Differs(want abi.Decision, got *abi.Decision) string {
	if got == nil {
		got = &abi.Decision{Action: abi.ActionAbstain}
	}
	switch {
	case want.Action != "" && got.Action != want.Action:
		return fmt.Sprintf("its action is %q, it must be %q", got.Action, want.Action)
	case want.Class != "" && got.Class != want.Class:
		return fmt.Sprintf("its class is %q, it must be %q", got.Class, want.Class)
	case want.Candidates != nil && !slices.Equal(got.Candidates, want.Candidates):
		return fmt.Sprintf("its candidates are %q, they must be %q", got.Candidates, want.Candidates)
	case want.Reject != nil && (got.Reject == nil || got.Reject.Status != want.Reject.Status || got.Reject.Code != want.Reject.Code):
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
