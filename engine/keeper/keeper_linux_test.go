package keeper_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	"onebit/engine/keeper"
	"onebit/engine/runner"
	"onebit/engine/sandbox"
	"onebit/engine/tensor"

	"github.com/google/go-cmp/cmp"
)

// role names, in the environment, what a copy of this test binary does instead of testing.
const role = "ONEBIT_KEEPER_TEST_ROLE"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == sandbox.Command:
		if err := sandbox.Run(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) > 1 && os.Args[1] == "engine":
		fmt.Fprintln(os.Stderr, serve(os.Args))
		os.Exit(1)
	case os.Getenv(role) == "keeper":
		fmt.Fprintln(os.Stderr, keep())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serve is what 1bit does with the command line of its own engine.
func serve(args []string) error {
	of := map[string]string{}
	for i := 2; i < len(args)-1; i += 2 {
		of[args[i]] = args[i+1]
	}
	var l net.Listener
	var err error
	if of["--conduit"] != "" {
		l, err = conduit.Listen(os.NewFile(conduit.Descriptor, "conduit"))
	} else {
		l, err = net.Listen("tcp4", "127.0.0.1:"+of["--port"])
	}
	if err != nil {
		return err
	}
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "variables:", os.Environ(), "user:", os.Getuid(), os.Getgid(), groups)
	r, err := runner.New(runner.Config{Model: of["-m"], Alias: of["--alias"], Parallel: 2, Context: 1024, SlotDir: of["--slot-save-path"], Listener: l})
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

// keep is a keeper in a process of its own. Its socket is the last argument.
func keep() error {
	os.Unsetenv(role)
	l, k, err := open(os.Args[len(os.Args)-1], config{program: os.Args[0], client: os.Getuid()})
	if err != nil {
		return err
	}
	fmt.Println("listening")
	return k.Serve(context.Background(), l)
}

// config says how a keeper differs from others.
type config struct {
	program string // our own, which may be a copy
	users   keeper.Users
	client  int
	slots   string
}

// open makes a keeper.
func open(socket string, c config) (*net.UnixListener, *keeper.Keeper, error) {
	machine, err := backend.ThisMachine()
	if err != nil {
		return nil, nil, err
	}
	machine.Executable = c.program
	machine.Environ = nil
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	k, err := keeper.New(keeper.Config{
		Machine: machine, Client: c.client, Users: c.users, Slots: c.slots, Log: log,
		Confinement: backend.Confinement{Executable: machine.Executable, Environ: os.Environ(), Log: log},
	})
	if err != nil {
		return nil, nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	return l, k, err
}

// start serves a keeper until the test ends and returns its socket.
func start(t *testing.T, program string, users keeper.Users, client int) string {
	t.Helper()
	return startWith(t, config{program: program, users: users, client: client})
}

func startWith(t *testing.T, c config) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, k, err := open(socket, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := k.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		group.Wait()
	})
	return socket
}

// tiny is a model that everybody can read.
func tiny(t *testing.T) string {
	t.Helper()
	file, err := synth.Bytes(synth.Tiny("llama", tensor.Q8_0))
	if err != nil {
		t.Fatal(err)
	}
	return public(t, "tiny.gguf", file, 0o644)
}

// copyOfUs is this program where everybody can run it.
func copyOfUs(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	return public(t, "1bit", b, 0o755)
}

