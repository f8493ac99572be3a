//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the program under test, built once by TestMain (or named by ONEBIT_BIN).
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	defer removeStandins()
	if binary = os.Getenv("ONEBIT_BIN"); binary == "" {
		dir, err := os.MkdirTemp("", "onebit-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "1bit")
		cmd := exec.Command("go", "build", "-o", binary, "./appliance")
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the program: %v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

// model returns the path of a model of the catalogue, obtaining it when it is not in the cache.
func model(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command(binary, "model", "pull", name)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("obtaining model %s (try: 1bit model pull %s): %v\n%s", name, name, err, errs.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// smollm2 is the model that every run of these tests has.
func smollm2(t *testing.T) string { return model(t, "smollm2") }

// tail keeps the last output of a program for messages.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (w *tail) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, b...)
	if n := len(w.b) - 64<<10; n > 0 {
		w.b = w.b[n:]
	}
	return len(b), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}

// says waits until the output holds a text so many times: a line about an answer may come after the answer.
func (w *tail) says(text string, times int) bool {
	for end := time.Now().Add(30 * time.Second); strings.Count(w.String(), text) < times; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return strings.Count(w.String(), text) == times
}

// server is a started program that answers HTTP.
type server struct {
	t    *testing.T
	cmd  *exec.Cmd
	URL  string // http://127.0.0.1:port
	log  *tail
	done chan struct{} // closed when the process was waited for
	err  error
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// start runs the program with args, waits until it prints its address and answers /health with 200, and stops it when
// the test ends.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	s := launch(t, args...)
	s.waitHealthy(120 * time.Second)
	return s
}

// launch runs the program and waits for its address only.
func launch(t *testing.T, args ...string) *server {
	t.Helper()
	return launchWith(t, nil, args...)
}

// launchWith does what launch does, with more in the environment.
func launchWith(t *testing.T, env []string, args ...string) *server {
	t.Helper()
	s := &server{t: t, log: &tail{}, done: make(chan struct{})}
	s.cmd = exec.Command(binary, args...)
	s.cmd.Env = append(os.Environ(), env...)
	pr, pw := io.Pipe()
	s.cmd.Stdout = io.MultiWriter(s.log, pw)
	s.cmd.Stderr = io.MultiWriter(s.log, pw)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := make(chan string, 1)
	go func() {
		sc := bufio.NewScanner(pr)
		for sc.Scan() {
			if a := address.FindString(sc.Text()); a != "" {
				select {
				case found <- a:
				default:
				}
			}
		}
		io.Copy(io.Discard, pr)
	}()
	go func() {
		s.err = s.cmd.Wait()
		pw.Close()
		close(s.done)
	}()
	t.Cleanup(s.stop)
	select {
	case s.URL = <-found:
	case <-s.done:
		t.Fatalf("%v ended at once: %v\n%s", args, s.err, s.log)
	case <-time.After(60 * time.Second):
		t.Fatalf("%v printed no address\n%s", args, s.log)
	}
	return s
}

func (s *server) waitHealthy(limit time.Duration) {
	s.t.Helper()
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		select {
		case <-s.done:
			s.t.Fatalf("the server ended: %v\n%s", s.err, s.log)
		default:
		}
		resp, err := http.Get(s.URL + "/health")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == 200 {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Fatalf("not healthy after %v\n%s", limit, s.log)
}

// stop ends the server the polite way and fails the test when it does not go.
func (s *server) stop() {
	select {
	case <-s.done:
		return
	default:
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(15 * time.Second):
		s.cmd.Process.Kill()
		<-s.done
		s.t.Errorf("the server did not stop in 15 s\n%s", s.log)
	}
}

// reply is an answer to a POST.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) json(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("the answer is not a JSON object: %v: %s", err, r.body)
	}
	return v
}

// post sends a body as JSON (a string is sent as it is).
func (s *server) post(path string, body any) reply {
	s.t.Helper()
	r, err := s.tryPost(context.Background(), path, body)
	if err != nil {
		s.t.Fatalf("POST %s: %v\n%s", path, err, s.log)
	}
	return r
}

func (s *server) tryPost(ctx context.Context, path string, body any) (reply, error) {
	resp, err := s.send(ctx, path, body)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, b}, err
}

func (s *server) send(ctx context.Context, path string, body any) (*http.Response, error) {
	var b []byte
	switch v := body.(type) {
	case string:
		b = []byte(v)
	default:
		var err error
		if b, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(req)
}

// events reads a stream of server-sent events: the JSON of each data line. done tells whether [DONE] came.
func events(r io.Reader, each func(map[string]any) bool) (done bool, err error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 4<<20)
	for sc.Scan() {
		line := sc.Text()
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return true, nil
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			return false, fmt.Errorf("event is not JSON: %w: %q", err, data)
		}
		if !each(v) {
			return false, nil
		}
	}
	return false, sc.Err()
}

// obj is a JSON object.
type obj = map[string]any

func chat(text string, more obj) obj {
	m := obj{"model": "any", "messages": []obj{{"role": "user", "content": text}}, "temperature": 0}
	for k, v := range more {
		m[k] = v
	}
	return m
}

// dig walks through objects and arrays of decoded JSON.
func dig(v any, keys ...any) any {
	for _, k := range keys {
		switch k := k.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[k]
		case int:
			a, _ := v.([]any)
			if k >= len(a) {
				return nil
			}
			v = a[k]
		}
	}
	return v
}

// runTool runs a command that must print PASS.
func runTool(t *testing.T, limit time.Duration, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("PASS")) {
		t.Fatalf("%s %v: %v (%v)\n%s", name, args, err, errors.Join(ctx.Err()), out)
	}
	t.Logf("%s", out)
}
