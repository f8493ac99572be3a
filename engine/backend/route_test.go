package backend_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/engine"
	"onebit/engine/backend"
)

func TestRoute(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"a.gguf": "GGUF\x03", "empty.gguf": "", "a.bin": "hello", "b.bin": "GGUF\x03", "a.1bp": "1BP\x00\x01"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		file string
		wish engine.Device
		says string // of the error; empty where the answer is cpu
	}{
		{"a.gguf", engine.Auto, ""},
		{"a.gguf", engine.CPU, ""},
		{"b.bin", engine.Auto, ""},
		{"empty.gguf", engine.Auto, ""}, // the engine says what is wrong with it
		{"a.gguf", engine.Vulkan, "the device vulkan is not part of this version"},
		{"a.bin", engine.Auto, "is not a GGUF file"},
		{"a.1bp", engine.Auto, "ds4"},
		{"missing.gguf", engine.Auto, `missing.gguf" cannot be read: no such file or directory`},
		{"", engine.Auto, "is a directory"},
	} {
		t.Run(c.file+" "+string(c.wish), func(t *testing.T) {
			device, why, err := backend.Route(filepath.Join(dir, c.file), c.wish)
			if c.says == "" {
				if err != nil || device != engine.CPU || why == "" {
					t.Errorf("got %q because %q, %v", device, why, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}