// public writes a file that everybody can read.
func public(t *testing.T, name string, file []byte, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "onebit-keeper-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, name)
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, file, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// safe is a buffer that processes write to.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
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

// child is a child that a keeper runs, kept alive until the test ends.
func child(t *testing.T, socket, model string, stderr io.Writer) *backend.Child {
	t.Helper()
	return childWith(t, socket, backend.Options{Model: model, Alias: "tiny", Device: engine.CPU}, stderr)
}

func childWith(t *testing.T, socket string, o backend.Options, stderr io.Writer) *backend.Child {
	t.Helper()
	c, err := backend.NewChild(backend.ChildConfig{
		Name: "cpu", Slots: 2, Conduit: true, Log: slog.New(slog.NewTextHandler(stderr, nil)), Stderr: stderr,
		Launch: keeper.Client{Socket: socket}.Launch(o, 0),
		Limits: backend.Limits{Poll: 20 * time.Millisecond, PauseMin: 20 * time.Millisecond, PauseMax: 100 * time.Millisecond, Stop: 5 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		group.Wait()
	})
	if err := c.Ready(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	return c
}

const ask = `{"messages":[{"role":"user","content":"hi"}],"ignore_eos":true,`

// TestKeptChildConforms holds a model behind a keeper to what every backend promises.
func TestKeptChildConforms(t *testing.T) {
	model := tiny(t)
	backendtest.Run(t, func(t *testing.T) backendtest.Subject {
		c := child(t, start(t, os.Args[0], keeper.Users{}, os.Getuid()), model, &safe{})
		return backendtest.Subject{Backend: c, Good: ask + `"max_tokens":12}`, Bad: `{"messages":[]}`, Long: ask + `"max_tokens":400}`}
	})
}

// TestKeptChildTellsAndHasNothing: what it writes arrives, and nothing of ours is in its environment.
func TestKeptChildTellsAndHasNothing(t *testing.T) {
	t.Setenv("ONEBIT_BACKUP_PASSPHRASE", "canary")
	out := &safe{}
	child(t, start(t, os.Args[0], keeper.Users{}, os.Getuid()), tiny(t), out)
	if text := out.String(); !strings.Contains(text, "variables:") || strings.Contains(text, "canary") {
		t.Errorf("it wrote %s", text)
	}
}

// TestKeptChildHasAUserOfItsOwn runs where we may become others.
func TestKeptChildHasAUserOfItsOwn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may run processes as other users: run this test as root, as make test-all does in a container")
	}
	program, model := copyOfUs(t), tiny(t)
	const first = 70950
	out := &safe{}
	socket := start(t, program, keeper.Users{First: first, Count: 2}, 0)
	child(t, socket, model, out)
	child(t, socket, model, out)
	for _, want := range []string{fmt.Sprintf("user: %d %d", first, first), fmt.Sprintf("user: %d %d", first+1, first+1)} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if _, err := (keeper.Client{Socket: socket}).Launch(backend.Options{Model: model, Device: engine.CPU}, 0)(backend.Place{Port: 18999}, nil, nil); err == nil || !strings.Contains(err.Error(), "have a process") {
		t.Errorf("a third process: %v", err)
	}
}

// TestSweep kills what a user has left behind, whatever it did to be missed, and nobody else.
func TestSweep(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may run processes as other users: run this test as root, as make test-all does in a container")
	}
	sleeper := func(uid uint32) *exec.Cmd {
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	left, other := sleeper(70960), sleeper(70961)
	confinement := backend.Confinement{Executable: copyOfUs(t), As: &backend.Identity{UID: 70960, GID: 70960}}
	if err := confinement.Sweep(); err != nil {
		t.Fatal(err)
	}
	if err := left.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("what was left behind ended with %v", err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("somebody else is gone: %v", err)
	}
	other.Process.Kill()
	other.Wait()
	confinement.As = &backend.Identity{UID: 1000, GID: 1000}
	if err := confinement.Sweep(); err == nil || !strings.Contains(err.Error(), "not ours to clear") {
		t.Errorf("somebody's own processes would be killed: %v", err)
	}
}

// TestKeptChildHasNoSocketOfItsOwn: what it is reached through is the conduit, and that is all it has.
func TestKeptChildHasNoSocketOfItsOwn(t *testing.T) {
	c := child(t, start(t, os.Args[0], keeper.Users{}, os.Getuid()), tiny(t), &safe{})
	pid := pidOf(t, c)
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	listening := ""
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, file))
		if err == nil {
			listening += string(b)
		}
	}
	sockets := 0
	for _, fd := range fds {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		inode, ok := strings.CutPrefix(to, "socket:[")
		if !ok {
			continue
		}
		sockets++
		if strings.Contains(listening, " "+strings.TrimSuffix(inode, "]")+" ") {
			t.Errorf("%s is a socket of the network", to)
		}
	}
	if sockets == 0 {
		t.Error("it has no socket at all: this test looks at the wrong process")
	}
}

