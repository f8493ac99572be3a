//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"onebit/e2e/rig"
)

// boxed tries the device in a box, whose servers are confined: started by the box itself, and behind `1bit engines`, as
// a user of its own.
func (t *trial) boxed(ctx context.Context, before int, measured bool) {
	for _, kind := range []string{"box", "engines"} {
		dir, err := os.MkdirTemp("", "onebit-device-")
		if err != nil {
			t.fail(kind, err)
			return
		}
		t.check(kind, func() (string, error) { return t.box(ctx, dir, kind == "engines", memoryBefore{before, measured}) })
		_ = os.RemoveAll(dir) // what the system keeps of it is its own affair
	}
}

// memoryBefore is what was in use on the device.
type memoryBefore struct {
	mib      int
	measured bool
}

// box starts a box with the model, and looks at the process that serves it. One behind `1bit engines` takes root.
func (t *trial) box(ctx context.Context, dir string, engines bool, before memoryBefore) (string, error) {
	if engines && os.Getuid() != 0 {
		return "left out: only root may run servers as other users", nil
	}
	s := &server{log: &lastOutput{}, done: make(chan struct{})}
	program, env := t.bin, []string(nil)
	if engines {
		if file := closed(t.model); file != "" {
			return "left out: other users cannot read " + file, nil
		}
		keeper, err := t.engines(ctx, dir)
		if err != nil {
			return "", err
		}
		defer func() { _ = keeper.Process.Signal(syscall.SIGTERM); _ = keeper.Wait() }()
		program, env = filepath.Join(dir, "1bit"), []string{"ONEBIT_ENGINES=" + filepath.Join(dir, "s")}
	}
	if err := t.configure(dir, engines); err != nil {
		return "", err
	}
	s.cmd = exec.CommandContext(ctx, program, "appliance", "--state", filepath.Join(dir, "state"), "--host", "127.0.0.1", "--port", "0", "--http-port", "0", "--set", "discovery=false")
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	if err := s.cmd.Start(); err != nil {
		return "", err
	}
	go func() {
		_ = s.cmd.Wait() // how it ended does not matter, only that it did
		close(s.done)
	}()
	saw, err := t.useBox(ctx, s, dir)
	took, e := s.stop()
	if err = errors.Join(err, e); err != nil {
		return "", fmt.Errorf("%w\n%s", err, s.log)
	}
	if before.measured {
		if _, err := t.returned(before.mib); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s; stopped in %.2f s", saw, took.Seconds()), nil
}

// configure writes the state directory of a box with one model.
func (t *trial) configure(dir string, engines bool) error {
	model, err := filepath.Abs(t.model)
	if err != nil {
		return err
	}
	one := map[string]any{"name": "m", "file": model, "parallel": max(t.parallel, 1)}
	if t.device != "auto" {
		one["device"] = t.device
	}
	config := map[string]any{"models": []any{one}}
	if t.llama != "" && !engines {
		llama, err := filepath.Abs(t.llama)
		if err != nil {
			return err
		}
		config["programs"] = map[string]string{"llama_server": llama}
	}
	b, err := json.Marshal(config) // which is YAML too
	if err != nil {
		return err
	}
	state := filepath.Join(dir, "state")
	return errors.Join(os.Mkdir(state, 0o700), os.WriteFile(filepath.Join(state, "1bit.yaml"), b, 0o600))
}

// closed returns the file or folder on the way to a model that other users cannot go through; empty when they can.
func closed(path string) string {
	at, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	need := os.FileMode(0o004)
	for ; ; at, need = filepath.Dir(at), 0o001 {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm()&need == 0 {
			return at
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

// engines starts `1bit engines` with users of its own, from a copy of our program that everybody can run.
func (t *trial) engines(ctx context.Context, dir string) (*exec.Cmd, error) {
	b, err := os.ReadFile(t.bin)
	if err != nil {
		return nil, err
	}
	program, caches := filepath.Join(dir, "1bit"), filepath.Join(dir, "caches")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, b, 0o755), os.Mkdir(caches, 0o700), os.Chmod(caches, 0o733|os.ModeSticky)); err != nil {
		return nil, err
	}
	log := &lastOutput{}
	cmd := exec.CommandContext(ctx, program, "engines", "--socket", filepath.Join(dir, "s"), "--client", "0", "--users", "70990-70993", "--scratch", caches)
	cmd.Env, cmd.Stdout, cmd.Stderr = os.Environ(), log, log
	if t.llama != "" {
		llama, err := filepath.Abs(t.llama)
		if err != nil {
			return nil, err
		}
		cmd.Env = append(cmd.Env, "ONEBIT_LLAMA_SERVER="+llama)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for begin := time.Now(); !strings.Contains(log.String(), "can be asked for"); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			return nil, errors.Join(fmt.Errorf("1bit engines does not come up:\n%s", log), cmd.Process.Kill(), cmd.Wait())
		}
	}
	return cmd, nil
}

var (
	boxPort = regexp.MustCompile(`1bit appliance: https://[^:\s]+:(\d+)`)
	boxCode = regexp.MustCompile(`code +([A-Z0-9]{5}(?:-[A-Z0-9]{5})+)`)
)

// useBox claims a box, asks it, looks at its server, kills that, and asks again.
func (t *trial) useBox(ctx context.Context, s *server, dir string) (string, error) {
	if err := s.claim(ctx, dir, t.startTime); err != nil {
		return "", err
	}
	a, err := s.stream(ctx, t.question, 64)
	if err = errors.Join(err, a.right(t.expect)); err != nil {
		return "", err
	}
	pid, saw, err := t.confined(s)
	if err != nil {
		return "", err
	}
	if used, ok := t.memory(); ok {
		saw += fmt.Sprintf(", %d MiB in use on the device", used)
	}
	if t.kill {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return "", err
		}
		for begin := time.Now(); alive(pid) && time.Since(begin) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		}
		if _, err := s.stream(ctx, t.question, 64); err != nil {
			return "", fmt.Errorf("after its server was killed: %w", err)
		}
		saw += ", answers after a kill"
	}
	return fmt.Sprintf("%v; %s", a, saw), nil
}

