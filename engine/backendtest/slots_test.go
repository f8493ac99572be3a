package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"onebit/engine/backendtest"
	"onebit/engine/gguf/synth"
	"onebit/engine/runner"
	"onebit/engine/tensor"
)

// tiny is the file of a small model.
func tiny(t *testing.T, arch string) string {
	t.Helper()
	w, err := synth.Model(synth.Tiny(arch, tensor.Q8_0))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), arch+".gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// healthy waits until a server serves.
func healthy(t *testing.T, url string, ended func() error) string {
	t.Helper()
	for t.Context().Err() == nil {
		if err := ended(); err != nil {
			t.Fatal(err)
		}
		r, err := http.Get(url + "/health")
		if err != nil {
			continue
		}
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			return url
		}
	}
	t.Fatal("the server did not become ready")
	return ""
}

// own starts the built-in engine; the one before it ends.
func own(t *testing.T, model, dir string) func() string {
	stop := func() {}
	return func() string {
		stop()
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		r, err := runner.New(runner.Config{Model: model, Parallel: 2, Context: 1024, SlotDir: dir, CacheDir: t.TempDir(), Listener: l})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		stop = func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			stop = func() {}
		}
		t.Cleanup(func() { stop() })
		return healthy(t, "http://"+l.Addr().String(), func() error { return nil })
	}
}

// program starts a server; the one before it ends.
func program(t *testing.T, path string, args ...string) func() string {
	stop := func() {}
	return func() string {
		stop()
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		cmd := exec.Command(path, append(args, "--host", "127.0.0.1", "--port", strconv.Itoa(port))...)
		cmd.Env = append(os.Environ(), "LLAMA_ARG_THREADS=1", "LLAMA_ARG_CACHE_RAM=0")
		log, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			ended <- errors.Join(errors.New("the server ended"), cmd.Wait())
			log.Close()
		}()
		stop = func() {
			_ = cmd.Process.Kill()
			<-ended
			stop = func() {}
		}
		t.Cleanup(func() { stop() })
		return healthy(t, fmt.Sprintf("http://127.0.0.1:%d", port), func() error {
			select {
			case err := <-ended:
				ended <- err
				text, _ := os.ReadFile(log.Name())
				return fmt.Errorf("%w:\n%s", err, text)
			default:
				return nil
			}
		})
	}
}

func TestSlotsOfTheBuiltInEngine(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2", "qwen3", "gemma3"} {
		t.Run(arch, func(t *testing.T) {
			dir := t.TempDir()
			start := own(t, tiny(t, arch), dir)
			backendtest.RunSlots(t, &backendtest.Slots{URL: start(), Dir: dir, Again: start, Exact: true})
		})
	}
}

// TestSlotsOfTheStandin: what plays a llama-server in tests keeps slots as one does.
func TestSlotsOfTheStandin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "llama-server")
	if out, err := exec.Command("go", "build", "-o", path, "onebit/e2e/standin").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("STANDIN_FAULT", "slow:2") // so that a slot can be seen at work
	dir := t.TempDir()
	start := program(t, path, "-m", "m.gguf", "-np", "2", "--slot-save-path", dir)
	backendtest.RunSlots(t, &backendtest.Slots{URL: start(), Dir: dir, Again: start, Exact: true, Loose: true})
}

func TestSlotsOfLlamaServer(t *testing.T) {
	bin := os.Getenv("ONEBIT_LLAMA_BIN")
	if bin == "" {
		t.Skip("SKIPPED: ONEBIT_LLAMA_BIN names no folder with the reference's server; `make test-all` sets it")
	}
	dir := t.TempDir()
	start := program(t, filepath.Join(bin, "llama-server"), "-m", tiny(t, "llama"), "-np", "2", "-c", "1024", "--slot-save-path", dir)
	backendtest.RunSlots(t, &backendtest.Slots{URL: start(), Dir: dir, Again: start, Loose: true})
}
