package backend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/backendtest"
	"onebit/engine/conduit"
	"onebit/engine/gguf/synth"
	"onebit/engine/plan"
	"onebit/engine/runner"
	"onebit/engine/sandbox"
	"onebit/engine/tensor"
)

// role names what a copy of this test binary does instead of testing.
const role = "ONEBIT_BACKEND_TEST_ROLE"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == sandbox.Command {
		spec, err := sandbox.Parse(os.Args[2])
		if err == nil {
			err = sandbox.Enter(spec)
		}
		fatal(err)
	}
	switch os.Getenv(role) {
	case "standin":
		fatal(standin(os.Args[len(os.Args)-1]))
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		fatal(standin(os.Args[len(os.Args)-1]))
	case "nest":
		// a wrapper that starts the server and does not pass signals on
		signal.Ignore(syscall.SIGTERM)
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		cmd.Env = append(os.Environ(), role+"=deaf")
		cmd.Stdout = os.Stdout
		fatal(cmd.Run())
	case "parent":
		fatal(parent())
	case "glutton":
		fatal(glutton(os.Args[len(os.Args)-1]))
	case "broken":
		os.Exit(7)
	case "engine":
		fatal(builtIn(os.Args))
	}
	os.Exit(m.Run())
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// builtIn is what 1bit does with the command line that CPU makes.
func builtIn(args []string) error {
	var model, alias, port, end string
	for i, name := range args[:len(args)-1] {
		switch name {
		case "-m":
			model = args[i+1]
		case "--alias":
			alias = args[i+1]
		case "--port":
			port = args[i+1]
		case "--conduit":
			end = args[i+1]
		}
	}
	var l net.Listener
	var err error
	if end != "" {
		l, err = conduit.Listen(os.NewFile(conduit.Descriptor, end))
	} else {
		l, err = net.Listen("tcp4", "127.0.0.1:"+port)
	}
	if err != nil {
		return err
	}
	r, err := runner.New(runner.Config{Model: model, Alias: alias, Parallel: 2, Context: 1024, Listener: l})
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

func standin(port string) error {
	l, err := net.Listen("tcp4", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	return http.Serve(l, &backendtest.Standin{Model: "m", Exit: os.Exit})
}

// glutton is a standin that reserves memory without end when it is asked to.
func glutton(port string) error {
	l, err := net.Listen("tcp4", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	model := &backendtest.Standin{Model: "m", Exit: os.Exit}
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/eat" {
			model.ServeHTTP(w, r)
			return
		}
		var all [][]byte
		for range 256 { // 64 GiB that nobody touches
			all = append(all, make([]byte, 256<<20))
		}
		fmt.Fprint(w, len(all))
	}))
}

// own returns the command that runs this binary in another role.
func own(as string) func(port int) backend.Command {
	return func(port int) backend.Command {
		return backend.Command{Path: os.Args[0], Args: []string{strconv.Itoa(port)}, Env: []string{role + "=" + as}}
	}
}

func newChild(as string, stdout io.Writer) (*backend.Child, error) {
	return childOf(own(as), stdout)
}

func childOf(command func(port int) backend.Command, stdout io.Writer) (*backend.Child, error) {
	return backend.NewChild(childConfig(command, stdout))
}

