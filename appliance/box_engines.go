package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"onebit/engine"
	"onebit/engine/backend"
	owner "onebit/engine/keeper"
	"onebit/engine/sandbox"
)

// variables that say how the box starts model servers.
const (
	enginesVariable = "ONEBIT_ENGINES" // the socket of `1bit engines`
	sandboxVariable = "ONEBIT_SANDBOX" // off: as serve does
)

// launcher decides how the box starts model servers: `1bit engines` does it for the box where there is one, else they
// are started in sandboxes; nil starts them as serve does. What cannot be kept from them is told. Programs are asked
// questions in the same way from here on.
func (b *box) launcher() func(o backend.Options, n int, c backend.ChildSpec) backend.Launch {
	if socket := os.Getenv(enginesVariable); socket != "" {
		k := kept{b, owner.Client{Socket: socket}}
		b.starts.Installed, b.starts.Ask = programsIn(systemPrograms), k.ask
		b.log.Info("model servers are started by another process", "socket", socket)
		return k.launch
	}
	if runtime.GOOS != "linux" || os.Getenv(sandboxVariable) == "off" {
		b.log.Warn("model servers are not confined: they may do what the box's user may")
		return nil
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
	return func(o backend.Options, _ int, child backend.ChildSpec) backend.Launch { return c.Launch(o, child) }
}

// kept is the box as a client of `1bit engines`.
type kept struct {
	b *box
	owner.Client
}

// launch has a model server started. Other users must be able to read its model; weights are no secret.
func (k kept) launch(o backend.Options, n int, _ backend.ChildSpec) backend.Launch {
	for _, path := range []string{o.Model, o.MTP, o.DFlash, o.Mmproj} {
		if err := share(k.b.options.state, path); err != nil {
			k.b.log.Warn("model servers may not be able to read a model", "file", path, "why", err)
		}
	}
	return k.Launch(o, n)
}

// ask asks what a program can run on. The one who owns the servers has the devices, and asks its own.
func (k kept) ask(ctx context.Context, path string, _ []string, args ...string) (string, error) {
	if len(args) == 1 && args[0] == backend.ListDevices {
		for _, d := range []engine.Device{engine.Vulkan, engine.HRX, engine.ROCm} {
			if found, _, err := k.b.starts.Program(d); err == nil && found == path {
				return k.Lists(ctx, d)
			}
		}
	}
	return "", fmt.Errorf("%s is not asked: it runs behind `1bit engines`", filepath.Base(path))
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
