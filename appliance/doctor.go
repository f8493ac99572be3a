package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"onebit/appliance/catalog"
	"onebit/appliance/doctor"
	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/sandbox"
	"onebit/engine/tensor"
)

const doctorUsage = `usage: 1bit doctor [--json] [options]

Says what of this box can serve models, and what to do about what cannot. Of models in a box's configuration that other servers
run it asks those servers whether they take the key, and for nothing else.
The exit status is 0 when something can.

      --json            print the report as JSON
      --config FILE     the configuration (STATE/1bit.yaml or STATE/1bit.toml, when it is there)
      --state DIR       the state directory of the box
      --set PATH=VALUE  replace one value of the configuration; may be given more than once
  -h, --help            this text
`

// runDoctor is `1bit doctor`.
func runDoctor(args []string, stdout, stderr io.Writer) int {
	asJSON := slices.Contains(args, "--json")
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--json" })
	of, err := parseBox(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(stdout, doctorUsage)
		return 0
	}
	if err != nil && len(args) > 0 {
		fmt.Fprintf(stderr, "1bit doctor: %v\n%s", err, doctorUsage)
		return 2
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	box, err := thisBox()
	if err != nil {
		fmt.Fprintf(stderr, "1bit doctor: %v\n", err)
		return 1
	}
	if of.state != "" { // there is one where there is a home
		box.Others = of.otherServers()
	}
	report := doctor.Examine(ctx, box)
	if asJSON {
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		err = out.Encode(report)
	} else {
		err = doctor.Print(stdout, report)
	}
	if err != nil {
		fmt.Fprintf(stderr, "1bit doctor: %v\n", err)
		return 1
	}
	if !report.CanServe() {
		return 1
	}
	return 0
}

// thisBox is the machine that we run on.
func thisBox() (doctor.Box, error) {
	level, err := tensor.LevelFromEnv()
	if err != nil {
		return doctor.Box{}, err
	}
	b := doctor.Box{
		Root: "/", GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, Cores: runtime.NumCPU(), Level: level.String(),
		Sandbox: sandbox.Supported(), Getenv: os.Getenv, Access: doctor.Access, Space: doctor.Space, Run: runCall,
	}
	if exe, err := os.Executable(); err == nil {
		b.Prefix = filepath.Dir(filepath.Dir(exe))
	}
	if cache, err := catalog.UserCache(); err == nil {
		b.Models = cache.Dir
	}
	b.Programs = func(d engine.Device) (doctor.Program, error) { return findServer(b.Prefix, d) }
	return b, nil
}

// findServer looks for a device's server as serve does without an option.
func findServer(prefix string, d engine.Device) (doctor.Program, error) {
	m := backend.Machine{GOOS: runtime.GOOS, Executable: filepath.Join(prefix, "bin", "1bit"), Environ: os.Environ(), Installed: programsIn("")}
	path, from, err := m.Program(d)
	return doctor.Program{Path: path, From: from}, err
}

// runCall runs a program to its end and returns all that it printed, as far as that is of use.
func runCall(ctx context.Context, c doctor.Call) (string, error) {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.WaitDelay = time.Second // for grandchildren that keep the pipe open
	out := &limited{left: 64 << 10}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("it did not end: %w", context.Cause(ctx))
	}
	return out.buf.String(), err
}

// limited keeps the beginning of what is written to it.
type limited struct {
	buf  bytes.Buffer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	l.buf.Write(b[:n])
	return len(b), nil
}
