package backend_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/gguf/synth"
	"onebit/engine/plan"
	"onebit/engine/tensor"
)

// TestMemoryLimit: what a model's weights and cache take by half as much again, and 6 GiB; never more than there is.
func TestMemoryLimit(t *testing.T) {
	dir := t.TempDir()
	model, draft, folder := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "d.gguf"), filepath.Join(dir, "npu")
	for _, path := range []string{model, draft} {
		b, err := synth.Bytes(synth.Tiny("llama", tensor.Q8_0))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(filepath.Join(folder, "weights"), nil, 0o600), os.Truncate(filepath.Join(folder, "weights"), 8<<30)); err != nil {
		t.Fatal(err)
	}
	p, err := plan.Open(model, plan.Options{Context: 4096, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}
	one := p.Resident()
	const besides = 6 << 30
	for _, c := range []struct {
		name  string
		o     backend.Options
		args  []string
		total uint64 // KiB
		want  uint64
	}{
		{"a model", backend.Options{Model: model, Context: 4096, Parallel: 2}, []string{"-m", model}, 64 << 20, one + one/2 + besides},
		{"with its draft", backend.Options{Model: model, MTP: draft, Context: 4096, Parallel: 2}, []string{"-m", model, "-md", draft}, 64 << 20, 2*one + one + besides},
		{"a draft that another child has", backend.Options{Model: model, MTP: draft, Context: 4096, Parallel: 2}, []string{"-m", model}, 64 << 20, one + one/2 + besides},
		{"a folder", backend.Options{Model: folder}, []string{"-m", folder}, 64 << 20, 8<<30 + 4<<30 + besides},
		{"a small machine", backend.Options{Model: folder}, []string{"-m", folder}, 10 << 20, 10 << 30},
		{"an id", backend.Options{Model: "owner/name"}, []string{"owner/name"}, 64 << 20, besides},
		{"a question", backend.Options{}, []string{"--list-devices"}, 64 << 20, besides},
		{"a machine that does not say", backend.Options{Model: model}, []string{"-m", model}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := backend.MemoryOf(c.o, backend.ChildSpec{Device: engine.CPU, Args: c.args}, func(string) ([]byte, error) {
				if c.total == 0 {
					return nil, os.ErrNotExist
				}
				return fmt.Appendf(nil, "MemTotal: %d kB\nMemAvailable: 1 kB\n", c.total), nil
			})
			if got != c.want {
				t.Errorf("%d bytes, want %d", got, c.want)
			}
		})
	}
}
