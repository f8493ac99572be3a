package backend_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onebit/engine"
	"onebit/engine/backend"

	"github.com/google/go-cmp/cmp"
)

// tree makes files below a folder.
func tree(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, name := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConfinementReads(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree(t, dir, "bin/1bit", "vulkan/bin/llama-server", "vulkan/lib/libggml.so", "state/1bit.db", "state/llama-server", "state/libx.so.1", "m.gguf", "head.gguf", "m-00001-of-00002.gguf")
	in := func(names ...string) (all []string) {
		for _, n := range names {
			all = append(all, filepath.Join(dir, n))
		}
		return all
	}
	model := filepath.Join(dir, "m.gguf")
	for _, c := range []struct {
		name    string
		options backend.Options
		spec    backend.ChildSpec
		want    []string
	}{
		{
			"our own engine: its model alone", backend.Options{Model: model, Alias: dir},
			backend.ChildSpec{Device: engine.CPU, Builtin: true, Program: filepath.Join(dir, "bin/1bit"), Args: []string{"engine", "-m", model, "--alias", dir}},
			in("m.gguf"),
		},
		{
			"a server with its libraries and its draft", backend.Options{Model: model, MTP: filepath.Join(dir, "head.gguf")},
			backend.ChildSpec{Device: engine.Vulkan, Program: filepath.Join(dir, "vulkan/bin/llama-server"), Args: []string{"-m", model, "-md", filepath.Join(dir, "head.gguf")}},
			in("m.gguf", "head.gguf", "vulkan/bin", "vulkan/lib", "vulkan/lib64"),
		},
		{
			"a model in pieces", backend.Options{Model: filepath.Join(dir, "m-00001-of-00002.gguf")},
			backend.ChildSpec{Device: engine.CPU, Builtin: true, Program: filepath.Join(dir, "bin/1bit"), Args: []string{"-m", filepath.Join(dir, "m-00001-of-00002.gguf")}},
			in("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"),
		},
		{
			"a model that this child does not get", backend.Options{Model: model, Rerank: filepath.Join(dir, "head.gguf")},
			backend.ChildSpec{Device: engine.CPU, Builtin: true, Program: filepath.Join(dir, "bin/1bit"), Args: []string{"-m", model}},
			in("m.gguf"),
		},
		{
			"a server that lies in the state", backend.Options{Model: model},
			backend.ChildSpec{Device: engine.CPU, Program: filepath.Join(dir, "state/llama-server"), Args: []string{"-m", model}},
			in("m.gguf", "state/libx.so.1", "lib", "lib64"),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec, err := backend.SandboxOf(backend.Confinement{Private: []string{filepath.Join(dir, "state")}}, c.options, c.spec, backend.Place{Port: 8080})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, spec.Read); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if spec.Alone != c.spec.Builtin || spec.Port != 8080 || spec.Parent != os.Getpid() || spec.Network {
				t.Errorf("%+v", spec)
			}
		})
	}
}

// TestConfinementWrites: a chat that keeps the state of slots writes there, and nothing else does.
func TestConfinementWrites(t *testing.T) {
	const dir = "/var/slots/m"
	keeps := []string{"-m", "/m.gguf", "--slot-save-path", dir}
	for _, c := range []struct {
		name, folder string
		args, want   []string
	}{
		{"none", "", keeps[:2], nil},
		{"kept", dir, keeps, []string{dir}},
		{"a child without it", dir, keeps[:2], nil},
		{"another folder", "/var/slots/other", keeps, nil},
		{"no value", dir, keeps[:3], nil},
	} {
		spec, err := backend.SandboxOf(backend.Confinement{}, backend.Options{Model: "/m.gguf", SlotDir: c.folder}, backend.ChildSpec{Device: engine.CPU, Builtin: true, Program: "/1bit", Args: c.args}, backend.Place{Port: 1})
		if err != nil || !slices.Equal(spec.Write, c.want) || spec.Group {
			t.Errorf("%s: %v, group %v, %v", c.name, spec.Write, spec.Group, err)
		}
	}
}

func TestConfinementEnvironment(t *testing.T) {
	c := backend.Confinement{Environ: []string{"PATH=/usr/bin", "ONEBIT_BACKUP_PASSPHRASE=canary", "HF_TOKEN=canary", "HOME=/root", "ONEBIT_LOG=debug"}, Scratch: "/scratch"}
	spec, err := backend.SandboxOf(c, backend.Options{}, backend.ChildSpec{Device: engine.CPU, Program: "/usr/bin/1bit", Env: []string{"ONEBIT_LOG=warn", "GGML_X=1"}}, backend.Place{Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"PATH=/usr/bin", "ONEBIT_LOG=debug", "GGML_X=1", "HOME=/scratch/cpu", "TMPDIR=/scratch/cpu", "XDG_CACHE_HOME=/scratch/cpu"}
	if diff := cmp.Diff(want, spec.Env); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if strings.Contains(strings.Join(spec.Env, " "), "canary") {
		t.Error("a secret is in the environment")
	}
}

// TestConfinementTellsOfTheNetwork: a model that is an id has to be fetched.
func TestConfinementTellsOfTheNetwork(t *testing.T) {
	for model, want := range map[string]bool{"owner/name": true, t.TempDir(): false} {
		spec, err := backend.SandboxOf(backend.Confinement{}, backend.Options{Model: model}, backend.ChildSpec{Device: engine.MLX, Program: "/usr/bin/mlx", Args: []string{model}}, backend.Place{Port: 1})
		if err != nil || spec.Network != want {
			t.Errorf("%s: network %v, %v", model, spec.Network, err)
		}
	}
	var log strings.Builder
	c := backend.Confinement{Executable: "/nowhere/1bit", Log: slog.New(slog.NewTextHandler(&log, nil))}
	if _, err := c.Launch(backend.Options{Model: "owner/name"}, backend.ChildSpec{Device: engine.MLX, Program: "/usr/bin/mlx"})(backend.Place{Port: 1}, nil, nil); err == nil {
		t.Error("a program that is not there was started")
	}
	if !strings.Contains(log.String(), "may use the network") {
		t.Errorf("the log is silent: %q", log.String())
	}
}

// TestWhoeverIsAskedSeesEveryCard: a llama-server lists the devices that it can open.
func TestWhoeverIsAskedSeesEveryCard(t *testing.T) {
	seen := backend.NodePatterns(backend.Asked)
	for _, d := range []engine.Device{engine.Vulkan, engine.HRX, engine.ROCm, engine.Zinc} {
		for _, p := range backend.NodePatterns(d) {
			if !slices.Contains(seen, p) {
				t.Errorf("%s uses %s, which is not shown to a program that is asked for its devices", d, p)
			}
		}
	}
}
