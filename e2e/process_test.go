//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// command runs the program to its end.
func command(t *testing.T, limit time.Duration, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%v did not end in %v\n%s", args, limit, errs.Bytes())
	}
	if err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Fatalf("running %v: %v", args, err)
		}
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// children returns the process ids whose parent is pid.
func children(t *testing.T, pid int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatalf("this test reads /proc: %v", err)
	}
	var kids []int
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, _, ok := stat(n); ok && parent == pid {
			kids = append(kids, n)
		}
	}
	return kids
}

// stat reads a process's parent and state.
func stat(pid int) (parent int, state string, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, "", false
	}
	// the name in brackets may hold anything
	_, rest, found := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if !found || len(f) < 2 {
		return 0, "", false
	}
	parent, err = strconv.Atoi(f[1])
	return parent, f[0], err == nil
}

func alive(pid int) bool {
	_, state, ok := stat(pid)
	return ok && state != "Z" && state != "X"
}

// midStream begins a long stream and returns after the third event with a function that reads the rest.
func midStream(t *testing.T, s *server) (rest func() (last map[string]any, done bool, err error)) {
	t.Helper()
	type end struct {
		last map[string]any
		done bool
		err  error
	}
	third, ended := make(chan struct{}), make(chan end, 1)
	go func() {
		var e end
		resp, err := s.send(context.Background(), "/v1/chat/completions", chat("Write a long story about a river.", obj{"max_tokens": 2000, "stream": true, "ignore_eos": true}))
		if err != nil {
			ended <- end{err: err}
			return
		}
		defer resp.Body.Close()
		n := 0
		e.done, e.err = events(resp.Body, func(v map[string]any) bool {
			e.last = v
			if n++; n == 3 {
				close(third)
			}
			return true
		})
		ended <- e
	}()
	select {
	case <-third:
	case e := <-ended:
		t.Fatalf("the stream ended early: %+v\n%s", e, s.log)
	case <-time.After(60 * time.Second):
		t.Fatalf("no third event\n%s", s.log)
	}
	return func() (map[string]any, bool, error) {
		select {
		case e := <-ended:
			return e.last, e.done, e.err
		case <-time.After(20 * time.Second):
			t.Fatalf("the stream did not end\n%s", s.log)
			return nil, false, nil
		}
	}
}

func TestKillServeLeavesNoChild(t *testing.T) {
	s := start(t, "serve", "-m", smollm2(t), "--port", "0")
	kids := children(t, s.cmd.Process.Pid)
	if len(kids) == 0 {
		t.Fatal("serve has no child: the model does not run in its own process")
	}
	rest := midStream(t, s)
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Second)
	for _, k := range kids {
		for alive(k) {
			if time.Now().After(deadline) {
				t.Fatalf("child %d is alive 2 s after serve was killed", k)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	rest()
}

func TestKillChild(t *testing.T) {
	s := start(t, "serve", "-m", smollm2(t), "--port", "0")
	for round := range 2 {
		kids := children(t, s.cmd.Process.Pid)
		if len(kids) != 1 {
			t.Fatalf("round %d: children %v", round, kids)
		}
		rest := midStream(t, s)
		if err := syscall.Kill(kids[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		last, done, err := rest()
		if err != nil {
			t.Fatalf("the stream broke instead of ending with an error event: %v", err)
		}
		if msg, _ := dig(last, "error", "message").(string); msg == "" {
			t.Fatalf("last event %v (done %v) is not an error object", last, done)
		}
		r := s.post("/v1/chat/completions", chat(capital, obj{"max_tokens": 24}))
		if r.status != 200 || !strings.Contains(string(r.body), "Paris") {
			t.Fatalf("the next request: %d %s\n%s", r.status, r.body, s.log)
		}
	}
}

func TestStopEndsChild(t *testing.T) {
	s := start(t, "serve", "-m", smollm2(t), "--port", "0")
	kids := children(t, s.cmd.Process.Pid)
	s.stop()
	if s.err != nil {
		t.Errorf("SIGTERM: %v, want exit 0", s.err)
	}
	for _, k := range kids {
		if alive(k) {
			t.Errorf("child %d is alive after serve stopped", k)
		}
	}
}

// TestCancelFreesSlot leaves a stream and expects the only slot back at once.
func TestCancelFreesSlot(t *testing.T) {
	s := start(t, "serve", "-m", smollm2(t), "--port", "0", "--parallel", "1")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	resp, err := s.send(ctx, "/v1/chat/completions", chat("Write a long story.", obj{"max_tokens": 6000, "stream": true, "ignore_eos": true}))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	events(resp.Body, func(map[string]any) bool { n++; return n < 3 })
	cancel()
	resp.Body.Close()
	next, stop := context.WithTimeout(context.Background(), 60*time.Second)
	defer stop()
	r, err := s.tryPost(next, "/v1/chat/completions", chat(capital, obj{"max_tokens": 24}))
	if err != nil || r.status != 200 {
		t.Fatalf("after a cancelled stream: %v %d %s", err, r.status, r.body)
	}
}
