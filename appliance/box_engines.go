package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"onebit/appliance/config"
	"onebit/engine/backend"
	owner "onebit/engine/keeper"
	"onebit/engine/sandbox"
)

// variables that say how the box starts model servers.
const (
	enginesVariable = "ONEBIT_ENGINES" // the socket of `1bit engines`
	sandboxVariable = "ONEBIT_SANDBOX" // off: as serve does
	slotsVariable   = "ONEBIT_SLOTS"   // where `1bit engines` makes folders for the state of slots
)

// planner and launcher are how the box plans a model and starts a process of the plan.
type (
	planner  = func(ctx context.Context, o backend.Options) (*backend.Plan, error)
	launcher = func(o backend.Options, n int, c backend.ChildSpec) backend.Launch
)

// launcher decides how the box starts model servers: `1bit engines` plans and does it for the box where there is one,
// else they are started in sandboxes; a nil launcher starts them as serve does. What cannot be kept from them is told.
func (b *box) launcher() (planner, launcher) {
	own := func(ctx context.Context, o backend.Options) (*backend.Plan, error) {
		return backend.NewPlan(ctx, b.starts, o)
	}
	if socket := os.Getenv(enginesVariable); socket != "" {
		k := &kept{b: b, Client: owner.Client{Socket: socket, Patience: enginesPatience}}
		b.log.Info("model servers are started by another process", "socket", socket)
		return k.plan, k.launch
	}
	if runtime.GOOS != "linux" || os.Getenv(sandboxVariable) == "off" {
		b.log.Warn("model servers are not confined: they may do what the box's user may")
		return own, nil
	}
	for _, missing := range sandbox.Supported().Missing() {
		b.log.Warn("the sandbox of model servers has holes on this kernel", "why", missing)
	}
	if err := sandbox.Shield(); err != nil {
		b.log.Warn("the box's memory is open to its model servers", "why", err)
	}
	state, err := filepath.Abs(b.options.state)
	if err != nil {
		state = b.options.state
	}
	c := backend.Confinement{
		Executable: b.starts.Executable, Environ: os.Environ(), Scratch: filepath.Join(state, "scratch"), Private: []string{state}, Log: b.log,
	}
	b.starts.Ask = c.Ask
	return own, func(o backend.Options, _ int, child backend.ChildSpec) backend.Launch { return c.Launch(o, child) }
}

// slotRoot is the folder below which model servers keep the state of slots; empty for none. They write it, so whoever starts
// them says where.
func slotRoot(own string) string {
	if os.Getenv(enginesVariable) == "" {
		return own
	}
	dir := os.Getenv(slotsVariable)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || !filepath.IsAbs(dir) || sandbox.Supported().Landlock == 0 {
		return "" // without Landlock the owner of the servers keeps none
	}
	return dir
}

// enginesPatience is how long the owner of the servers is waited for while it starts.
const enginesPatience = 5 * time.Second

// ineffective says that the configuration names programs which nobody starts, since another process has those to start;
// empty when that is not so.
func ineffective(cfg config.Box, kept bool) string {
	if !kept || cfg.Programs == (config.Programs{}) {
		return ""
	}
	return "programs has no effect: `1bit engines` starts the model servers, and takes the programs that root has installed or named in /etc/default/1bit-engines"
}

// kept is the box as a client of `1bit engines`.
type kept struct {
	b *box
	owner.Client
	gone atomic.Bool // nobody was there when it was asked last: it is not waited for with each model
}

// plan asks how a model would be run.
func (k *kept) plan(ctx context.Context, o backend.Options) (*backend.Plan, error) {
	k.open(o)
	c := k.Client
	if k.gone.Load() {
		c.Patience = 0
	}
	p, err := c.Plan(ctx, o)
	failed, ok := errors.AsType[*net.OpError](err)
	k.gone.Store(ok && failed.Op == "dial")
	return p, err
}

// launch has a model server started.
func (k *kept) launch(o backend.Options, n int, _ backend.ChildSpec) backend.Launch {
	k.open(o)
	return k.Launch(o, n)
}

// open lets other users read a model; weights are no secret.
func (k *kept) open(o backend.Options) {
	for _, path := range []string{o.Model, o.MTP, o.DFlash, o.Mmproj} {
		if err := share(k.b.options.state, path); err != nil {
			k.b.log.Warn("model servers may not be able to read a model", "file", path, "why", err)
		}
	}
}

// share lets other users read a file below the state directory, and go through the folders on the way. What lies
// elsewhere is left as it is.
func share(state, path string) error {
	if path == "" {
		return nil
	}
	at, err := filepath.Abs(state)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(at, path)
	if err != nil {
		return err
	}
	if !filepath.IsLocal(rel) {
		return nil
	}
	parts := strings.Split(rel, string(filepath.Separator))
	for i := range slices.Concat([]string{""}, parts) {
		if i > 0 {
			at = filepath.Join(at, parts[i-1])
		}
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		more := os.FileMode(0o011)
		if !info.IsDir() {
			more = 0o044
		}
		if info.Mode().Perm()&more != more {
			if err := os.Chmod(at, info.Mode().Perm()|more); err != nil {
				return err
			}
		}
	}
	return nil
}