// claim waits until the box says where it is, claims it and makes a key.
func (s *server) claim(ctx context.Context, dir string, limit time.Duration) error {
	var port, code []string
	for begin := time.Now(); port == nil || code == nil; time.Sleep(20 * time.Millisecond) {
		text := s.log.String()
		port, code = boxPort.FindStringSubmatch(text), boxCode.FindStringSubmatch(text)
		select {
		case <-s.done:
			return errors.New("the box ended")
		default:
		}
		if time.Since(begin) > limit {
			return errors.New("the box does not say where it is")
		}
	}
	s.url = "https://127.0.0.1:" + port[1]
	s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // loopback, and its root is minutes old
	if status, body, err := s.post(ctx, "/claim", map[string]string{"code": code[1], "name": "root", "password": "correct horse battery"}); err != nil || status != http.StatusOK {
		return fmt.Errorf("claiming the box: %d %.200s %w", status, body, err)
	}
	own := rig.Socket(filepath.Join(dir, "state"))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://box/admin/v1/keys", bytes.NewReader([]byte(`{"name":"device"}`)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := own.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	var made struct{ Secret string }
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&made); err != nil || made.Secret == "" {
		return fmt.Errorf("making a key: %s %w", res.Status, err)
	}
	s.key = made.Secret
	return nil
}

// confined looks at the process that serves the model: what it may do, and which devices it has open.
func (t *trial) confined(s *server) (pid int, saw string, err error) {
	pid, err = s.serving()
	if err != nil {
		return 0, "", err
	}
	at := fmt.Sprintf("/proc/%d/", pid)
	status, err := os.ReadFile(at + "status")
	if err != nil {
		return 0, "", err
	}
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"} {
		if !strings.Contains(string(status), want) {
			return 0, "", fmt.Errorf("the server %d is not confined: no %q in its status", pid, want)
		}
	}
	if limits, err := os.ReadFile(at + "limits"); err != nil || regexp.MustCompile(`Max data size +unlimited`).Match(limits) {
		return 0, "", fmt.Errorf("the server %d may take all memory: %w", pid, err)
	}
	var nodes []string
	links, err := filepath.Glob(at + "fd/*")
	if err != nil {
		return 0, "", err
	}
	for _, link := range links {
		to, err := os.Readlink(link)
		if err == nil && regexp.MustCompile(`^/dev/(nvidia|dri/|kfd|accel/)`).MatchString(to) && !slices.Contains(nodes, to) {
			nodes = append(nodes, to)
		}
	}
	slices.Sort(nodes)
	if len(nodes) == 0 && t.device != "cpu" {
		return 0, "", fmt.Errorf("the server %d has no device open: it may have fallen back to the processor", pid)
	}
	user := regexp.MustCompile(`Uid:\t(\d+)`).FindSubmatch(status)
	if len(nodes) == 0 {
		nodes = []string{"no device"}
	}
	return pid, fmt.Sprintf("confined, as user %s, with %s", user[1], strings.Join(nodes, " ")), nil
}

// serving finds the process that serves: a child of the box, or of the owner of the engines, which has no other.
func (s *server) serving() (int, error) {
	for _, parent := range []int{s.cmd.Process.Pid, os.Getpid()} {
		kids, err := children(parent)
		if err != nil {
			return 0, err
		}
		for _, kid := range kids {
			if parent == os.Getpid() { // the owner of the engines is a child of ours
				if below, err := children(kid); err == nil && kid != s.cmd.Process.Pid && len(below) > 0 {
					return below[0], nil
				}
				continue
			}
			return kid, nil
		}
	}
	return 0, errors.New("no process serves the model")
}
