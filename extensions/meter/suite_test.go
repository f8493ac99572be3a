package meter_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"onebit/extensions/meter"
	"onebit/extensions/module"
)

// suites are packages of Go's standard library whose own tests, built for wasip1, are large real modules.
var suites = []string{
	"sort", "strconv", "strings", "math", "hash/crc32", "encoding/json", "compress/flate", "crypto/sha256", "regexp", "text/template", "go/format", "bytes",
}

// large are limits for modules that no stranger could upload.
func large() module.Limits {
	l := module.Default()
	l.Bytes, l.Code, l.Body, l.Functions, l.Pages = 64<<20, 64<<20, 8<<20, 200_000, 16384
	l.Joins, l.AllJoins, l.BrTable, l.Nest, l.Locals, l.Data = 100_000_000, 1<<40, 1<<20, 1<<16, 50_000, 1_000_000
	return l
}

// suite runs a test program and returns all that it prints, and how it ended. Its clock and its random numbers are the
// engine's fixed ones, so that two runs print the same. Examples want to write files, and are left out.
func suite(t *testing.T, b []byte, dir string) (out, end string) {
	t.Helper()
	s := newStage(t, wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(large().Pages), specification(t))
	wasi_snapshot_preview1.MustInstantiate(t.Context(), s.r)
	var stdout bytes.Buffer
	config := wazero.NewModuleConfig().WithName("").WithArgs("test", "-test.short", "-test.v", "-test.skip=^Example").WithStdout(&stdout).WithStderr(&stdout).WithStartFunctions().
		WithEnv("PWD", "/").WithFSConfig(wazero.NewFSConfig().WithReadOnlyDirMount(dir, "/"))
	m, err := s.r.InstantiateWithConfig(context.WithoutCancel(t.Context()), b, config)
	if err != nil {
		t.Fatal(err)
	}
	if g := m.ExportedGlobal(meter.Stack); g != nil {
		g.(api.MutableGlobal).Set(1 << 40)
	}
	_, err = m.ExportedFunction("_start").Call(context.WithoutCancel(t.Context()))
	return stdout.String(), failure(err)
}

// TestGoSuites runs the tests of Go's standard library before and after the rewrite: they print the same, word for word.
func TestGoSuites(t *testing.T) {
	if os.Getenv("ONEBIT_ALL") == "" {
		t.Skip("set ONEBIT_ALL to build and run the tests of Go's standard library twice")
	}
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, name := range suites {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "suite.wasm")
			c := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", file, name)
			c.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
			if b, err := c.CombinedOutput(); err != nil {
				t.Fatalf("building: %v\n%s", err, b)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			after, err := meter.Rewrite(b, large())
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(strings.TrimSpace(string(root)), "src", filepath.FromSlash(name))
			out, end := suite(t, b, dir)
			out2, end2 := suite(t, after, dir)
			passed := strings.Count(out, "--- PASS")
			t.Logf("%d KiB of module, %d tests passed, %d failed, %d bytes printed, ended %q", len(b)>>10, passed, strings.Count(out, "--- FAIL"), len(out), end)
			if out != out2 || end != end2 {
				t.Errorf("before and after differ: %q, %q\n%s", end, end2, difference(out, out2))
			}
			if passed < 3 {
				t.Errorf("the suite shows little:\n%.2000s", out)
			}
			total += passed
		})
	}
	t.Logf("%d tests passed before and after", total)
}

// difference returns the first lines that are not equal.
func difference(a, b string) string {
	la, lb := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(la), len(lb)) {
		if la[i] != lb[i] {
			return "before: " + la[i] + "\nafter:  " + lb[i]
		}
	}
	return "one is longer"
}
