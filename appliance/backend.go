package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"onebit/appliance/catalog"
	"onebit/appliance/doctor"
	"onebit/appliance/egress"
	"onebit/appliance/pool"
	installed "onebit/appliance/program"
	"onebit/engine"
	"onebit/engine/backend"
)

const backendUsage = `usage: 1bit backend list
       1bit backend install DEVICE SOURCE [--sha256 HEX] [--version V] [--model FILE]
       1bit backend verify DEVICE...
       1bit backend rollback DEVICE [--model FILE]

Servers that run models on a device, side by side in versions. install takes a folder, a .tar.gz or .zip file, or a URL
with the hash of what it brings; it lets the program decode a token here, and only then makes it the one that holds. The
version before stays for rollback. Devices: %s

      --sha256 HEX   the hash of the archive; a URL needs it
      --version V    what to call the version (the archive's name)
      --model FILE   the model to try the program with (smollm2)
      --state DIR    where the box keeps its state ($STATE_DIRECTORY, else ~/.local/state/1bit)
  -h, --help         this text
`

// programsIn is the folder of installed programs in a box's state; an empty state is the usual one. It is empty where
// there is no such place.
func programsIn(state string) string {
	if state == "" {
		var err error
		if state, err = stateDir(os.Getenv); err != nil {
			return ""
		}
	}
	return filepath.Join(state, "backends")
}

// backendCommand is what `1bit backend` was asked for.
type backendCommand struct {
	args                          []string
	state, model, sha256, version string
	stdout, stderr                io.Writer
}

// runBackend is `1bit backend`.
func runBackend(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	usage := fmt.Sprintf(backendUsage, strings.Join(installed.Devices(), ", "))
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	if slices.Contains(args, "-h") || slices.Contains(args, "--help") {
		fmt.Fprint(stdout, usage)
		return 0
	}
	c := backendCommand{stdout: stdout, stderr: stderr}
	options := map[string]*string{"--state": &c.state, "--model": &c.model, "--sha256": &c.sha256, "--version": &c.version}
	for rest := args[1:]; len(rest) > 0; {
		value, ok := options[rest[0]]
		switch {
		case ok && len(rest) > 1:
			*value, rest = rest[1], rest[2:]
		case strings.HasPrefix(rest[0], "-"):
			fmt.Fprintf(stderr, "1bit backend: unexpected %q\n%s", rest[0], usage)
			return 2
		default:
			c.args, rest = append(c.args, rest[0]), rest[1:]
		}
	}
	run, ok := map[string]func(context.Context, *installed.Store) error{
		"list": c.list, "install": c.install, "verify": c.verify, "rollback": c.rollback,
	}[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "1bit backend: unknown command %q\n%s", args[0], usage)
		return 2
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	store := &installed.Store{Dir: programsIn(c.state), Check: c.check}
	if store.Dir == "" {
		fmt.Fprint(stderr, "1bit backend: there is no place for the state; give --state DIR\n")
		return 1
	}
	if err := run(ctx, store); err != nil {
		fmt.Fprintf(stderr, "1bit backend %s: %v\n", args[0], err)
		return 1
	}
	return 0
}