// confine starts this binary as our own engine in a sandbox.
func confine(t *testing.T, model string, c backend.Command) backend.Launch {
	args := slices.Clone(c.Args)
	args[slices.Index(args, "--port")+1] = backend.PortMark
	confinement := backend.Confinement{Executable: os.Args[0], Environ: os.Environ(), Scratch: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	return confinement.Launch(backend.Options{Model: model}, backend.ChildSpec{
		Device: engine.CPU, Builtin: true, Program: c.Path, Args: args, Env: append(c.Env, role+"=engine"),
	})
}

func childConfig(command func(port int) backend.Command, stdout io.Writer) backend.ChildConfig {
	return backend.ChildConfig{
		Name: "cpu", Slots: 2, Command: command, Stdout: stdout, Log: slog.New(slog.DiscardHandler),
		Limits: backend.Limits{Poll: 20 * time.Millisecond, PauseMin: 20 * time.Millisecond, Stop: time.Second},
	}
}

// parent keeps a child until it is killed. The child writes to the same standard output.
func parent() error {
	os.Unsetenv(role)
	c, err := newChild("standin", os.Stdout)
	if err != nil {
		return err
	}
	go func() {
		if err := c.Ready(context.Background()); err == nil {
			fmt.Println("ready")
		}
	}()
	return c.Run(context.Background())
}

// start runs a child of real processes until the test ends.
func start(t *testing.T, as string, stdout io.Writer) *backend.Child {
	t.Helper()
	c, err := newChild(as, stdout)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, c)
	return c
}

// keep runs a child until the test ends and waits until it is ready.
func keep(t *testing.T, c *backend.Child) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// pid asks the stand-in which process it is.
func pid(t *testing.T, c *backend.Child) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/props", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Relay(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var props struct{ Pid int }
	if err := json.NewDecoder(res.Body).Decode(&props); err != nil || props.Pid == 0 {
		t.Fatalf("pid %d, %v", props.Pid, err)
	}
	return props.Pid
}

func TestChildConforms(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Subject {
		return backendtest.Subject{Backend: start(t, "standin", nil), Good: `{}`, Bad: `{"standin":"refuse"}`, Long: `{"standin":"endless"}`}
	})
}

// TestBuiltInEngineConforms holds our own engine, in a process of its own and with a tiny model of random weights, to
// what every backend promises.
func TestBuiltInEngineConforms(t *testing.T) {
	for _, c := range []struct {
		name             string
		confined, handed bool
	}{{"free", false, false}, {"in a sandbox", true, false}, {"without a network", true, true}} {
		t.Run(c.name, func(t *testing.T) { builtInConforms(t, c.confined, c.handed) })
	}
}

func builtInConforms(t *testing.T, confined, handed bool) {
	backendtest.Run(t, func(t *testing.T) backendtest.Subject {
		file, err := synth.Bytes(synth.Tiny("llama", tensor.Q8_0))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "tiny.gguf")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		command := backend.CPU(backend.CPUConfig{Executable: os.Args[0], Model: path, Alias: "tiny"})
		cfg := childConfig(func(port int) backend.Command {
			cmd := command(port)
			cmd.Env = append(cmd.Env, role+"=engine")
			return cmd
		}, os.Stderr)
		if confined {
			cfg.Launch, cfg.Conduit = confine(t, path, command(0)), handed
		}
		c, err := backend.NewChild(cfg)
		if err != nil {
			t.Fatal(err)
		}
		keep(t, c)
		if info := c.Info(); info.Context != 512 || len(info.Meta) == 0 {
			t.Errorf("info %+v", info)
		}
		const ask = `{"messages":[{"role":"user","content":"hi"}],"ignore_eos":true,`
		return backendtest.Subject{Backend: c, Good: ask + `"max_tokens":12}`, Bad: `{"messages":[]}`, Long: ask + `"max_tokens":400}`}
	})
}

func TestChildComesBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		lose   func(t *testing.T, c *backend.Child) error
		events int
	}{
		{"killed between requests", func(t *testing.T, c *backend.Child) error {
			over := pid(t, c)
			if err := syscall.Kill(over, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_, err := generate(t.Context(), c, chat("stall", true)) // whichever comes first, the request or the news
			return err
		}, 0},
		{"dies before the first byte", func(t *testing.T, c *backend.Child) error {
			_, err := generate(t.Context(), c, chat("die", true))
			return err
		}, 0},
		{"dies after the first byte", func(t *testing.T, c *backend.Child) error {
			events, err := generate(t.Context(), c, chat("die_after", true))
			if len(events) != 2 {
				t.Errorf("%d events before the end, want 2", len(events))
			}
			return err
		}, 2},
		{"dies in an unstreamed answer", func(t *testing.T, c *backend.Child) error {
			_, err := generate(t.Context(), c, chat("die_after", false))
			return err
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			child := start(t, "standin", nil)
			before := pid(t, child)
			err := c.lose(t, child)
			_, unavailable := errors.AsType[*engine.UnavailableError](err)
			if !errors.Is(err, engine.ErrLost) && !unavailable {
				t.Errorf("got %v, want ErrLost", err)
			}
			if err := child.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			if events, err := generate(t.Context(), child, chat("", true)); err != nil || len(events) != 8 {
				t.Errorf("afterwards: %d events, %v", len(events), err)
			}
			if after := pid(t, child); after == before {
				t.Error("it is still the same process")
			}
		})
	}
}

// TestChildThatEats ends when it wants more memory than its model could need, which is told; the others live, and it
// comes back.
func TestChildThatEats(t *testing.T) {
	if _, err := plan.ReadMemory(os.ReadFile); err != nil {
		t.Fatal(err)
	}
	log, errs := &safe{}, &safe{}
	begin := func() *backend.Child {
		cfg := childConfig(nil, nil)
		cfg.Log, cfg.Stderr = slog.New(slog.NewTextHandler(log, nil)), errs
		confinement := backend.Confinement{Executable: os.Args[0], Environ: os.Environ(), Log: cfg.Log}
		cfg.Launch = confinement.Launch(backend.Options{}, backend.ChildSpec{
			Device: engine.CPU, Program: os.Args[0], Args: []string{backend.PortMark}, Env: []string{role + "=glutton"},
		})
		c, err := backend.NewChild(cfg)
		if err != nil {
			t.Fatal(err)
		}
		keep(t, c)
		return c
	}
	greedy, modest := begin(), begin()
	before, other := pid(t, greedy), pid(t, modest)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/eat", nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := greedy.Relay(req); err == nil {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("it got %s pieces of 256 MiB", b)
	}
	if err := greedy.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := pid(t, greedy); after == before {
		t.Error("it lives")
	}
	if pid(t, modest) != other {
		t.Error("another child is gone too")
	}
	if text := log.String(); !strings.Contains(text, "backend ended") || !strings.Contains(text, "exit status ") {
		t.Errorf("the log says %s", text)
	}
	if text := errs.String(); !strings.Contains(text, "out of memory") && !strings.Contains(text, "failed to allocate") { // the latter with the race detector
		t.Errorf("the child says %s", text)
	}
}

func TestChildThatCannotStart(t *testing.T) {
	c, err := newChild("broken", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("Run = %v, want its exit status", err)
	}
}

func TestChildWithoutProgram(t *testing.T) {
	c, err := backend.NewChild(backend.ChildConfig{
		Name: "cpu", Slots: 1, Log: slog.New(slog.DiscardHandler),
		Command: func(int) backend.Command { return backend.Command{Path: "/nowhere/at/all"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Run = %v, want that there is no such file", err)
	}
}

// ends waits until everybody who holds the other end of a pipe has gone.
func ends(t *testing.T, r *os.File) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Errorf("somebody is left who holds the pipe: %v", err)
	}
}

func TestChildLeavesNobodyBehindWhenStopped(t *testing.T) {
	for _, as := range []string{"standin", "deaf", "nest"} {
		t.Run(as, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			t.Run("life", func(t *testing.T) { start(t, as, w) })
			w.Close()
			ends(t, r)
		})
	}
}

func TestChildDiesWithItsParent(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), role+"=parent")
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	lines := bufio.NewReader(r)
	if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the parent said %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ends(t, r) // the child holds the pipe too
	cmd.Wait()
}

// safe is a buffer that processes write to.
type safe struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *safe) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
