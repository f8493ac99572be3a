//go:build linux

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// numbers of users that belong to nobody.
const (
	ownerUser   = 70899
	boxUser     = 70900
	firstServer = 70901
)

// asOthers skips a test where we may not become other users.
func asOthers(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may run the box and its engines as different users: run this test as root, as in a container")
	}
}

// shelf is a folder that everybody can read, with the program and a model.
func shelf(t *testing.T) (dir, program, model string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "onebit-shelf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, model = filepath.Join(dir, "1bit"), filepath.Join(dir, "small.gguf")
	for to, from := range map[string]string{program: binary, model: smollm2(t)} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, program, model
}

// socketIn is where the owner of the servers listens: in a folder that the box's group may enter.
func socketIn(t *testing.T, dir string) string {
	t.Helper()
	run := filepath.Join(dir, "run")
	if err := errors.Join(os.Mkdir(run, 0o750), os.Chown(run, ownerUser, boxUser)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(run, "engines.sock")
}

// startEngines starts `1bit engines` for the box's user and waits until it can be asked. It runs as the unit has it: as
// a user with three privileges.
func startEngines(t *testing.T, program, socket string, env ...string) *exec.Cmd {
	t.Helper()
	log := &tail{}
	caches := filepath.Join(filepath.Dir(program), "caches")
	if err := errors.Join(os.MkdirAll(caches, 0o700), os.Chown(caches, ownerUser, boxUser), os.Chmod(caches, 0o733|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "engines", "--socket", socket, "--client", fmt.Sprint(boxUser), "--users", fmt.Sprintf("%d-%d", firstServer, firstServer+4), "--scratch", caches)
	cmd.Env = append(os.Environ(), env...)
	const kill, setGID, setUID = 5, 6, 7 // capabilities
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ownerUser, Gid: boxUser}, AmbientCaps: []uintptr{kill, setGID, setUID}}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-done })
	for end := time.Now().Add(30 * time.Second); !strings.Contains(log.String(), "can be asked for"); time.Sleep(20 * time.Millisecond) {
		select {
		case <-done:
			t.Fatalf("1bit engines ended at once\n%s", log)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("1bit engines does not listen\n%s", log)
		}
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Fatalf("the socket: %v, %v", info, err)
	}
	return cmd
}

// startBoxAs starts a box as another user, with more in its environment.
func startBoxAs(t *testing.T, program, state string, who *syscall.Credential, env ...string) *appliance {
	t.Helper()
	cmd := exec.Command(program, boxArguments(state)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	return openBox(t, cmd, state)
}

// serversOf lists the processes of a user.
func serversOf(t *testing.T, uid int) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		b, err := os.ReadFile(name)
		if err != nil || strings.Contains(string(b), "State:\tZ") {
			continue // it has gone
		}
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(filepath.Dir(name)), "%d", &pid); err == nil && strings.Contains(string(b), fmt.Sprintf("Uid:\t%d\t", uid)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// server waits for the one process of the second user of the servers; the first is for questions.
func (b *appliance) server() int {
	b.t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if pids := serversOf(b.t, firstServer+1); len(pids) == 1 {
			return pids[0]
		}
	}
	b.t.Fatalf("no model server runs as a user of its own\n%s", b.log)
	return 0
}

// nobody waits until no process runs as a server's user.
func nobody(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var left []int
		for uid := firstServer; uid < firstServer+5; uid++ {
			left = append(left, serversOf(t, uid)...)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("processes %v are left", left)
		}
	}
}