// list prints all versions.
func (c backendCommand) list(_ context.Context, s *installed.Store) error {
	all, err := s.List()
	if err != nil && len(all) == 0 {
		return err
	}
	if err != nil {
		defer fmt.Fprintf(c.stderr, "1bit backend list: %v\n", err)
	}
	if len(all) == 0 {
		fmt.Fprintln(c.stdout, "nothing is installed; serve uses what came with it and what is on PATH, as `1bit doctor` says")
		return nil
	}
	t := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	for _, v := range all {
		mark := ""
		switch {
		case v.Current:
			mark = "current"
		case v.Previous:
			mark = "previous"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", v.Device, v.Name, mark, v.Manifest.Installed.Format(time.DateOnly), v.Manifest.Source)
	}
	return t.Flush()
}

func (c backendCommand) install(ctx context.Context, s *installed.Store) error {
	if len(c.args) != 2 {
		return errors.New("a device and a source are needed")
	}
	hub, err := catalog.HubFromEnv(egress.Token{}) // the same rules for what may be reached
	if err != nil {
		return err
	}
	bar := newBar(c.stderr)
	defer bar.end()
	v, err := s.Install(ctx, installed.Wish{
		Device: c.args[0], Source: c.args[1], SHA256: c.sha256, Version: c.version,
		Client: hub.Client, Bytes: bar.show, Space: doctor.Space,
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s: %s holds\n%s\n", v.Device, v.Name, v.Program())
	return nil
}

func (c backendCommand) verify(ctx context.Context, s *installed.Store) error {
	if len(c.args) == 0 {
		return errors.New("a device is needed")
	}
	for _, d := range c.args {
		v, err := s.Verify(ctx, d)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s: %s is as it was installed, %d files\n", d, v.Name, len(v.Manifest.Files))
	}
	return nil
}

func (c backendCommand) rollback(ctx context.Context, s *installed.Store) error {
	if len(c.args) != 1 {
		return errors.New("one device is needed")
	}
	v, err := s.Rollback(ctx, c.args[0])
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s: %s holds again\n", v.Device, v.Name)
	return nil
}

// check tries a program with the model that was named, or the small one of the catalogue.
func (c backendCommand) check(ctx context.Context, device, path string) error {
	model := c.model
	if model == "" {
		lib, err := library()
		if err != nil {
			return err
		}
		m, err := lib.Find(catalog.Small)
		if err != nil {
			return fmt.Errorf("there is no model to try it with: `1bit model pull %s` obtains one, or name one with --model", catalog.Small)
		}
		model = m.Path()
	}
	fmt.Fprintf(c.stderr, "1bit backend: trying it on %s with %s\n", device, filepath.Base(model))
	return tryProgram(ctx, device, path, model)
}

// tryLimit is how long a program may take to its first token.
const tryLimit = 3 * time.Minute

// tryProgram starts a device's program with a model, waits until it says that it is healthy, and lets it decode a token.
// It is somebody else's program, and new: it runs in a sandbox, also where root installs it.
func tryProgram(ctx context.Context, device, path, model string) error {
	machine, err := backend.ThisMachine()
	if err != nil {
		return err
	}
	o := backend.Options{Model: model, Device: engine.Device(device), Context: 512, Parallel: 1, NoRecipes: true}
	switch device {
	case "lean":
		o.Device, o.Lean, o.LlamaServer = engine.Vulkan, true, path
	case "zinc":
		o.Zinc = path
	case "ds4":
		o.DS4 = path
	case "mlx":
		o.MLXServer = path
	case "npu":
		o.NPU = path
	case "onnx":
		machine.Environ = append(machine.Environ, "ONEBIT_ONNX_SERVER="+path)
	default:
		o.LlamaServer = path
	}
	ctx, cancel := context.WithTimeoutCause(ctx, tryLimit, &engine.TimeoutError{Timer: "trying a program", Limit: tryLimit})
	defer cancel()
	said := &tail{}
	confined, done, err := confinedTrial(machine)
	if err != nil {
		return err
	}
	defer done()
	starter := &pool.Starter{Machine: machine, Launch: confined, Stdout: said, Stderr: said, Log: slog.New(slog.DiscardHandler), Limits: backend.Limits{Start: tryLimit}}
	instance, err := starter.Start(ctx, pool.ModelSpec{Name: "trial", Options: o})
	if err != nil {
		return because(err, said)
	}
	defer instance.Stop()
	req := &engine.Request{Kind: engine.Chat, Raw: []byte(`{"messages":[{"role":"user","content":"Hello"}],"max_tokens":1,"temperature":0}`)}
	if _, err := instance.Backend().Generate(ctx, req, func(engine.Chunk) error { return nil }); err != nil {
		return because(err, said)
	}
	return nil
}

// confinedTrial is how programs are tried: as a box starts them, with a folder that goes afterwards. A nil launcher is for
// systems without sandboxes.
func confinedTrial(machine *backend.Machine) (launcher, func(), error) {
	if runtime.GOOS != "linux" || os.Getenv(sandboxVariable) == "off" {
		return nil, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "1bit-trial-")
	if err != nil {
		return nil, nil, fmt.Errorf("making a folder to try it in: %w", err)
	}
	c := backend.Confinement{
		Executable: machine.Executable, Environ: machine.Environ, Scratch: dir, Fresh: true, Log: slog.New(slog.DiscardHandler),
	}
	machine.Ask = c.Ask
	return func(o backend.Options, _ int, s backend.ChildSpec) backend.Launch { return c.Launch(o, s) }, func() { _ = os.RemoveAll(dir) }, nil
}

// because adds to an error what a program printed last.
func because(err error, said *tail) error {
	text := said.String()
	if last := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]); last != "" {
		return fmt.Errorf("%w; it printed last: %.200s", err, last)
	}
	return err
}
