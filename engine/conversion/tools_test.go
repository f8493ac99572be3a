package conversion_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"onebit/engine/conversion"
	"onebit/engine/gguf"
	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

// script writes a program in the shell's language.
func script(t *testing.T, dir, name, body string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the stand-ins are shell scripts")
	}
	path := put(t, dir, name, "#!/bin/sh\n"+body)
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	return path
}

// world is a machine with some variables, some programs on PATH and some room.
func world(env, path map[string]string, free uint64) conversion.Tools {
	return conversion.Tools{
		Getenv: func(key string) string { return env[key] },
		LookPath: func(name string) (string, error) {
			if p := path[name]; p != "" {
				return p, nil
			}
			return "", exec.ErrNotFound
		},
		Space:  func(string) (uint64, error) { return free, nil },
		Output: io.Discard,
	}
}

const plenty = 1 << 50

func TestQuantizeOurselves(t *testing.T) {
	in := save(t, synth.Tiny("qwen2", tensor.F32), "in.gguf")
	for _, tt := range []struct {
		kind           string
		matrix, tokens gguf.Type
	}{{"q8_0", gguf.Q8_0, gguf.Q8_0}, {"Q4_0", gguf.Q4_0, gguf.Q8_0}, {"F16", gguf.F16, gguf.F16}} {
		out := filepath.Join(t.TempDir(), "out.gguf")
		var said strings.Builder
		w := world(nil, nil, plenty)
		w.Log = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
		if err := (conversion.Quantize{In: in, Out: out, Type: tt.kind, Tools: w}).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		f := open(t, out)
		for name, want := range map[string]gguf.Type{"blk.1.ffn_down.weight": tt.matrix, "output.weight": tt.tokens, "blk.1.attn_q.bias": gguf.F32} {
			if got := f.Tensor(name).Type; got != want {
				t.Errorf("%s: %s is %v, not %v", tt.kind, name, got, want)
			}
		}
		if !strings.Contains(said.String(), "no llama-quantize") {
			t.Errorf("said %q", said.String())
		}
		logits(t, f, []int32{1, 2}) // it loads
	}
}

// TestQuantizeProgram drives a stand-in that copies a file made before.
func TestQuantizeProgram(t *testing.T) {
	dir := t.TempDir()
	in := save(t, synth.Tiny("qwen2", tensor.F32), "in.gguf")
	good := save(t, synth.Tiny("qwen2", tensor.Q8_0), "good.gguf")
	other := save(t, synth.Tiny("llama", tensor.Q8_0), "other.gguf")
	args := filepath.Join(dir, "args")
	stand := func(name, file string) string {
		return script(t, dir, name, `echo "$@" > `+args+`; for a; do case $a in *.unchecked) cp `+file+` "$a";; esac; done`)
	}
	program := stand("llama-quantize", good)
	out := filepath.Join(dir, "out.gguf")
	tests := []struct {
		name string
		q    conversion.Quantize
		w    conversion.Tools
		want string
	}{
		{"option", conversion.Quantize{Type: "Q8_0", Program: program}, world(nil, nil, plenty), ""},
		{"variable", conversion.Quantize{Type: "Q8_0"}, world(map[string]string{"ONEBIT_LLAMA_QUANTIZE": program}, nil, plenty), ""},
		{"beside the server", conversion.Quantize{Type: "Q8_0"}, world(map[string]string{"ONEBIT_LLAMA_SERVER": filepath.Join(dir, "llama-server")}, nil, plenty), ""},
		{"path", conversion.Quantize{Type: "Q8_0"}, world(nil, map[string]string{"llama-quantize": program}, plenty), ""},
		{"bad option", conversion.Quantize{Type: "Q8_0", Program: dir + "/none"}, world(nil, nil, plenty), "which is no file"},
		{"nowhere", conversion.Quantize{Type: "Q4_K_M"}, world(nil, nil, plenty), "ONEBIT_LLAMA_QUANTIZE is not set"},
		{"no room", conversion.Quantize{Type: "Q8_0", Program: program}, world(nil, nil, 1000), "are free there"},
		{"another type", conversion.Quantize{Type: "Q4_0", Program: program}, world(nil, nil, plenty), "none of its tensors is Q4_0"},
		{"another model", conversion.Quantize{Type: "Q8_0", Program: stand("q2", other)}, world(nil, nil, plenty), "architecture is \"llama\""},
		{"fails", conversion.Quantize{Type: "Q8_0", Program: script(t, dir, "q3", "exit 3")}, world(nil, nil, plenty), "exit status 3"},
		{"rubbish", conversion.Quantize{Type: "Q8_0", Program: stand("q4", args)}, world(nil, nil, plenty), "damaged GGUF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			os.Remove(out)
			tt.q.In, tt.q.Out, tt.q.Tools, tt.q.Threads = in, out, tt.w, 2
			err := tt.q.Run(t.Context())
			_, missing := os.Stat(out)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) || missing == nil {
					t.Errorf("error %v, want one with %q; file there: %v", err, tt.want, missing == nil)
				}
			} else {
				b, _ := os.ReadFile(args)
				if want := in + " " + out + ".unchecked Q8_0 2\n"; err != nil || missing != nil || string(b) != want {
					t.Errorf("error %v, arguments %q, want %q", err, b, want)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*.unchecked")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestQuantizeRefusesSource(t *testing.T) {
	in := save(t, synth.Tiny("qwen2", tensor.Q4_0), "in.gguf")
	out := filepath.Join(t.TempDir(), "out.gguf")
	q := conversion.Quantize{In: in, Out: out, Type: "Q8_0", Tools: world(nil, nil, plenty)}
	if err := q.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--allow-requantize") {
		t.Errorf("a quantised source: %v", err)
	}
	q.Again = true
	if err := q.Run(t.Context()); err != nil {
		t.Errorf("allowed: %v", err)
	}
	turned := filepath.Join(t.TempDir(), "turned.gguf")
	if err := (conversion.Hadamard{In: in, Out: turned}).Write(); err != nil {
		t.Fatal(err)
	}
	q.In = turned
	if err := q.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "rotated") {
		t.Errorf("a rotated source: %v", err)
	}
}