// TestWrongThingsHandedOver: what comes with a request must be a conduit, and only our own program takes one.
func TestWrongThingsHandedOver(t *testing.T) {
	socket, model := start(t, os.Args[0], keeper.Users{}, os.Getuid()), tiny(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tcp, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	for name, end := range map[string]*os.File{"a file": null, "somebody's port": tcp} {
		p, err := keeper.Client{Socket: socket}.Launch(backend.Options{Model: model, Device: engine.CPU}, 0)(backend.Place{End: end}, nil, nil)
		if err == nil {
			p.Kill()
		}
		if err == nil || !strings.Contains(err.Error(), "no conduit") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPlanIsTheKeepers: who asks gets the plan that the keeper makes with its own programs, or why there is none.
func TestPlanIsTheKeepers(t *testing.T) {
	model, program := tiny(t), copyOfUs(t)
	client := keeper.Client{Socket: start(t, program, keeper.Users{}, os.Getuid())}
	o := backend.Options{Model: model, Alias: "tiny", Device: engine.CPU, Context: 512, Parallel: 2, LlamaServer: "/nowhere"}
	got, err := client.Plan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := backend.ThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	machine.Executable, machine.Environ, o.LlamaServer = program, nil, ""
	want, err := backend.NewPlan(t.Context(), machine, o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	o.Device = engine.Zinc
	if _, err := client.Plan(t.Context(), o); err == nil || !strings.Contains(err.Error(), "zinc") {
		t.Errorf("a device that is not there: %v", err)
	}
	o.Model = "m.gguf"
	if _, err := client.Plan(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no absolute path") {
		t.Errorf("a relative path: %v", err)
	}
}

// TestPatience: a keeper that is not there yet is waited for; one that does not come is told of.
func TestPatience(t *testing.T) {
	socket, model := filepath.Join(t.TempDir(), "late"), tiny(t)
	o := backend.Options{Model: model, Device: engine.CPU}
	if _, err := (keeper.Client{Socket: socket}).Plan(t.Context(), o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nobody is there: %v", err)
	}
	planned := make(chan error, 1)
	go func() {
		_, err := keeper.Client{Socket: socket, Patience: time.Minute}.Plan(context.Background(), o)
		planned <- err
	}()
	if err := os.Symlink(start(t, os.Args[0], keeper.Users{}, os.Getuid()), socket); err != nil {
		t.Fatal(err)
	}
	if err := <-planned; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := (keeper.Client{Socket: socket + "er", Patience: time.Hour}).Plan(ctx, o); err == nil {
		t.Error("it has a plan of nobody")
	}
}

func TestKeeperRefuses(t *testing.T) {
	model := tiny(t)
	launch := func(socket string, o backend.Options, n, port int) error {
		p, err := keeper.Client{Socket: socket}.Launch(o, n)(backend.Place{Port: port}, nil, nil)
		if err == nil {
			p.Kill()
		}
		return err
	}
	mine, others := start(t, os.Args[0], keeper.Users{}, os.Getuid()), start(t, os.Args[0], keeper.Users{}, os.Getuid()+1)
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"another user", launch(others, backend.Options{Model: model}, 0, 18999), "is not served here"},
		{"a file that is no model", launch(mine, backend.Options{Model: "/etc/hostname"}, 0, 18999), "hostname"},
		{"a folder of devices", launch(mine, backend.Options{Model: "/dev/zero", Device: engine.CPU}, 0, 18999), "/dev/zero"},
		{"a relative path", launch(mine, backend.Options{Model: "m.gguf"}, 0, 18999), "no absolute path"},
		{"neither port nor conduit", launch(mine, backend.Options{Model: model, Device: engine.CPU}, 0, 0), "neither a port nor a conduit"},
		{"a process that the plan lacks", launch(mine, backend.Options{Model: model, Device: engine.CPU}, 5, 18999), "no process 5"},
		{"nobody there", launch(filepath.Join(t.TempDir(), "s"), backend.Options{Model: model}, 0, 18999), "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", c.err, c.want)
			}
		})
	}
	if _, err := keeper.New(keeper.Config{Machine: &backend.Machine{}, Log: slog.Default(), Confinement: backend.Confinement{Executable: "/x"}, Users: keeper.Users{First: 1000, Count: 1}}); err == nil {
		t.Error("somebody's own user is taken for children")
	}
}

// TestConnectionIsTheProcess: when the client goes, so does the process.
func TestConnectionIsTheProcess(t *testing.T) {
	socket := start(t, os.Args[0], keeper.Users{}, os.Getuid())
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, `{"model":%q,"device":"cpu","port":%d}`+"\n", tiny(t), freePort(t))
	var said struct {
		PID   int
		Error string
	}
	if err := json.NewDecoder(conn).Decode(&said); err != nil || said.PID == 0 {
		t.Fatalf("%+v, %v", said, err)
	}
	conn.Close()
	gone(t, said.PID)
}

// freePort returns a number that is free, below
// those that systems give out by themselves: nobody is given it between here and its use.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(12000)
		if l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	fd, err := syscall.Open("/proc/"+strconv.Itoa(pid), syscall.O_RDONLY, 0)
	if err != nil {
		return
	}
	syscall.Close(fd)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); runtime.Gosched() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
	}
	t.Errorf("process %d is left", pid)
}

// TestKilledKeeper: no process outlives it, and a child comes back once there is another.
func TestKilledKeeper(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	run := func() *exec.Cmd {
		os.Remove(socket)
		cmd := exec.Command(os.Args[0], socket)
		cmd.Env = append(os.Environ(), role+"=keeper")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		if _, err := out.Read(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	first := run()
	c := child(t, socket, tiny(t), &safe{})
	before := pidOf(t, c)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, before)
	first.Wait()
	run()
	for end := time.Now().Add(60 * time.Second); ; {
		if err := c.Ready(t.Context()); err == nil {
			if pid := pidOf(t, c); pid != before && pid != 0 {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatal("the child did not come back")
		}
		runtime.Gosched()
	}
}

// pidOf finds the process that serves: the one whose command line has the model's name.
func pidOf(t *testing.T, c *backend.Child) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Relay(req)
	if err != nil {
		return 0
	}
	res.Body.Close()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, _ := os.ReadFile(name)
		if args := strings.Split(string(b), "\x00"); len(args) > 2 && args[0] == os.Args[0] && args[1] == "engine" && strings.Contains(string(b), filepath.Dir(os.Args[0])) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			return pid
		}
	}
	return 0
}
