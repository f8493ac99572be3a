package extensions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/policy"
	"onebit/extensions/worker"
)

// Processes runs each module in a process of its own: our program again. The built-in policy alone runs in this one, as a part of
// it: see native. It implements Runner.
type Processes struct {
	Program []string // what starts our program's sub-command worker.Command
	Dir     string   // the Manager's
	Log     *slog.Logger
}

// Prepare judges, rewrites and compiles a module in a child with limits.
func (p Processes) Prepare(ctx context.Context, j Job) error {
	manifest, err := json.Marshal(j.Manifest)
	if err != nil {
		return err
	}
	_, err = worker.Prepare(ctx, worker.PrepareConfig{Program: p.Program, Dir: p.Dir, SHA256: j.SHA256, Manifest: manifest, Allowed: j.Granted})
	return err
}

// Start brings a module's process up. A module whose compiled form is gone, since it was cleared away or this is another
// version of the program, is prepared again.
func (p Processes) Start(ctx context.Context, j Job) (Worker, error) {
	if policy.Is(j.SHA256) && j.Manifest.Kind == abi.Policy {
		return startNative(j)
	}
	w, err := p.start(ctx, j)
	if !errors.Is(err, worker.ErrUnprepared) {
		return w, err
	}
	if err := p.Prepare(ctx, j); err != nil {
		return nil, err
	}
	return p.start(ctx, j)
}

func (p Processes) start(ctx context.Context, j Job) (Worker, error) {
	ready, giveUp := context.WithCancel(ctx)
	defer giveUp()
	w, err := worker.New(worker.Config{
		Program: p.Program, Dir: p.Dir, SHA256: j.SHA256, Manifest: j.Manifest, Limits: j.Limits, Granted: j.Granted, Setup: j.Setup, Log: p.Log,
		OnState: func(s worker.State) {
			if s == worker.BackingOff { // what fails twice before it ever served will not serve
				giveUp()
			}
		},
	})
	if err != nil {
		return nil, err
	}
	one := &process{worker: w}
	one.ended.Go(func() {
		if err := w.Run(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, worker.ErrUnprepared) { // which is told to who starts it
			p.Log.Error("a module has no process any more", "module", j.Manifest.Name, "sha", short(j.SHA256), "why", err)
		}
	})
	err = w.Ready(ready)
	if err == nil {
		return one, nil
	}
	if ctx.Err() == nil && ready.Err() != nil {
		// whoever calls a worker that has no process is told why
		if _, why := w.Call(ctx, host.Call{Function: functionOf(j.Manifest.Kind), Deadline: time.Now().Add(j.Limits.Deadline)}); why != nil {
			err = why
		}
	}
	if cerr := one.Close(); cerr != nil {
		p.Log.Warn("ending a module that did not come up", "module", j.Manifest.Name, "error", cerr)
	}
	return nil, err
}

// Forget removes what was compiled of a module.
func (p Processes) Forget(sha256 string) error { return worker.Remove(p.Dir, sha256) }

// process is a running worker with the goroutine that keeps it.
type process struct {
	worker *worker.Worker
	ended  sync.WaitGroup
}

// Call asks the module.
func (p *process) Call(ctx context.Context, c host.Call) (host.Result, error) {
	r, err := p.worker.Call(ctx, c)
	switch {
	case errors.Is(err, worker.ErrBusy):
		err = fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(err, worker.ErrWaited):
		err = fmt.Errorf("%w: %w", ErrWaited, err)
	}
	return r, err
}

// Soon wakes the module's process up.
func (p *process) Soon() { p.worker.Soon() }

// Gone tells whether processes ended so often that there is no other.
func (p *process) Gone() bool { return p.worker.State() == worker.Suspended }

// Close ends the process, and waits for its end.
func (p *process) Close() error {
	err := p.worker.Close()
	p.ended.Wait()
	return err
}
