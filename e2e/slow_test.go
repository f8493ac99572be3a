//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slow ends the test unless the slow rest was asked for (make test-all).
func slow(t *testing.T) {
	t.Helper()
	if os.Getenv("ONEBIT_ALL") == "" {
		t.Skip("part of make test-all")
	}
}

func TestDefaultModelAnswers(t *testing.T) {
	slow(t)
	s := start(t, "serve", "-m", model(t, "qwen2.5-coder-0.5b"), "--port", "0", "--ctx-size", "4096")
	r := s.post("/v1/chat/completions", chat("What is the capital of France?", obj{"max_tokens": 24}))
	if r.status != 200 || !strings.Contains(string(r.body), "Paris") {
		t.Fatalf("%d %s", r.status, r.body)
	}
}

// TestMakeRun does what the README says, in a home of its own; the model cache is shared.
func TestMakeRun(t *testing.T) {
	slow(t)
	cmd := exec.Command("make", "run", "MODEL=smollm2", "PORT=0")
	cmd.Dir = ".."
	s := &server{t: t, log: &tail{}, done: make(chan struct{})}
	s.cmd = cmd
	pr, pw := io.Pipe()
	cmd.Stdout, cmd.Stderr = io.MultiWriter(s.log, pw), io.MultiWriter(s.log, pw)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := make(chan string, 1)
	go func() {
		var seen bytes.Buffer
		b := make([]byte, 4096)
		for {
			n, err := pr.Read(b)
			seen.Write(b[:n])
			if a := address.Find(seen.Bytes()); a != nil && bytes.Contains(seen.Bytes(), []byte("curl")) {
				select {
				case found <- string(a):
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() { s.err = cmd.Wait(); pw.Close(); close(s.done) }()
	t.Cleanup(s.stop)
	select {
	case s.URL = <-found:
	case <-s.done:
		t.Fatalf("make run ended: %v\n%s", s.err, s.log)
	case <-time.After(5 * time.Minute):
		t.Fatalf("make run printed no address\n%s", s.log)
	}
	s.waitHealthy(time.Minute)
	r := s.post("/v1/chat/completions", chat(capital, obj{"max_tokens": 24}))
	if r.status != 200 || !strings.Contains(string(r.body), "Paris") {
		t.Fatalf("%d %s", r.status, r.body)
	}
}

// scripture is 64 KiB of a text in the public domain: the King James Bible from Debian's package bible-kjv-text.
func scripture(t *testing.T) string {
	t.Helper()
	if out, err := exec.Command("bash", "setup.sh", "text").CombinedOutput(); err != nil {
		t.Fatalf("this test needs Debian's package bible-kjv: %v\n%s", err, out)
	}
	out, err := exec.Command("bible", "-l", "gen1:1-exo1:1").Output()
	if err != nil || len(out) < 64<<10 {
		t.Fatalf("reading the text: %v, %d bytes", err, len(out))
	}
	path := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(path, out[:64<<10], 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

var finalPPL = regexp.MustCompile(`(?:Final estimate: )?PPL = ([0-9.]+)`)

func TestPerplexity(t *testing.T) {
	slow(t)
	llama := os.Getenv("ONEBIT_LLAMA_BIN")
	if llama == "" {
		t.Fatal("ONEBIT_LLAMA_BIN is not set: run make test-all")
	}
	text := scripture(t)
	for _, name := range []string{"smollm2", "qwen2.5-coder-0.5b"} {
		t.Run(name, func(t *testing.T) {
			file := model(t, name)
			ours := perplexity(t, exec.Command(binary, "tool", "perplexity", "-m", file, "-f", text, "-c", "512"))
			theirs := perplexity(t, exec.Command(filepath.Join(llama, "llama-perplexity"), "-m", file, "-f", text, "-c", "512"))
			off := math.Abs(ours/theirs - 1)
			t.Logf("%s: perplexity %.4f, reference %.4f, %.3f%% apart", name, ours, theirs, 100*off)
			if off > 0.005 {
				t.Errorf("more than 0.5%% apart")
			}
		})
	}
}

func perplexity(t *testing.T, cmd *exec.Cmd) float64 {
	t.Helper()
	out, err := cmd.CombinedOutput()
	m := finalPPL.FindAllSubmatch(out, -1)
	if err != nil || m == nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	v, err := strconv.ParseFloat(string(m[len(m)-1][1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestSoak lets 64 clients with random cancels work for ten minutes (SOAK overrides) and then expects: every greedy
// answer equal to the same request run alone, all slots idle, memory flat, requests still answered.
func TestSoak(t *testing.T) {
	slow(t)
	length := 10 * time.Minute
	if v := os.Getenv("SOAK"); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, "serve", "-m", smollm2(t), "--port", "0", "--parallel", "8", "--ctx-size", "8192")
	questions := make([]obj, 24)
	alone := make([]string, len(questions))
	for i := range questions {
		questions[i] = chat(fmt.Sprintf("Tell me about the number %d and the colour of item %d.%s", i, i*7, strings.Repeat(" Please be exact.", i%9)), obj{"max_tokens": 8 + i%17})
		alone[i] = answer(t, s.post("/v1/chat/completions", questions[i]))
	}
	var asked, cancelled, wrong atomic.Int64
	var memory []float64
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var wg sync.WaitGroup
	for c := range 64 {
		r := rand.New(rand.NewPCG(uint64(c), 7))
		wg.Go(func() {
			for ctx.Err() == nil {
				i := r.IntN(len(questions))
				one, stop := context.WithTimeout(context.Background(), 2*time.Minute)
				if r.IntN(3) == 0 {
					time.AfterFunc(time.Duration(r.IntN(1500))*time.Millisecond, stop)
				}
				q := questions[i]
				stream := r.IntN(2) == 0
				if stream {
					q = obj{"stream": true}
					for k, v := range questions[i] {
						q[k] = v
					}
				}
				got, err := ask(one, s, q, stream)
				ended := one.Err()
				stop()
				switch {
				case err != nil && ended != nil:
					cancelled.Add(1)
				case err != nil:
					wrong.Add(1)
					t.Errorf("client %d: %v", c, err)
				case got != alone[i]:
					wrong.Add(1)
					t.Errorf("client %d: question %d: %q, alone %q", c, i, got, alone[i])
				default:
					asked.Add(1)
				}
				if wrong.Load() > 20 {
					return
				}
			}
		})
	}
	wg.Go(func() {
		tick := time.NewTicker(length / 20)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				memory = append(memory, familyRSS(t, s))
			}
		}
	})
	wg.Wait()
	t.Logf("%d answered, %d cancelled, resident MiB over time %.0f", asked.Load(), cancelled.Load(), memory)
	if asked.Load() < 64 {
		t.Errorf("only %d requests were answered", asked.Load())
	}
	if n := len(memory); n > 8 && memory[n-1] > 1.1*memory[n/4] {
		t.Errorf("memory grew from %.0f to %.0f MiB", memory[n/4], memory[n-1])
	}
	idle(t, s)
	for i := range questions {
		if got := answer(t, s.post("/v1/chat/completions", questions[i])); got != alone[i] {
			t.Errorf("afterwards, question %d: %q, alone %q", i, got, alone[i])
		}
	}
}

func answer(t *testing.T, r reply) string {
	t.Helper()
	text, ok := dig(r.json(t), "choices", 0, "message", "content").(string)
	if r.status != 200 || !ok {
		t.Fatalf("%d %s", r.status, r.body)
	}
	return text
}

// ask sends one request and returns the answer's text.
func ask(ctx context.Context, s *server, q obj, stream bool) (string, error) {
	resp, err := s.send(ctx, "/v1/chat/completions", q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	if !stream {
		var v any
		if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
			return "", err
		}
		text, _ := dig(v, "choices", 0, "message", "content").(string)
		return text, nil
	}
	var text strings.Builder
	done, err := events(resp.Body, func(v map[string]any) bool {
		if c, ok := dig(v, "choices", 0, "delta", "content").(string); ok {
			text.WriteString(c)
		}
		return true
	})
	if err == nil && !done {
		err = fmt.Errorf("the stream ended without [DONE] after %q", text.String())
	}
	return text.String(), err
}

// familyRSS is the resident memory of the server and its children in MiB.
func familyRSS(t *testing.T, s *server) float64 {
	total := 0.0
	for _, pid := range append(children(t, s.cmd.Process.Pid), s.cmd.Process.Pid) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if m := regexp.MustCompile(`VmRSS:\s+(\d+)`).FindSubmatch(b); m != nil {
			kb, _ := strconv.ParseFloat(string(m[1]), 64)
			total += kb / 1024
		}
	}
	return total
}

// idle waits until no slot is busy.
func idle(t *testing.T, s *server) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		resp, err := http.Get(s.URL + "/slots")
		if err != nil {
			t.Fatal(err)
		}
		var slots []map[string]any
		err = json.NewDecoder(resp.Body).Decode(&slots)
		resp.Body.Close()
		if err != nil || len(slots) == 0 {
			t.Fatalf("reading /slots: %v, %d slots", err, len(slots))
		}
		busy := 0
		for _, sl := range slots {
			if sl["is_processing"] == true {
				busy++
			}
		}
		if busy == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d slots are still busy: %v", busy, slots)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
