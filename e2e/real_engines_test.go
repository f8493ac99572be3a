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

// llamaOnShelf puts the reference's server where everybody can run it, behind a script that says it has a graphics card
// and takes away what only a server with one understands. So a box plans it as it would any installed llama-server.
func llamaOnShelf(t *testing.T, dir string) (program string) {
	t.Helper()
	from := filepath.Dir(llamaProgram(t, "llama-server"))
	at := filepath.Join(dir, "llama")
	if out, err := exec.Command("cp", "-a", from, at).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program = filepath.Join(at, "llama-server")
	script := `#!/bin/bash
[ "$1" != --list-devices ] || { printf 'Available devices:\n  Vulkan0: a card (16384 MiB, 16000 MiB free)\n'; exit; }
args=()
while [ $# -gt 0 ]; do
  case $1 in --device|-ngl) shift ;; *) args+=("$1") ;; esac
  shift
done
export LD_LIBRARY_PATH=${0%/*} # it was built for another folder
exec "${0%/*}/llama-server.real" -ngl 0 -t 1 "${args[@]}"
`
	if err := errors.Join(os.Rename(program, program+".real"), os.WriteFile(program, []byte(script), 0o755), os.Chmod(at, 0o755)); err != nil {
		t.Fatal(err)
	}
	return program
}

// TestRealLlamaBehindEngines: the reference's llama-server, which root alone has named, as a user of its own, in its
// sandbox and limits. It is loaded, answers, comes back when it is killed, is unloaded and loaded again.
func TestRealLlamaBehindEngines(t *testing.T) {
	asOthers(t)
	dir, program, model := shelf(t)
	server := llamaOnShelf(t, dir)
	socket := socketIn(t, dir)
	startEngines(t, program, socket, "ONEBIT_LLAMA_SERVER="+server)
	state := filepath.Join(dir, "state")
	config := fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048, parallel: 2, device: vulkan}]\nprograms: {llama_server: /nowhere/llama-server}\n", model)
	if err := errors.Join(os.Mkdir(state, 0o700), os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(config), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{state, filepath.Join(state, "1bit.yaml")} {
		if err := os.Chown(path, boxUser, boxUser); err != nil {
			t.Fatal(err)
		}
	}
	b := startBoxAs(t, program, state, &syscall.Credential{Uid: boxUser, Gid: boxUser}, "ONEBIT_ENGINES="+socket)
	b.claim()
	key, _ := b.key("")
	const ask = `{"model":"small","messages":[{"role":"user","content":"What is the capital of Germany?"}],"max_tokens":24,"temperature":0}`
	answers := func() {
		t.Helper()
		if status, text := b.do(key, "POST", "/v1/chat/completions", ask); status != 200 || !strings.Contains(text, "Berlin") {
			t.Fatalf("%d %s\n%s", status, text, b.log)
		}
	}
	answers()
	if !b.log.says("programs has no effect", 1) {
		t.Errorf("nobody is told that programs is of no use\n%s", b.log)
	}
	first := b.server()
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", first)); err != nil || filepath.Base(exe) != "llama-server.real" {
		t.Errorf("it is %s, %v", exe, err)
	}
	status := file(t, fmt.Sprintf("/proc/%d/status", first))
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
	limits := map[string]string{}
	for line := range strings.Lines(file(t, fmt.Sprintf("/proc/%d/limits", first))) {
		if name, rest, ok := strings.Cut(line, "  "); ok && len(strings.Fields(rest)) > 1 {
			limits[name] = strings.Fields(rest)[1]
		}
	}
	if data := limits["Max data size"]; data == "unlimited" || len(data) < 10 {
		t.Errorf("it may reserve %q bytes", data)
	}
	if limits["Max processes"] != "4096" || limits["Max core file size"] != "1" {
		t.Errorf("its limits are %v", limits)
	}
	if held := file(t, "/proc/net/tcp"); !strings.Contains(held, fmt.Sprintf(" %d ", firstServer+1)) {
		t.Error("its port is not its user's")
	}

	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, first)
	answers()
	second := b.server()
	if second == first {
		t.Error("it is still the same process")
	}

	b.admin("POST", "/models/small/unload", "")
	gone(t, second)
	nobody(t)
	answers()
	b.server()
	b.stop()
	nobody(t)
}

// TestProgramsAreOfNoUseBehindEngines: `1bit config check` says that programs has no effect.
func TestProgramsAreOfNoUseBehindEngines(t *testing.T) {
	state := boxState(t, "programs: {llama_server: /opt/llama-server}\n")
	for _, c := range []struct {
		env  string
		told bool
	}{{"ONEBIT_ENGINES=/run/x.sock", true}, {"ONEBIT_X=1", false}} {
		cmd := exec.Command(binary, "config", "check", "--state", state)
		cmd.Env = append(os.Environ(), c.env)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "programs has no effect") != c.told {
			t.Errorf("%s: %v: %s", c.env, err, out)
		}
	}
}

// TestBoxWaitsForItsEngines: a box that is started before the owner of its servers has everything once that is there.
func TestBoxWaitsForItsEngines(t *testing.T) {
	asOthers(t)
	dir, program, model := shelf(t)
	socket := socketIn(t, dir)
	state := filepath.Join(dir, "state")
	config := fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048, device: cpu}]\n", model)
	if err := errors.Join(os.Mkdir(state, 0o700), os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(config), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{state, filepath.Join(state, "1bit.yaml")} {
		if err := os.Chown(path, boxUser, boxUser); err != nil {
			t.Fatal(err)
		}
	}
	b := startBoxAs(t, program, state, &syscall.Credential{Uid: boxUser, Gid: boxUser}, "ONEBIT_ENGINES="+socket)
	b.claim()
	key, _ := b.key("")
	startEngines(t, program, socket)
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if status, text := b.do(key, "POST", "/v1/chat/completions", "{"+parisQuestion+"}"); status == 200 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d %s\n%s", status, text, b.log)
		}
	}
}
