package backend_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/backend"
)

// asker is a machine that counts the questions.
func asker(t *testing.T, answer func() (string, error)) (m *backend.Machine, program string, count *int) {
	t.Helper()
	m, err := backend.ThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(t.TempDir(), "llama-server")
	if err := os.WriteFile(program, []byte("one"), 0o700); err != nil {
		t.Fatal(err)
	}
	count = new(int)
	m.Ask = func(context.Context, string, []string, ...string) (string, error) {
		*count++
		return answer()
	}
	return m, program, count
}

func TestDevices(t *testing.T) {
	for _, c := range []struct {
		out  string
		want []string
		fail bool
	}{
		{"Available devices:\n  Vulkan0: AMD Radeon (RADV) (98304 MiB, 90000 MiB free)\n  HRX0: gfx1151 (1 MiB, 1 MiB free)\n", []string{"Vulkan0", "HRX0"}, false},
		{"ggml_vulkan: 0 = x: y\nAvailable devices:\n  ROCm0: AMD\n", []string{"ROCm0"}, false},
		{"Available devices:\n  (none)\n", nil, false},
		{"Available devices:", nil, false},
		{"Available devices:\n  two words: x\n  :\n", nil, false},
		{"usage: something\n", nil, true},
		{"", nil, true},
	} {
		m, program, _ := asker(t, func() (string, error) { return c.out, nil })
		got, err := m.Devices(t.Context(), program)
		if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != c.fail {
			t.Errorf("%q: %v, %v", c.out, got, err)
		}
	}
}

// FuzzParseDevices checks that whatever a program prints gives names that can be printed.
func FuzzParseDevices(f *testing.F) {
	f.Fuzz(func(t *testing.T, out string) {
		names, err := backend.ParseDevices(out)
		if err != nil && len(names) > 0 {
			t.Fatalf("both %v and the error %v", names, err)
		}
		for _, n := range names {
			if n == "" || strings.ContainsAny(n, " \t\n:\x1b") {
				t.Fatalf("the name %q", n)
			}
		}
	})
}

func TestDevicesAreAskedOnce(t *testing.T) {
	m, program, count := asker(t, func() (string, error) { return "Available devices:\n  Vulkan0: x\n", nil })
	ask := func(want int, env ...string) {
		t.Helper()
		if _, err := m.Devices(t.Context(), program, env...); err != nil || *count != want {
			t.Errorf("asked %d times, want %d; %v", *count, want, err)
		}
	}
	ask(1)
	ask(1)
	ask(2, "IREE_HAL_AMDGPU_LIBHSA_PATH=/x")
	ask(2, "IREE_HAL_AMDGPU_LIBHSA_PATH=/x")
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(program, later, later); err != nil {
		t.Fatal(err)
	}
	ask(3)
	ask(3)
}

// TestHRXIsAskedWithItsRuntime holds the plan to the variable without which hrx registers no device.
func TestHRXIsAskedWithItsRuntime(t *testing.T) {
	b := newBox(t, models(t), strix)
	if _, err := backend.NewPlan(t.Context(), b.machine, options{Model: b.path(plain)}); err != nil {
		t.Fatal(err)
	}
	want := b.path("DIR/lib/1bit/hrx/llama-server --list-devices IREE_HAL_AMDGPU_LIBHSA_PATH=DIR/opt/rocm-therock/7.1/lib/libhsa-runtime64.so.1")
	if !slices.Contains(b.asked, want) {
		t.Errorf("asked %q, want %q", b.asked, want)
	}
}