func TestConvert(t *testing.T) {
	dir := t.TempDir()
	model := save(t, synth.Tiny("qwen2", tensor.F32), "model.gguf")
	source := filepath.Join(dir, "source")
	put(t, source, "config.json", "{}")
	put(t, source, "model.safetensors", "weights")
	args := filepath.Join(dir, "args")
	converter := script(t, dir, "convert_hf_to_gguf.py", "")
	python := script(t, dir, "python3", `echo "$@" > `+args+`; cp `+model+` "$4"`)
	out := filepath.Join(dir, "out.gguf")
	c := conversion.Convert{Dir: source, Out: out, Type: "BF16", Tools: world(nil, map[string]string{"convert_hf_to_gguf.py": converter, "python3": python}, plenty)}
	if err := c.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(args)
	if want := strings.Join([]string{converter, source, "--outfile", out + ".unchecked", "--outtype", "bf16"}, " ") + "\n"; string(b) != want {
		t.Errorf("arguments %q, want %q", b, want)
	}
	for name, change := range map[string]func(c *conversion.Convert){
		"is not one of f32":  func(c *conversion.Convert) { c.Type = "Q4_K_M" },
		"has no config.json": func(c *conversion.Convert) { c.Dir = dir },
		"is not on PATH": func(c *conversion.Convert) {
			c.Tools = world(nil, map[string]string{"convert_hf_to_gguf.py": converter}, plenty)
		},
		"ONEBIT_CONVERT_HF": func(c *conversion.Convert) { c.Tools = world(nil, nil, plenty) },
		"are free there":    func(c *conversion.Convert) { c.Tools.Space = func(string) (uint64, error) { return 1, nil } },
		"exit status 1":     func(c *conversion.Convert) { c.Python = script(t, dir, "bad", "exit 1") },
		"no such file":      func(c *conversion.Convert) { c.Python = script(t, dir, "idle", "exit 0") },
		"ONEBIT_CONVERT_HF nam": func(c *conversion.Convert) {
			c.Tools = world(map[string]string{"ONEBIT_CONVERT_HF": "/none"}, nil, plenty)
		},
	} {
		changed := c
		changed.Out = filepath.Join(dir, "new.gguf")
		change(&changed)
		if err := changed.Run(context.Background()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one with %q", err, name)
		}
		if _, err := os.Stat(changed.Out); err == nil {
			t.Errorf("%s: the file was written", name)
		}
	}
}
