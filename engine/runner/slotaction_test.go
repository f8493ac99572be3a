//go:build unix

package runner_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onebit/engine/gguf/synth"
	"onebit/engine/runner"
	"onebit/engine/tensor"
)

// keeping runs the built-in engine on a tiny model with a folder for the state of slots.
func keeping(t *testing.T, arch, dir string, cfg runner.Config) *fixture {
	t.Helper()
	w, err := synth.Model(synth.Tiny(arch, tensor.Q8_0))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Model, cfg.SlotDir, cfg.CacheDir = filepath.Join(t.TempDir(), "tiny.gguf"), dir, t.TempDir()
	if err := w.WriteFile(cfg.Model); err != nil {
		t.Fatal(err)
	}
	if cfg.Parallel == 0 {
		cfg.Parallel, cfg.Context = 2, 1024
	}
	f := start(t, nil, cfg)
	f.awaitReady()
	return f
}

const story = "Once upon a time there was a mill by the river, and the miller had a cat that liked to sit in the sun and watch the water."

// TestSnapshotOfAChat: what a chat was kept from a file is said in timings and usage, once.
func TestSnapshotOfAChat(t *testing.T) {
	dir := t.TempDir()
	f := keeping(t, "qwen2", dir, runner.Config{})
	chat := func(f *fixture, slot int, more string) map[string]any {
		return f.ok("/v1/chat/completions", fmt.Sprintf(`{"temperature":0,"max_tokens":6,"ignore_eos":true,"id_slot":%d,"messages":[{"role":"system","content":%q},{"role":"user","content":"Who?%s"}]}`, slot, story, more))
	}
	want := chat(f, 0, "")
	saved := f.ok("/slots/0?action=save", `{"filename":"chat"}`)["n_saved"].(float64)
	f.stop()
	f = keeping(t, "qwen2", dir, runner.Config{})
	if n := f.ok("/slots/1?action=restore", `{"filename":"chat"}`)["n_restored"]; n != saved {
		t.Errorf("%v tokens were restored of %v", n, saved)
	}
	for _, cache := range []string{"snapshot", "live"} {
		got := chat(f, 1, "")
		cached := dig(got, "timings", "cache_n")
		if n := dig(want, "usage", "prompt_tokens").(float64); cached != n-1 || dig(got, "usage", "prompt_tokens_details", "cached_tokens") != cached ||
			dig(got, "timings", "cache") != cache || short(got["choices"]) != short(want["choices"]) {
			t.Errorf("want %s: %s, %s", cache, short(got["timings"]), short(got["choices"]))
		}
	}
	var slots []map[string]any
	decode(t, f.get("/slots").body, &slots)
	if slots[1]["is_processing"] != false {
		t.Errorf("slots %s", short(slots))
	}
}

