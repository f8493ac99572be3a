//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// disguise is a llama-server that says that it has graphics processors and uses the processor instead.
const disguise = `#!/usr/bin/env bash
set -eu
for word in "$@"; do
  if [ "$word" = --list-devices ]; then
    echo "Available devices:"
    echo "  Vulkan0: a device that is not there (98304 MiB, 98000 MiB free)"
    echo "  ROCm0: a device that is not there (98304 MiB, 98000 MiB free)"
    exit
  fi
done
device=none
arguments=(-ngl 0)
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=$2; shift 2 ;;
    -ngl) shift 2 ;;
    *) arguments+=("$1"); shift ;;
  esac
done
echo "$device $$" >> %q
exec %q "${arguments[@]}"
`

// pair is a serve with two real servers behind it.
type pair struct {
	*server
	starts string // a file with a line for each start of a child: device and process id
}

// startPair serves with a vulkan and a rocm that are disguised.
func startPair(t *testing.T, args ...string) pair {
	t.Helper()
	dir := t.TempDir()
	p := pair{starts: filepath.Join(dir, "starts")}
	program := filepath.Join(dir, "llama-server")
	if err := os.WriteFile(program, fmt.Appendf(nil, disguise, p.starts, llamaProgram(t, "llama-server")), 0o700); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"serve", "--port", "0", "-m", smollm2(t), "--alias", "smol", "--llama-server", program, "--ctx-size", "4096"}, args...)
	p.server = launchWith(t, []string{oneThread, "ONEBIT_LEAN_SERVER=" + program}, args...)
	p.waitHealthy(180 * time.Second)
	return p
}

// pids returns the process ids that a device's child has had.
func (p pair) pids(device string) (all []int) {
	p.t.Helper()
	b, err := os.ReadFile(p.starts)
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		word, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			p.t.Fatalf("the line %q", line)
		}
		if word == device {
			all = append(all, n)
		}
	}
	return all
}

// kill kills a device's child and waits until serve has seen it.
func (p pair) kill(device string) {
	p.t.Helper()
	all := p.pids(device)
	if err := syscall.Kill(all[len(all)-1], syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	await(p.t, 10*time.Second, "health says that one is down", func() bool {
		status, _, body := p.get("/health")
		var v struct{ Status string }
		return json.Unmarshal([]byte(body), &v) == nil && status == http.StatusOK && v.Status == "degraded"
	})
}

// back waits until both children serve.
func (p pair) back() {
	p.t.Helper()
	await(p.t, 120*time.Second, "both are back", func() bool {
		_, _, body := p.get("/health")
		return strings.HasPrefix(body, `{"status":"ok"`)
	})
}

// hold begins a long answer, and returns when its third event is there with what ends it.
func (p pair) hold() (leave func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	third, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		resp, err := p.send(ctx, "/v1/chat/completions", chat("Write a long story about a river.", obj{"max_tokens": 3000, "stream": true, "ignore_eos": true}))
		if err == nil {
			n := 0
			_, err = events(resp.Body, func(map[string]any) bool {
				if n++; n == 3 {
					close(third)
				}
				return true
			})
			resp.Body.Close()
		}
		ended <- err
	}()
	select {
	case <-third:
	case err := <-ended:
		cancel()
		p.t.Fatalf("the answer ended early: %v\n%s", err, p.log)
	case <-time.After(60 * time.Second):
		cancel()
		p.t.Fatalf("no third event\n%s", p.log)
	}
	return func() { cancel(); <-ended }
}

// TestRealAdaptive spreads chats over two real servers.
func TestRealAdaptive(t *testing.T) {
	p := startPair(t, "--adaptive", "--adaptive-at", "1")
	if _, _, body := p.get("/v1/models"); !strings.Contains(body, `"device":"vulkan+rocm"`) || !strings.Contains(body, `"id":"smol"`) {
		t.Errorf("models %s", body)
	}
	realWhole(t, p.server, "smol", german, nil) // vulkan is free
	leave := p.hold()                           // and takes this one
	realWhole(t, p.server, "smol", german, nil) // so rocm gets the next
	realStream(t, p.server, "smol", german)

	p.kill("ROCm0")
	leave()
	idle(t, p.server)
	realWhole(t, p.server, "smol", german, nil) // vulkan serves beside it
	p.back()
	leave = p.hold()
	p.kill("Vulkan0")
	leave()
	realWhole(t, p.server, "smol", german, nil) // rocm serves
	p.back()
	realWhole(t, p.server, "smol", german, nil) // vulkan is back
	for _, device := range []string{"Vulkan0", "ROCm0"} {
		if n := len(p.pids(device)); n != 2 {
			t.Errorf("%s was started %d times", device, n)
		}
	}
	p.stop()
	if out := p.log.String(); !strings.Contains(out, "vulkan took 5 requests") || !strings.Contains(out, "rocm took 3 requests") {
		t.Errorf("at its end it says %s", out)
	}
	for _, device := range []string{"Vulkan0", "ROCm0"} {
		for _, pid := range p.pids(device) {
			if alive(pid) {
				t.Errorf("%s: %d is alive after the stop", device, pid)
			}
		}
	}
}

