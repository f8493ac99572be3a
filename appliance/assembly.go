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
	"onebit/engine/backend"
)

// assembly is all that one configuration builds.
type assembly struct {
	cfg   config.Config
	model gateway.Model
	child *backend.Child
	api   *gateway.Gateway
	log   *slog.Logger
}

// outputs are where the program and its children write.
type outputs struct {
	stdout, stderr io.Writer
	log            *slog.Logger
}

// assemble checks the model and builds everything. It starts nothing and opens no port.
func assemble(cfg config.Config, out outputs) (*assembly, error) {
	m := cfg.Models[0]
	device, why, err := backend.Route(m.Path, m.Device)
	if err != nil {
		return nil, err
	}
	child, err := cpuChild(m, out)
	if err != nil {
		return nil, err
	}
	a := &assembly{cfg: cfg, child: child, log: out.log}
	a.model = gateway.Model{Name: m.Name, Device: device, Why: why, Created: modified(m.Path), Backend: child}
	a.api, err = gateway.New(gateway.Config{Model: a.model, Limits: cfg.Limits, Log: out.log})
	return a, err
}

// cpuChild returns a model on the built-in engine, in a process of its own.
func cpuChild(m config.Model, out outputs) (*backend.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return backend.NewChild(backend.ChildConfig{
		Name:    "cpu",
		Slots:   max(1, m.Parallel),
		Command: backend.CPU(backend.CPUConfig{Executable: self, Model: m.Path, Alias: m.Name, Context: m.Context, Parallel: m.Parallel}),
		Stdout:  out.stdout,
		Stderr:  out.stderr,
		Log:     out.log,
	})
}

// modified returns when a file was last changed; the zero Unix time when that is unknown.
func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Unix(0, 0)
	}
	return info.ModTime()
}

// run serves until ctx ends or the model cannot be brought up, and leaves no process behind. ready is called once, when
// the model answers.
func (a *assembly) run(ctx context.Context, server *edge.Server, ready func()) error {
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	// children outlive the last answers
	children, stopChildren := context.WithCancel(context.WithoutCancel(ctx))
	defer stopChildren()
	var group sync.WaitGroup
	var failed error
	group.Go(func() {
		failed = a.child.Run(children)
		stopServing()
	})
	group.Go(func() {
		if a.child.Ready(serving) == nil {
			ready()
		}
	})
	err := server.Serve(serving)
	stopServing()
	stopChildren()
	group.Wait()
	return errors.Join(failed, err)
}