func TestAsk(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs are shell scripts")
	}
	m, err := backend.ThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("answers", func(t *testing.T) {
		out, err := m.Ask(t.Context(), script(`echo "said $1 $ONEBIT_X"; echo noise >&2`), []string{"ONEBIT_X=y"}, "--list-devices")
		if err != nil || out != "said --list-devices y\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
	t.Run("fails", func(t *testing.T) {
		_, err := m.Ask(t.Context(), script("echo first >&2; echo a library is missing >&2; exit 127"), nil)
		if err == nil || !strings.HasSuffix(err.Error(), "exit status 127: a library is missing") {
			t.Errorf("%v", err)
		}
	})
	t.Run("does not exist", func(t *testing.T) {
		if _, err := m.Ask(t.Context(), filepath.Join(t.TempDir(), "gone"), nil); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
	})
	t.Run("is given up", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("a signal came")
		time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
		if _, err := m.Ask(ctx, script("sleep 60 & sleep 60"), nil); !errors.Is(err, stop) {
			t.Errorf("%v", err)
		}
	})
}

func TestHSADepth(t *testing.T) {
	for path, found := range map[string]bool{"1/2/3/4/5/": true, "1/2/3/4/5/6/": false, "": true} {
		b := newBox(t, models(t), map[string]string{"path/llama-server": "HRX0", "opt/rocm-therock/" + path + "libhsa-runtime64.so.1": ""})
		p, err := backend.NewPlan(t.Context(), b.machine, options{Model: b.path(plain), Device: engine.HRX})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(p.Primary.Env) == 1; got != found {
			t.Errorf("below %q: environment %q", path, p.Primary.Env)
		}
	}
}

// TestHSARuntimeOfOurs prefers what came with this installation, wherever it lies there.
func TestHSARuntimeOfOurs(t *testing.T) {
	for _, own := range []string{"lib/1bit/hrx/libhsa-runtime64.so.1", "lib/1bit/hrx/lib/libhsa-runtime64.so.1"} {
		b := newBox(t, t.TempDir(), map[string]string{own: "", "opt/rocm-therock/libhsa-runtime64.so.1": ""})
		if got := b.machine.HSARuntime(); got != b.path("DIR/"+own) {
			t.Errorf("got %q, want the one at %s", got, own)
		}
	}
}

// TestCutHeadAcrossPieces looks for the key where it lies across two reads, in a library of another folder.
func TestCutHeadAcrossPieces(t *testing.T) {
	const key = "onebit.draft_vocab"
	for at := 1<<20 - len(key) - 1; at <= 1<<20+1; at++ {
		b := newBox(t, t.TempDir(), nil)
		b.file("opt/bin/llama-server", "")
		b.file("opt/lib/libllama.so", strings.Repeat("x", at)+key+strings.Repeat("y", 100))
		if !backend.Mentions(b.path("DIR/opt/bin/llama-server"), key) {
			t.Errorf("not seen at %d", at)
		}
		if backend.Mentions(b.path("DIR/opt/bin/llama-server"), key+"z") {
			t.Error("another key was seen")
		}
	}
}

func TestProbe(t *testing.T) {
	dir := models(t)
	for _, c := range []struct {
		file string
		want backend.Model
	}{
		{"plain.gguf", backend.Model{Kind: backend.GGUF, Architecture: "qwen3"}},
		{"moe.gguf", backend.Model{Kind: backend.GGUF, Architecture: "qwen3moe", Experts: true}},
		{"h32-moe.gguf", backend.Model{Kind: backend.GGUF, Architecture: "qwen3moe", Experts: true, Hadamard: true}},
		{"h64.gguf", backend.Model{Kind: backend.GGUF, Architecture: "qwen3"}},
		{"prism.gguf", backend.Model{Kind: backend.GGUF, Architecture: "qwen3", Prism: true, FileType: 128}},
		{"ternary.gguf", backend.Model{Kind: backend.GGUF, Architecture: "qwen3", Ternary: true}},
		{"mtp-cut.gguf", backend.Model{Kind: backend.GGUF, Architecture: "qwen4exp", DraftVocab: 65536}},
		{"dflash8.gguf", backend.Model{Kind: backend.GGUF, Architecture: "dflash", BlockSize: 8}},
		{"empty.gguf", backend.Model{Kind: backend.GGUF}},
		{"damaged.gguf", backend.Model{Kind: backend.GGUF}},
		{"star.gguf", backend.Model{Kind: backend.Container}},
		{"npu", backend.Model{Kind: backend.Q4NX, Architecture: "qwen3"}},
		{"onnx", backend.Model{Kind: backend.GenAI}},
	} {
		c.want.Path = filepath.Join(dir, c.file)
		got, err := backend.Probe(c.want.Path, engine.Auto)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", c.file, err, diff)
		}
	}
}