// longFile makes a plain Q4_0 file of SmolLM2 that bears the mark of a rotated one: the reference does not rotate.
func longFile(t *testing.T) string {
	t.Helper()
	quantize := llamaProgram(t, "llama-quantize")
	plain, marked := filepath.Join(t.TempDir(), "plain.gguf"), filepath.Join(t.TempDir(), "smol-H32.gguf")
	code, _, errs := command(t, 2*time.Minute, "model", "quantize", smollm2(t), plain, "Q4_0", "--allow-requantize", "--llama-quantize", quantize)
	if code != 0 {
		t.Fatalf("model quantize: %d %s", code, errs)
	}
	out, err := exec.Command(quantize, "--allow-requantize", "--override-kv", "onebit.hadamard_q4_0=int:32", plain, marked, "COPY").CombinedOutput()
	if err != nil {
		t.Fatalf("marking the file: %v\n%s", err, out)
	}
	return marked
}

// TestRealLongModel sends conversations to one of two real servers by their length.
func TestRealLongModel(t *testing.T) {
	p := startPair(t, "--device", "vulkan", "--long-from", "100", "--long-model", longFile(t))
	route := func(q obj) string {
		t.Helper()
		r := p.post("/v1/chat/completions", q)
		v := r.json(t)
		header := r.header.Get("X-1bit-Route")
		text, _ := dig(v, "choices", 0, "message", "content").(string)
		if r.status != 200 || v["model"] != "smol" || text == "" {
			t.Fatalf("%d, route %q: %s", r.status, header, r.body)
		}
		return fmt.Sprintf("%s, used %v", header, dig(v, "usage", "prompt_tokens"))
	}
	short := german.chat(nil)
	if got := route(short); got != "short 37 vulkan, used 37" {
		t.Errorf("a short chat: %s", got)
	}
	realWhole(t, p.server, "smol", german, nil)
	long := chat(strings.Repeat("The river flows by the old mill. ", 12)+"What flows by the mill?", obj{"max_tokens": 12})
	first := route(long)
	var n, used int
	var device string
	if _, err := fmt.Sscanf(first, "long %d %s used %d", &n, &device, &used); err != nil || n < 100 || n != used || device != "rocm," {
		t.Errorf("a long chat: %s (%v)", first, err)
	}
	grown := german.chat(obj{"max_tokens": 8})
	grown["messages"] = append(grown["messages"].([]obj), obj{"role": "assistant", "content": strings.Repeat("Berlin is a large city. ", 20)}, obj{"role": "user", "content": "Go on."})
	if got := route(grown); !strings.HasPrefix(got, "short 37 vulkan, used ") {
		t.Errorf("a chat that has grown: %s", got)
	}
	r := p.post("/v1/chat/completions", chat("Say it again. "+strings.Repeat("word ", 200), obj{"max_tokens": 6, "stream": true}))
	if done, err := events(strings.NewReader(string(r.body)), func(v map[string]any) bool { return v["model"] == "smol" }); !done || err != nil || !strings.HasPrefix(r.header.Get("X-1bit-Route"), "long ") {
		t.Errorf("streamed: done %v, %v, route %q: %s", done, err, r.header.Get("X-1bit-Route"), r.body)
	}
	p.kill("ROCm0")
	if got, want := route(long), strings.Replace(first, "rocm", "vulkan", 1); got != want {
		t.Errorf("while rocm is down: %s, want %s", got, want)
	}
	p.back()
	if got := route(long); got != first {
		t.Errorf("when rocm is back: %s, want %s", got, first)
	}
	p.stop()
	if out := p.log.String(); !strings.Contains(out, "vulkan took 4 requests") || !strings.Contains(out, "rocm took 3 requests") {
		t.Errorf("at its end it says %s", out)
	}
}
