package runner_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"onebit/engine/gguf/synth"
	"onebit/engine/runner"
	"onebit/engine/tensor"
)

// builtIn runs the built-in engine on a tiny random model.
func builtIn(t *testing.T, arch string, slots int) *fixture {
	t.Helper()
	w, err := synth.Model(synth.Tiny(arch, tensor.Q8_0))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f := start(t, nil, runner.Config{Model: path, Parallel: slots, Context: 512 * slots, CacheDir: t.TempDir()})
	f.awaitReady()
	return f
}

// Everything together, with real weights, tokenizer and template of each
// architecture: what a client is told agrees with itself.
func TestBuiltIn(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2", "qwen3", "gemma3"} {
		t.Run(arch, func(t *testing.T) {
			f := builtIn(t, arch, 2)
			meta := dig(f.get("/v1/models").json(t), "data", 0, "meta")
			if n := dig(meta, "n_ctx"); n != 512.0 || dig(meta, "n_params") == 0.0 || dig(meta, "n_vocab") == 0.0 {
				t.Errorf("meta %s", short(meta))
			}
			const text = "The river runs by the old mill."
			ids := f.ok("/tokenize", `{"content":"`+text+`","add_special":true}`)["tokens"]
			if got, _ := f.ok("/detokenize", `{"tokens":`+short(ids)+`}`)["content"].(string); !strings.HasSuffix(got, text) {
				t.Errorf("%q there and back is %q", text, got)
			}
			byText := f.ok("/completion", `{"prompt":"`+text+`","n_predict":8,"temperature":0,"ignore_eos":true,"return_tokens":true}`)
			byID := f.ok("/completion", `{"prompt":`+short(ids)+`,"n_predict":8,"temperature":0,"ignore_eos":true,"return_tokens":true,"cache_prompt":false}`)
			if a, b := short(byText["tokens"]), short(byID["tokens"]); a != b || len(byID["tokens"].([]any)) != 8 {
				t.Errorf("tokens %s for the text, %s for its ids", a, b)
			}
			chat := `{"messages":[{"role":"user","content":"Hello"}],"temperature":0,"max_tokens":8,"ignore_eos":true}`
			count := f.ok("/v1/chat/completions/input_tokens", chat)["input_tokens"]
			first, second := f.ok("/v1/chat/completions", chat), f.ok("/v1/chat/completions", chat)
			if short(first["choices"]) != short(second["choices"]) || dig(second, "timings", "cache") != "live" {
				t.Errorf("choices %s, then %s with %s", short(first["choices"]), short(second["choices"]), short(second["timings"]))
			}
			if n := dig(first, "usage", "prompt_tokens"); n != count || dig(first, "usage", "completion_tokens") != 8.0 {
				t.Errorf("usage %s, counted %v", short(first["usage"]), count)
			}
		})
	}
}

// Requests that run together get the answers that each gets alone.
func TestBuiltInTogether(t *testing.T) {
	f := builtIn(t, "llama", 4)
	const n = 12
	body := func(i int) string {
		return fmt.Sprintf(`{"prompt":%s,"n_predict":24,"temperature":0,"ignore_eos":true}`, short(strings.Repeat("a stone ", 1+i*4)))
	}
	var want [n]any
	for i := range n {
		want[i] = f.ok("/completion", body(i))["content"]
	}
	var wg sync.WaitGroup
	for round := range 2 {
		for i := range n {
			wg.Go(func() {
				if got := f.post("/completion", body(i)).json(t)["content"]; got != want[i] {
					t.Errorf("round %d, request %d: %q together, %q alone", round, i, got, want[i])
				}
			})
		}
		wg.Wait()
	}
}

// TestBuiltInSaysWhatContextItTakes asks for more than the model was trained for: what is held is said, not only used.
func TestBuiltInSaysWhatContextItTakes(t *testing.T) {
	w, err := synth.Model(synth.Tiny("llama", tensor.Q8_0))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	for asked, warns := range map[int]bool{0: false, 1024: false, 2 << 20: true} {
		var said bytes.Buffer
		f := start(t, nil, runner.Config{
			Model: path, Parallel: 2, Context: asked, CacheDir: t.TempDir(),
			Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		f.awaitReady()
		held := fmt.Sprint(dig(f.get("/v1/models").json(t), "data", 0, "meta", "n_ctx"))
		f.stop()
		want := fmt.Sprintf(`msg="the model was trained for a shorter context" asked=%d slot=%s`, asked/2, held)
		if got := said.String(); strings.Contains(got, want) != warns || (got == "") == warns {
			t.Errorf("asked for %d, it said %q; want %q: %v", asked, got, want, warns)
		}
	}
}

func TestBuiltInRefusals(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.gguf")
	if err := os.WriteFile(bad, []byte("GGUF, or so it says"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"damaged": bad, "missing": bad + ".not"} {
		r, err := runner.New(runner.Config{Model: path, Listener: newQuietListener()})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
