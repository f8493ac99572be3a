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
	children []running // in the order of plan.Children
	routing  *routing  // of the mode Classified
	api      *gateway.Gateway
	log      *slog.Logger
}

// running is a backend that somebody has to run.
type running interface {
	engine.Backend
	Run(ctx context.Context) error
	Info() engine.Info
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
	if plan.Mode == backend.Classified {
		if a.routing, err = newRouting(ctx, machine, cfg.Models[0], out); err != nil {
			return nil, err
		}
	}
	if err := a.populate(out); err != nil {
		return nil, err
	}
	api, err := a.gateway()
	if err != nil {
		return nil, err
	}
	a.api, err = gateway.New(api)
	return a, err
}

// populate makes the supervisors of all programs. What a policy chooses among starts when it is first chosen, one after another.
func (a *assembly) populate(out outputs) error {
	turn := make(chan struct{}, 1)
	late := 0
	if a.plan.Mode == backend.Classified {
		late = 1 + len(a.plan.Others)
	}
	for i, spec := range a.plan.Children() {
		var one running
		var err error
		if i < late {
			one, err = backend.NewLazy(backend.LazyConfig{Child: childConfig(spec, out), Turn: turn})
		} else {
			one, err = newChild(spec, out)
		}
		if err != nil {
			return err
		}
		a.children = append(a.children, one)
	}
	return nil
}

// newChild returns the supervisor of one program.
func newChild(spec backend.ChildSpec, out outputs) (*backend.Child, error) {
	return backend.NewChild(childConfig(spec, out))
}

func childConfig(spec backend.ChildSpec, out outputs) backend.ChildConfig {
	return backend.ChildConfig{
		Name:    spec.Label(),
		Slots:   spec.Slots,
		Command: spec.Command,
		Ready:   spec.Ready,
		Proof:   spec.Proof(),
		Parts:   spec.Parts(),
		Stdout:  out.stdout,
		Stderr:  out.stderr,
		Log:     out.log,
	}
}

// speaking returns a child as a backend that answers chats, whatever its dialect.
func speaking(spec backend.ChildSpec, child running) (engine.Backend, error) {
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
	case backend.Classified:
		c.Mode, c.Decider = gateway.Classified, a.routing
		// a request waits for its backend's first start
		c.Limits.Ready = max(c.Limits.Ready, startLimit)
		for range p.Others {
			files = append(files, o.Model)
		}
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
		case i <= len(p.Others):
			c.Others = append(c.Others, m)
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
	decides := make(chan error, 1)
	var undecided error
	if a.routing != nil {
		group.Go(func() {
			undecided = a.routing.run(children, func(err error) { decides <- err })
			stopServing()
		})
	} else {
		decides <- nil
	}
	group.Go(func() {
		if <-decides != nil {
			return
		}
		for _, child := range a.early() {
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
	return errors.Join(errors.Join(failed...), undecided, err)
}

// startLimit is how long a backend may take to start.
const startLimit = 600 * time.Second

// early are the backends that serve before anything is asked.
func (a *assembly) early() []running {
	if a.plan.Mode == backend.Classified {
		return a.children[1+len(a.plan.Others):]
	}
	return a.children
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
