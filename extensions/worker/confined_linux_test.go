package worker_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"onebit/engine/sandbox"
	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/wasm/wasmtest"
	"onebit/extensions/worker"
)

// stop stops a process and waits until it stands still.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(read(t, filepath.Join("/proc", strconv.Itoa(pid), "status")), "State:\tT") {
		runtime.Gosched()
	}
}

func signalled(p *os.Process) error { return p.Signal(syscall.Signal(0)) }

// TestConfined looks at a worker from outside: what the kernel says that it may.
func TestConfined(t *testing.T) {
	if missing := sandbox.Supported().Missing(); len(missing) > 0 {
		t.Skipf("this kernel cannot show it: %s", strings.Join(missing, "; "))
	}
	t.Setenv("CANARY", "secret")
	cfg := prepared(t, t.TempDir(), echo())
	w, _ := keep(t, cfg)
	if _, err := w.Call(t.Context(), route("{}")); err != nil {
		t.Fatal(err)
	}
	proc := filepath.Join("/proc", strconv.Itoa(w.Pid()))
	tasks, err := filepath.Glob(filepath.Join(proc, "task", "*", "status"))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no threads: %v", err)
	}
	for _, path := range tasks { // each thread
		status := read(t, path)
		for _, want := range []string{"Seccomp:\t2\n", "Seccomp_filters:\t2\n", "NoNewPrivs:\t1\n", "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n"} {
			if !strings.Contains(status, want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
	}
	if env := read(t, filepath.Join(proc, "environ")); env != "" {
		t.Errorf("its environment is %q", env)
	}
	links, err := filepath.Glob(filepath.Join(proc, "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil {
			continue
		}
		switch n := filepath.Base(link); {
		case (n == "0" || n == "1" || n == "3") && strings.HasPrefix(to, "socket:"), n == "2" && strings.HasPrefix(to, "pipe:"):
		case strings.HasPrefix(to, "anon_inode:"), strings.HasPrefix(to, "/memfd:"), strings.HasPrefix(to, "/sys/fs/cgroup/"): // Go's own: how many processors it may use
		default:
			t.Errorf("descriptor %s is %s", n, to)
		}
	}
	limits := read(t, filepath.Join(proc, "limits"))
	want := []string{"Max core file size 0 0", fmt.Sprintf("Max open files %d %[1]d", 32+cfg.Limits.Instances)}
	if !worker.Detecting {
		want = append(want, "Max data size "+strconv.Itoa(384<<20+cfg.Limits.Instances*int(cfg.Limits.Memory)<<16))
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(strings.Fields(limits), " "), w) {
			t.Errorf("%q is not among its limits:\n%s", w, limits)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestLateProcessIsKilled: a process that does not end a call in time is killed. That call answers timeout; the one beside it,
// which had more time, is sent to the next process.
func TestLateProcessIsKilled(t *testing.T) {
	cfg := prepared(t, t.TempDir(), echo())
	cfg.Limits.Deadline, cfg.Limits.Instances = 30*time.Second, 2
	w, _ := keep(t, cfg)
	if _, err := w.Call(t.Context(), route("{}")); err != nil {
		t.Fatal(err)
	}
	stop(t, w.Pid())
	var group sync.WaitGroup
	group.Go(func() {
		c := route("patient")
		if r, err := w.Call(t.Context(), c); err != nil || string(r.Answer) != "patient" {
			t.Errorf("the patient call: %q, %v", r.Answer, err)
		}
	})
	c := route("hasty")
	c.Deadline = time.Now().Add(100 * time.Millisecond)
	_, err := w.Call(t.Context(), c)
	if failed, ok := errors.AsType[*host.CallError](err); !ok || failed.Cause != host.CauseTimeout {
		t.Errorf("the hasty call: %v", err)
	}
	group.Wait()
	if w.Restarts() != 1 {
		t.Errorf("%d restarts", w.Restarts())
	}
}

// TestPreparingStandsBack: while a module is compiled, what serves requests goes before it.
func TestPreparingStandsBack(t *testing.T) {
	m := guest(&wasmtest.Module{})
	for range 40 {
		m.Func("", "", "", "", bytes.Repeat(append(wasmtest.I32(16), wasmtest.Op(0x1a)...), 8_000))
	}
	m.Func(abi.Route, "ii", "l", "", mirror)
	cfg := added(t, m.Bytes())
	done := make(chan error, 1)
	go func() { _, err := worker.Prepare(t.Context(), cfg); done <- err }()
	for seen := false; ; runtime.Gosched() {
		select {
		case err := <-done:
			if err != nil || !seen {
				t.Errorf("the child was seen standing back: %v; %v", seen, err)
			}
			return
		default:
		}
		lists, err := filepath.Glob("/proc/self/task/*/children")
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range lists {
			pids, _ := os.ReadFile(list) // a thread may have gone
			for _, pid := range strings.Fields(string(pids)) {
				stat, _ := os.ReadFile(filepath.Join("/proc", pid, "stat"))
				fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
				seen = seen || len(fields) > 16 && fields[16] == "5"
			}
		}
	}
}

// TestWaitedInVain: a call that no process has taken by its deadline can be told from one that a guest did not answer.
func TestWaitedInVain(t *testing.T) {
	cfg := prepared(t, t.TempDir(), echo())
	cfg.Limits.Deadline, cfg.Limits.Instances = 30*time.Second, 1
	w, _ := keep(t, cfg)
	if _, err := w.Call(t.Context(), route("{}")); err != nil {
		t.Fatal(err)
	}
	stop(t, w.Pid())
	var group sync.WaitGroup
	group.Go(func() {
		c := route("first")
		c.Deadline = time.Now().Add(time.Second)
		_, err := w.Call(t.Context(), c)
		if failed, ok := errors.AsType[*host.CallError](err); !ok || failed.Cause != host.CauseTimeout || errors.Is(err, worker.ErrWaited) {
			t.Errorf("the call that was sent: %v", err)
		}
	})
	for w.Free() > 0 {
		runtime.Gosched()
	}
	c := route("second")
	c.Deadline = time.Now().Add(50 * time.Millisecond)
	_, err := w.Call(t.Context(), c)
	if failed, ok := errors.AsType[*host.CallError](err); !ok || failed.Cause != host.CauseTimeout || !errors.Is(err, worker.ErrWaited) {
		t.Errorf("the call that waited: %v", err)
	}
	group.Wait()
}