func file(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestEngines runs a box whose model servers another process owns, as the packages set it up: three kinds of users.
func TestEngines(t *testing.T) {
	asOthers(t)
	dir, program, model := shelf(t)
	socket := socketIn(t, dir)
	engines := startEngines(t, program, socket)
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(filepath.Join(state, "models"), 0o700); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(state, "models", "small.gguf") // a model of the box's own, which starts closed to others
	if err := os.Rename(model, inside); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048, device: cpu}]\nbackup: {folder: %q, passphrase: canary-passphrase}\n", inside, filepath.Join(dir, "copies"))
	if err := os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{state, filepath.Join(state, "models"), inside, filepath.Join(state, "1bit.yaml")} {
		if err := os.Chown(path, boxUser, boxUser); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(inside, 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() *appliance {
		return startBoxAs(t, program, state, &syscall.Credential{Uid: boxUser, Gid: boxUser}, "ONEBIT_ENGINES="+socket, "ONEBIT_CANARY=canary-variable")
	}
	b := start()
	b.claim()
	key, _ := b.key("")
	answers := func(b *appliance) {
		t.Helper()
		if status, text := b.do(key, "POST", "/v1/chat/completions", "{"+parisQuestion+"}"); status != 200 || !strings.Contains(text, "Paris") {
			t.Fatalf("%d %s\n%s", status, text, b.log)
		}
	}
	answers(b)
	first := b.server()
	status := file(t, fmt.Sprintf("/proc/%d/status", first))
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "Groups:\t \n"} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
	if env := file(t, fmt.Sprintf("/proc/%d/environ", first)); strings.Contains(env, "canary") || strings.Contains(env, "ONEBIT_ENGINES") {
		t.Errorf("its environment is %q", env)
	}
	if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", first)); err != nil || len(fds) > 12 {
		t.Errorf("it has %d descriptors, %v", len(fds), err)
	}
	if info, err := os.Stat(filepath.Join(state, "1bit.db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the store: %v, %v", info.Mode(), err)
	}
	for _, name := range []string{"1bit.db", "1bit.yaml"} { // by its user alone, without any sandbox
		cmd := exec.Command("cat", filepath.Join(state, name))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: firstServer + 1, Gid: firstServer + 1}}
		if cmd.Run() == nil {
			t.Errorf("the user of a model server can read %s", name)
		}
	}
	if held := file(t, "/proc/net/tcp") + file(t, "/proc/net/tcp6"); strings.Contains(held, fmt.Sprintf(" %d ", firstServer+1)) {
		t.Error("it has a socket of the network")
	}

	// the server dies: it comes back
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	answers(b)

	// the owner of the servers dies: nobody is left, and the box goes on with the next one
	second := b.server()
	if err := engines.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, second)
	nobody(t)
	startEngines(t, program, socket)
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		if status, text := b.do(key, "POST", "/v1/chat/completions", "{"+parisQuestion+"}"); status == 200 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the box does not recover: %d %s\n%s", status, text, b.log)
		}
	}

	// the box dies: nobody is left, and the next box starts its own
	third := b.server()
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-b.done
	gone(t, third)
	nobody(t)
	b = start()
	answers(b)
	b.stop()
	nobody(t)
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %d is left: %s", pid, b)
		}
	}
}

// TestEnginesServeOneUser: whoever else connects is refused, also root.
func TestEnginesServeOneUser(t *testing.T) {
	asOthers(t)
	dir, program, model := shelf(t)
	socket := socketIn(t, dir)
	startEngines(t, program, socket)
	state := boxState(t, fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048, device: cpu}]\n", model))
	b := startBoxAs(t, program, state, nil, "ONEBIT_ENGINES="+socket)
	b.claim()
	key, _ := b.key("")
	if status, text := b.do(key, "POST", "/v1/chat/completions", "{"+parisQuestion+"}"); status < 500 {
		t.Errorf("%d %s\n%s", status, text, b.log)
	}
	for end := time.Now().Add(20 * time.Second); !strings.Contains(b.log.String(), "user 0 is not served here"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) { // the line may come after the answer
			t.Fatalf("the log does not say why:\n%s", b.log)
		}
	}
}

// TestBoxConfinesItsServers: without another owner they are in sandboxes all the same, and none is left when the box is
// killed.
func TestBoxConfinesItsServers(t *testing.T) {
	t.Setenv("ONEBIT_CANARY", "canary-variable")
	b := startBox(t, boxState(t, fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048, device: cpu}]\n", smollm2(t))))
	b.claim()
	key, _ := b.key("")
	if status, text := b.do(key, "POST", "/v1/chat/completions", "{"+parisQuestion+"}"); status != 200 {
		t.Fatalf("%d %s\n%s", status, text, b.log)
	}
	if log := b.log.String(); !strings.Contains(log, "makes no code of data from here on") && !strings.Contains(log, "the system cannot keep it alone from that\" why=\"invalid argument") {
		t.Errorf("the box is not kept from making code\n%s", log)
	}
	servers := childrenOf(t, b.cmd.Process.Pid)
	if len(servers) != 1 {
		t.Fatalf("%d servers", len(servers))
	}
	if status := file(t, fmt.Sprintf("/proc/%d/status", servers[0])); !strings.Contains(status, "NoNewPrivs:\t1") || !strings.Contains(status, "CapEff:\t0000000000000000") {
		t.Errorf("it is %s", status)
	}
	if env := file(t, fmt.Sprintf("/proc/%d/environ", servers[0])); strings.Contains(env, "canary") {
		t.Errorf("its environment is %q", env)
	}
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-b.done
	gone(t, servers[0])
}
