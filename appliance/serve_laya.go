package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"onebit/appliance/route"
	"onebit/engine"
	"onebit/engine/backend"
	"onebit/extensions"
	"onebit/extensions/laya/scorer"
	"onebit/extensions/policy"
	"onebit/extensions/worker"
)

// routing is what chooses the backends of --laya, with the programs that it needs.
type routing struct {
	*route.Router
	source route.Source
	rules  json.RawMessage // nil for the built-in policy
	said   *classifier
	clean  func()
	up     chan struct{} // closed when decisions can be made
}

// Decide waits for the modules, which are compiled when a version of the program first runs.
func (r *routing) Decide(ctx context.Context, in extensions.Input) extensions.Outcome {
	select {
	case <-r.up:
	case <-ctx.Done():
	}
	return r.Router.Decide(ctx, in)
}

// newRouting finds the classifier and reads the policy. It starts nothing.
func newRouting(ctx context.Context, machine *backend.Machine, o backend.Options, out outputs) (*routing, error) {
	var file json.RawMessage
	var err error
	if o.RoutePolicy != "" {
		if file, err = route.ReadPolicy(o.RoutePolicy); err != nil {
			return nil, err
		}
	}
	r := &routing{rules: file, up: make(chan struct{})}
	if r.source, err = route.FindSource(o.LayaModel, os.Getenv); err != nil {
		return nil, err
	}
	if r.said, err = newClassifier(ctx, classifierKit{machine: machine, options: o, source: r.source}, out); err != nil {
		return nil, err
	}
	dir, clean, err := route.ModuleDir(os.UserCacheDir)
	if err != nil {
		return nil, err
	}
	r.clean = clean
	var s scorer.Scorer
	if r.said != nil {
		s = r.said
	}
	r.Router, err = route.New(route.Config{Program: []string{machine.Executable, worker.Command}, Dir: dir, Policy: file, Scorer: s, Log: out.log})
	return r, err
}

// run serves until ctx ends. began is called once, with what is wrong or nil, when decisions can be made.
func (r *routing) run(ctx context.Context, began func(error)) error {
	defer r.clean()
	err := r.Start(ctx)
	began(err)
	if err != nil {
		return err
	}
	close(r.up)
	var group sync.WaitGroup
	defer group.Wait()
	if r.said != nil {
		group.Go(func() { r.said.run(ctx) })
	}
	return r.Run(ctx)
}

// classifier is a scorer that is not the built-in one, with its program.
type classifier struct {
	scorer.Scorer
	daemon *scorer.Daemon // nil for a server
	server *backend.Lazy  // nil for a daemon, and for a server of others
}

// classifierKit is what a classifier is made of.
type classifierKit struct {
	machine   *backend.Machine
	options   backend.Options // programs and libraries
	source    route.Source
	launch    launcher          // how its program is started; nil: as it is
	transport http.RoundTripper // to the server of others; nil for the usual one
}

// newClassifier makes what a source says; nil for the built-in classifier.
func newClassifier(ctx context.Context, k classifierKit, out outputs) (*classifier, error) {
	c := &classifier{}
	var err error
	switch {
	case k.source.Builtin():
		return nil, nil
	case k.source.Daemon != "":
		c.daemon, err = k.source.NewDaemon(backend.RuntimeOf(k.machine, k.options), out.log)
		c.Scorer = c.daemon
		return c, err
	case k.source.URL != "":
		return c, c.at(k.source.URL, k.transport, k.source.Wording)
	}
	o := backend.Options{Model: k.source.Model, Device: engine.Device(k.source.Device), LlamaServer: k.options.LlamaServer, LibHSA: k.options.LibHSA}
	spec, err := backend.PlanDecider(ctx, k.machine, o)
	if err != nil {
		return nil, err
	}
	cfg := childConfig(spec, out)
	cfg.Name, cfg.Proof, cfg.Parts = "laya", backend.Word, false
	if k.launch != nil {
		cfg.Launch = k.launch(o, 0, spec)
	}
	if c.server, err = backend.NewLazy(backend.LazyConfig{Child: cfg, Turn: make(chan struct{}, 1)}); err != nil {
		return nil, err
	}
	return c, c.at("http://laya", through{c.server}, k.source.Wording)
}

// at makes a server that answers decisions the scorer.
func (c *classifier) at(url string, by http.RoundTripper, wording int) error {
	s, err := scorer.NewDecisions(url, &http.Client{Transport: by})
	if err == nil {
		s.Wording = wording
		c.Scorer = s
	}
	return err
}

// run keeps the program until ctx ends. It is asked once at the start, so that the first conversation does not wait for it.
func (c *classifier) run(ctx context.Context) {
	var group sync.WaitGroup
	if c.server != nil {
		group.Go(func() { _ = c.server.Run(ctx) }) // what does not start is told to who asks
	}
	group.Go(func() { _, _ = c.Score(ctx, "Hello") })
	<-ctx.Done()
	if c.daemon != nil {
		_ = c.daemon.Close()
	}
	group.Wait()
}

// through sends requests to a backend that is started when it must.
type through struct{ to *backend.Lazy }

// RoundTrip implements http.RoundTripper.
func (t through) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.to.Ready(r.Context()); err != nil {
		return nil, err
	}
	return t.to.Relay(r)
}

// layaLines say what chooses.
func (p program) layaLines(a *assembly) {
	devices := []string{string(a.plan.Primary.Device)}
	for _, s := range a.plan.Others {
		devices = append(devices, string(s.Device))
	}
	rule := "the built-in policy: all to hrx, else the first"
	if file := a.cfg.Models[0].RoutePolicy; file != "" {
		rule = "the policy " + file
	}
	p.say("%s classifies, %s chooses among %s", a.routing.source, rule, strings.Join(devices, ", "))
	if names := strangers(a.routing.rules, append(devices, a.plan.Name)); names != "" {
		p.say("warning: the policy names %s: no candidate here is called so; see what it chooses among", names)
	}
}

// strangers are the names in a policy that no candidate has: slips of the pen, or devices of another machine.
func strangers(rules json.RawMessage, here []string) string {
	there := policy.Names(rules)
	return strings.Join(slices.DeleteFunc(there, func(name string) bool { return slices.Contains(here, name) }), ", ")
}
