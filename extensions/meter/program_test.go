package meter_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// program runs a WASI command, and returns what it wrote and how it ended.
func program(t *testing.T, b []byte, dir string, args ...string) (out, end string) {
	t.Helper()
	s := newStage(t, wazero.NewRuntimeConfigCompiler(), specification(t))
	wasi_snapshot_preview1.MustInstantiate(t.Context(), s.r)
	var stdout, stderr bytes.Buffer
	config := wazero.NewModuleConfig().WithArgs(args...).WithStdout(&stdout).WithStderr(&stderr).WithFSConfig(wazero.NewFSConfig().WithReadOnlyDirMount(dir, "/"))
	_, err := s.r.InstantiateWithConfig(context.WithoutCancel(t.Context()), b, config)
	_, end, _ = strings.Cut(failure(err), " failed: ") // before it stands a name, which the rewrite drops
	return stdout.String() + stderr.String(), end
}

// TestPrograms runs what real compilers made (Rust, TinyGo, Zig) before and after: they print the same.
func TestPrograms(t *testing.T) {
	root := filepath.Join(specification(t), "..", "..", "..", "imports", "wasi_snapshot_preview1")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "test.txt"), []byte(strings.Repeat("a line to print\n", 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		pattern string
		args    []string
	}{
		{"example/testdata/*/cat.wasm", []string{"cat", "/test.txt"}},
		{"testdata/*/wasi.wasm", []string{"wasi", "ls", "."}},
		{"testdata/*/wasi.wasm", []string{"wasi", "stat"}},
		{"testdata/*/wasi.wasm", []string{"wasi", "ls"}}, // some of them trap
	}
	printed := 0
	for _, tt := range tests {
		files, err := filepath.Glob(filepath.Join(root, tt.pattern))
		if err != nil || len(files) < 4 {
			t.Fatalf("%s: %d programs, %v", tt.pattern, len(files), err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out, end := program(t, b, dir, tt.args...)
			out2, end2 := program(t, metered(t, b), dir, tt.args...)
			if out != out2 || end != end2 {
				t.Errorf("%s %s: plain %q %q, metered %q %q", file, tt.args, out, end, out2, end2)
			}
			printed += len(out)
		}
	}
	if printed < 300 {
		t.Errorf("the programs printed %d bytes: they show little", printed)
	}
}
