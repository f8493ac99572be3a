package pool_test

import (
	"os"
	"path/filepath"
	"testing"

	"onebit/appliance/pool"
	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

func TestEstimate(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	b, err := synth.Bytes(synth.Tiny("llama", tensor.Q8_0))
	if err != nil {
		t.Fatal(err)
	}
	model := write("m.gguf", b)
	draft := write("draft.gguf", make([]byte, 1<<20))
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"folder/a", "folder/b"} {
		write(name, make([]byte, 3<<20))
	}
	estimate := func(o backend.Options, d engine.Device) pool.Need {
		t.Helper()
		n, err := pool.Estimate(o, d)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	cpu := estimate(backend.Options{Model: model, Context: 512}, engine.CPU)
	if cpu.Device != engine.CPU || cpu.Bytes < uint64(len(b))/2 || cpu.Host == 0 || cpu.Bytes > 100<<20 {
		t.Errorf("on the processor: %+v", cpu)
	}
	card := estimate(backend.Options{Model: model, Context: 512}, engine.Vulkan)
	if card.Bytes <= cpu.Bytes || card.Device != engine.Vulkan {
		t.Errorf("on a card: %+v", card)
	}
	if large := estimate(backend.Options{Model: model, Context: 1 << 20}, engine.CPU); large.Bytes <= cpu.Bytes {
		t.Errorf("a larger context takes %d, not more than %d", large.Bytes, cpu.Bytes)
	}
	if drafting := estimate(backend.Options{Model: model, Context: 512, MTP: draft}, engine.CPU); drafting.Bytes != cpu.Bytes+1<<20 {
		t.Errorf("with a drafter: %+v", drafting)
	}
	if n := estimate(backend.Options{Model: folder}, engine.NPU); n.Bytes != 6<<20 {
		t.Errorf("a folder: %+v", n)
	}
	if n := estimate(backend.Options{Model: "owner/name"}, engine.MLX); n.Bytes != 256<<20 {
		t.Errorf("an id: %+v", n)
	}
	cut := write("cut.gguf", b[:len(b)/2])
	if _, err := pool.Estimate(backend.Options{Model: cut}, engine.CPU); err == nil {
		t.Error("half a file was estimated")
	}
}
