package main_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	main "onebit/appliance"
	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

// TestModelLibrary goes through a model's life on the command line: pulled from a hub, listed, shown, verified, damaged,
// removed; and one that is added where it lies.
func TestModelLibrary(t *testing.T) {
	file, err := synth.Bytes(synth.Tiny("llama", tensor.Q8_0))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(file)
	digest := hex.EncodeToString(sum[:])
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hf_canary" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/api/models/o/r/revision/") {
			fmt.Fprintf(w, `{"sha":"0123456789abcdef","siblings":[{"rfilename":"tiny-Q8_0.gguf","size":%d,"lfs":{"sha256":%q,"size":%d}}]}`, len(file), digest, len(file))
			return
		}
		w.Write(file)
	}))
	defer hub.Close()
	home, second := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Setenv("ONEBIT_MODELS", filepath.Join(home, "first")+string(filepath.ListSeparator)+second)
	t.Setenv("HF_ENDPOINT", hub.URL)
	t.Setenv("HF_TOKEN", "")
	token := filepath.Join(home, "token")
	other := filepath.Join(home, "other.gguf")
	for name, b := range map[string][]byte{token: []byte("hf_canary\n"), other: file} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(want int, args ...string) string {
		t.Helper()
		var out, errs strings.Builder
		status := main.Run(context.Background(), strings.NewReader(""), &out, &errs, append([]string{"model"}, args...)...)
		if status != want {
			t.Fatalf("%v: status %d, not %d\n%s%s", args, status, want, out.String(), errs.String())
		}
		if strings.Contains(out.String()+errs.String(), "canary") {
			t.Errorf("%v shows the token", args)
		}
		if want != 0 {
			return errs.String() + out.String()
		}
		return out.String()
	}
	if said := run(1, "pull", "o/r"); !strings.Contains(said, "--token-file") {
		t.Errorf("without a token: %s", said)
	}
	path := strings.TrimSpace(run(0, "pull", "o/r", "--token-file", token, "--to", second))
	if b, err := os.ReadFile(path); err != nil || string(b) != string(file) || !strings.HasPrefix(path, second) {
		t.Fatalf("%s: %v", path, err)
	}
	var listed []struct {
		Name, Path, Kind, SHA256 string
	}
	if err := json.Unmarshal([]byte(run(0, "list", "--json")), &listed); err != nil || len(listed) != 1 || listed[0].Path != path || listed[0].SHA256 != digest {
		t.Fatalf("%+v, %v", listed, err)
	}
	if said := run(0, "list"); !strings.Contains(said, "tiny-Q8_0") || !strings.Contains(said, "qwen3.8-27b") || !strings.Contains(said, "from a 64 GB box on") {
		t.Errorf("list: %s", said)
	}
	if said := run(0, "show", "tiny-Q8_0"); !strings.Contains(said, "o/r@0123456789abcdef") || !strings.Contains(said, digest) || !strings.Contains(said, "64 GB box") {
		t.Errorf("show: %s", said)
	}
	if said := run(0, "show", "qwen3.8-27b"); !strings.Contains(said, "not here") || !strings.Contains(said, "qwen3.8-27b-mtp") {
		t.Errorf("show: %s", said)
	}
	if said := run(0, "verify", "tiny-Q8_0"); !strings.Contains(said, "right") {
		t.Errorf("verify: %s", said)
	}
	run(0, "add", other, "--name", "mine")
	if said := run(0, "verify", "--all"); strings.Count(said, "right") != 2 {
		t.Errorf("verify: %s", said)
	}
	if err := os.WriteFile(path, append([]byte("GGUF"), file[:len(file)-4]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := run(1, "verify", "--all"); !strings.Contains(said, "1 of 2 models are not what they should be") {
		t.Errorf("verify: %s", said)
	}
	run(0, "rm", "tiny-Q8_0", "mine")
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a file of somebody else was removed: %v", err)
	}
	if said := run(0, "list", "--json"); strings.TrimSpace(said) != "[]" {
		t.Errorf("list: %s", said)
	}
	for _, args := range [][]string{{"rm", "../first"}, {"rm"}, {"show"}, {"show", "nothing"}, {"verify"}, {"add"}, {"pull", "http://169.254.169.254/x.gguf"}, {"list", "x"}} {
		run(1, args...)
	}
}