func TestServedName(t *testing.T) {
	for model, want := range map[string]string{
		"dir/Qwen3-0.6B.gguf": "Qwen3-0.6B", "models/Qwen3-0.6B-4bit/": "Qwen3-0.6B-4bit", "mlx-community/Qwen3-0.6B-4bit": "Qwen3-0.6B-4bit",
		"x.1bp": "x", ".gguf": ".gguf", "a.bin": "a.bin",
	} {
		if got := (options{Model: model}).Name(); got != want {
			t.Errorf("%s is served as %q, want %q", model, got, want)
		}
	}
	if got := (options{Model: "a.gguf", Alias: "b.gguf"}).Name(); got != "b.gguf" {
		t.Errorf("the alias became %q", got)
	}
}

func TestProgram(t *testing.T) {
	b := newBox(t, t.TempDir(), map[string]string{"lib/1bit/hrx/llama-server": "", "path/zinc": "", "mine": ""}, "ONEBIT_DS4=DIR/mine")
	for _, c := range []struct {
		device     engine.Device
		path, from string
	}{
		{engine.CPU, "", ""},
		{engine.HRX, "DIR/lib/1bit/hrx/llama-server", "part of this installation"},
		{engine.Vulkan, "DIR/lib/1bit/hrx/llama-server", "part of this installation"},
		{engine.Zinc, "DIR/path/zinc", "PATH"},
		{engine.DS4, "DIR/mine", "$ONEBIT_DS4"},
		{engine.ROCm, "", ""},
		{"warp", "", ""},
	} {
		path, from, err := b.machine.Program(c.device)
		if path != b.path(c.path) || from != c.from || (err != nil) != (c.path == "") {
			t.Errorf("%s: %q from %q, %v", c.device, path, from, err)
		}
	}
}

// TestInstalled: what was installed later wins over what came with us, behind the link that says which version holds.
func TestInstalled(t *testing.T) {
	b := newBox(t, t.TempDir(), map[string]string{
		"lib/1bit/hrx/llama-server": "", "lib/1bit/vulkan/llama-server": "", "path/zinc": "",
		"state/hrx/v2-abc/llama-server": "", "state/hrx/v2-abc/lib/libhsa-runtime64.so.1": "", "state/zinc/v1-abc/zinc": "", "state/ds4/v1-abc/ds4-server": "",
	})
	for build, version := range map[string]string{"hrx": "v2-abc", "zinc": "v1-abc", "ds4": "gone"} {
		if err := os.Symlink(version, b.path("DIR/state/"+build+"/current")); err != nil {
			t.Fatal(err)
		}
	}
	b.machine.Installed = b.path("DIR/state")
	for _, c := range []struct {
		device     engine.Device
		path, from string
	}{
		{engine.HRX, "DIR/state/hrx/current/llama-server", "installed"},
		{engine.Vulkan, "DIR/lib/1bit/vulkan/llama-server", "part of this installation"},
		{engine.Zinc, "DIR/state/zinc/current/zinc", "installed"},
		{engine.DS4, "", ""},
	} {
		path, from, err := b.machine.Program(c.device)
		if path != b.path(c.path) || from != c.from || (err != nil) != (c.path == "") {
			t.Errorf("%s: %q from %q, %v", c.device, path, from, err)
		}
	}
	if got, want := b.machine.HSARuntime(), b.path("DIR/state/hrx/current/lib/libhsa-runtime64.so.1"); got != want {
		t.Errorf("the runtime is %q, not %q", got, want)
	}
}
