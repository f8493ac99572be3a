package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/edge"
	"onebit/appliance/gateway"
	"onebit/appliance/telemetry"
	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/recipe"
)

// assembly is all that one configuration builds.
type assembly struct {
	cfg      config.Config
	plan     *backend.Plan
	children []*backend.Child // in the order of plan.Children
	api      *gateway.Gateway
	log      *slog.Logger
}

// outputs are where the program and its children write.
type outputs struct {
	stdout, stderr io.Writer
	log            *slog.Logger
}

// assemble decides where the model runs, checks everything and builds it. It starts no child and opens no port.
func assemble(ctx context.Context, cfg config.Config, out outputs) (*assembly, error) {
	machine, err := backend.ThisMachine()
	if err != nil {
		return nil, err
	}
	machine.Installed = programsIn("")
	plan, err := backend.NewPlan(ctx, machine, cfg.Models[0])
	if err != nil {
		return nil, err
	}
	a := &assembly{cfg: cfg, plan: plan, log: out.log}
	for _, spec := range plan.Children() {
		child, err := newChild(spec, out)
		if err != nil {
			return nil, err
		}
		a.children = append(a.children, child)
	}
	api, err := a.gateway()
	if err != nil {
		return nil, err
	}
	a.api, err = gateway.New(api)
	return a, err
}

// newChild returns the supervisor of one program.
func newChild(spec backend.ChildSpec, out outputs) (*backend.Child, error) {
	return backend.NewChild(backend.ChildConfig{
		Name:    spec.Label(),
		Slots:   spec.Slots,
		Command: spec.Command,
		Ready:   spec.Ready,
		Proof:   spec.Proof(),
		Parts:   spec.Parts(),
		Stdout:  out.stdout,
		Stderr:  out.stderr,
		Log:     out.log,
	})
}

// speaking returns a child as a backend that answers chats, whatever its dialect.
func speaking(spec backend.ChildSpec, child *backend.Child) (engine.Backend, error) {
	if spec.Dialect == backend.NPU {
		return backend.NewChatML(backend.ChatMLConfig{Backend: child, OpenThink: spec.OpenThink})
	}
	return child, nil
}

// gateway describes the API over the children.
func (a *assembly) gateway() (gateway.Config, error) {
	p, o := a.plan, a.cfg.Models[0]
	files := []string{o.Model}
	c := gateway.Config{
		AdaptiveAt: p.AdaptiveAt, Sticky: p.Sticky, LongFrom: p.LongFrom,
		Strict: a.cfg.StrictModel, Key: a.cfg.APIKey, MediaPath: a.cfg.MediaPath,
		Metrics: telemetry.New(telemetry.Config{Version: version, Runtime: true}), Limits: a.cfg.Limits, Log: a.log,
	}
	switch p.Mode {
	case backend.Adaptive:
		c.Mode = gateway.Adaptive
		files = append(files, o.Model)
	case backend.Long:
		c.Mode = gateway.LongModel
		files = append(files, o.LongModel)
	}
	for _, side := range []string{o.Embed, o.Rerank} {
		if side != "" {
			files = append(files, side)
		}
	}
	for i, spec := range p.Children() {
		b, err := speaking(spec, a.children[i])
		if err != nil {
			return c, err
		}
		m := gateway.Model{
			Name: spec.Name, Device: spec.Device, Created: modified(files[i]), Backend: b,
			DropModel: spec.ModelField == backend.DropModel, ModelID: spec.ModelID,
		}
		if spec.Role != recipe.Chat {
			m.Role = gateway.Role(spec.Role)
		}
		switch {
		case i == 0:
			m.Why = p.Why
			c.Model = m
		case i == 1 && p.Second != nil:
			c.Second = m
		default:
			c.Side = append(c.Side, m)
		}
	}
	return c, nil
}

// modified returns when a file was last changed; the zero Unix time when that is unknown.
func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Unix(0, 0)
	}
	return info.ModTime()
}

// run serves until ctx ends or a model cannot be brought up, and leaves no process behind. ready is called once, when
// all models answer.
func (a *assembly) run(ctx context.Context, server *edge.Server, ready func()) error {
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	// children outlive the last answers
	children, stopChildren := context.WithCancel(context.WithoutCancel(ctx))
	defer stopChildren()
	var group sync.WaitGroup
	failed := make([]error, len(a.children))
	for i, child := range a.children {
		group.Go(func() {
			failed[i] = child.Run(children)
			stopServing() // without one of them the rest is not what was asked for
		})
	}
	group.Go(func() {
		for _, child := range a.children {
			if child.Ready(serving) != nil {
				return
			}
		}
		ready()
	})
	err := server.Serve(serving)
	stopServing()
	stopChildren()
	group.Wait()
	return errors.Join(errors.Join(failed...), err)
}

// count says how many requests each backend took, when there is more than one.
func (a *assembly) count(w io.Writer) {
	if len(a.children) < 2 {
		return
	}
	for _, c := range a.api.Counts() {
		fmt.Fprintf(w, "1bit serve: %s took %d requests\n", c.Name, c.Requests)
	}
}