// TestSlotFiles: files are for us alone, or for a group that may write the folder, and nothing unfinished stays.
func TestSlotFiles(t *testing.T) {
	for _, c := range []struct{ folder, file os.FileMode }{{0o700, 0o600}, {0o755, 0o600}, {0o770, 0o660 &^ umask()}} {
		dir := t.TempDir()
		if err := os.Chmod(dir, c.folder); err != nil {
			t.Fatal(err)
		}
		old, fresh := filepath.Join(dir, ".saving-old"), filepath.Join(dir, ".saving-fresh")
		for path, age := range map[string]time.Duration{old: time.Hour, fresh: 0} {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			at := time.Now().Add(-age)
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
		f := keeping(t, "llama", dir, runner.Config{})
		f.ok("/completion", `{"prompt":"a stone","n_predict":1,"id_slot":0}`)
		f.ok("/slots/0?action=save", `{"filename":"one"}`)
		f.stop()
		info, err := os.Stat(filepath.Join(dir, "one"))
		if err != nil || info.Mode() != c.file {
			t.Errorf("folder %v: %v, %v", c.folder, info, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 || entries[0].Name() != ".saving-fresh" {
			t.Errorf("the folder has %v, %v", entries, err)
		}
	}
}

// TestSlotsElsewhere: the state of another model, or one that is too long, is refused, and the slot keeps what it has.
func TestSlotsElsewhere(t *testing.T) {
	dir := t.TempDir()
	f := keeping(t, "llama", dir, runner.Config{})
	f.ok("/completion", `{"prompt":`+short(strings.Repeat("a stone ", 90))+`,"n_predict":1,"id_slot":0}`)
	saved := f.ok("/slots/0?action=save", `{"filename":"long"}`)["n_saved"].(float64)
	f.ok("/slots/1?action=save", `{"filename":"empty"}`)
	f.stop()
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arch, file string
		context    int
		status     int
		want       string
	}{
		{"qwen2", "long", 1024, 400, "Unable to restore slot: it is of another model"},
		{"qwen2", "empty", 1024, 400, "Unable to restore slot: it is of another model"},
		{"llama", "long", 512, 400, fmt.Sprintf("Unable to restore slot: Restored prompt does not fit in the slot context: %v tokens", saved)},
		{"llama", "absent", 1024, 400, "Unable to restore slot: there is no such file"},
		{"llama", "link", 1024, 500, "Unable to restore slot: path escapes from parent"},
	} {
		if saved <= 256 {
			t.Fatalf("the prompt has %v tokens", saved)
		}
		f := keeping(t, c.arch, dir, runner.Config{Parallel: 2, Context: c.context})
		f.ok("/completion", `{"prompt":[1,2,3,4,5],"n_predict":1,"id_slot":1}`)
		r := f.post("/slots/1?action=restore", `{"filename":"`+c.file+`"}`)
		if message := fmt.Sprint(dig(r.json(t), "error", "message")); r.status != c.status || !strings.HasPrefix(message, c.want) || strings.Contains(message, dir) {
			t.Errorf("%s of %s: %d %s", c.file, c.arch, r.status, message)
		}
		if n := dig(f.ok("/completion", `{"prompt":[1,2,3,4,5,6],"n_predict":1,"id_slot":1}`), "timings", "cache_n"); n != 5.0 {
			t.Errorf("%s of %s: the slot lost what it had: %v", c.file, c.arch, n)
		}
		f.stop()
	}
}

// TestNoSlotDir: nothing is kept where nobody said where.
func TestNoSlotDir(t *testing.T) {
	bubble(t, &fakeEngine{}, 1, 64, func(f *fixture) {
		for _, action := range []string{"save", "restore", "erase"} {
			r := f.post("/slots/0?action="+action, `{"filename":"a"}`)
			if v := r.json(t); r.status != http.StatusNotImplemented || dig(v, "error", "type") != "not_supported_error" ||
				dig(v, "error", "message") != "This server does not support slots action. Start it with `--slot-save-path`" {
				t.Errorf("%s: %d %s", action, r.status, r.body)
			}
		}
	})
	for _, dir := range []string{filepath.Join(t.TempDir(), "absent"), os.Args[0]} {
		r, err := runner.New(runner.Config{Model: "x", SlotDir: dir, Listener: newQuietListener()})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "state of slots") {
			t.Errorf("a folder that is none: %v", err)
		}
	}
}

// TestSaveFails: what cannot be written is an error, and leaves nothing.
func TestSaveFails(t *testing.T) {
	dir := t.TempDir()
	f := keeping(t, "llama", dir, runner.Config{})
	f.ok("/completion", `{"prompt":[1,2,3,4,5],"n_predict":1,"id_slot":0}`)
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := f.post("/slots/0?action=save", `{"filename":"taken"}`)
	if message := fmt.Sprint(dig(r.json(t), "error", "message")); r.status != http.StatusInternalServerError || !strings.HasPrefix(message, "Unable to save slot: ") || strings.Contains(message, dir) {
		t.Errorf("%d %s", r.status, message)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	if n := f.ok("/slots/0?action=save", `{"filename":"free"}`)["n_saved"]; n != 5.0 {
		t.Errorf("%v tokens", n)
	}
}
