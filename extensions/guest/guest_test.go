package guest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"onebit/extensions/abi"
	"onebit/extensions/guest"
	"onebit/extensions/payload"
	"onebit/extensions/tck"
)

// compilers names, for each language, the variable of its Makefile and the one of the environment that it comes from.
var compilers = map[string]struct{ make, env string }{
	"go": {}, "c": {"CLANG", "ONEBIT_CLANG"}, "rust": {"RUSTC", "ONEBIT_RUSTC"}, "assemblyscript": {"ASC", "ONEBIT_ASC"},
}

// write writes a first module and returns its folder.
func write(t *testing.T, lang, name string) string {
	t.Helper()
	list, err := guest.Files(lang, name)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), name)
	for file, b := range list {
		if strings.Contains(string(b), "{{name") || strings.Contains(string(b), "{{source") {
			t.Errorf("%s is not filled in", file)
		}
		to := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTemplates builds the first module of each language by its own Makefile and tries it.
func TestTemplates(t *testing.T) {
	for _, lang := range guest.Languages() {
		t.Run(lang, func(t *testing.T) {
			args := []string{"-s", "my-policy.wasm"}
			if c := compilers[lang]; c.env != "" {
				if os.Getenv(c.env) == "" && os.Getenv("ONEBIT_ALL") != "" {
					t.Fatalf("%s is not set: bash e2e/setup.sh guests says what it must be", c.env)
				}
				if os.Getenv(c.env) == "" {
					t.Skipf("%s is not set: make test-all builds this one", c.env)
				}
				args = append(args, c.make+"="+os.Getenv(c.env))
			}
			dir := write(t, lang, "my-policy")
			cmd := exec.CommandContext(t.Context(), "make", args...)
			cmd.Dir = dir
			if b, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("building: %v\n%s", err, b)
			}
			try(t, dir)
		})
	}
}

func try(t *testing.T, dir string) {
	code, err := os.ReadFile(filepath.Join(dir, "my-policy.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "my-policy.json"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := payload.ReadManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	g, err := tck.Load(t.Context(), tck.Module{Code: code, Manifest: m, Config: []byte(` { "model" : "l\u0061rge" } `)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(context.Background())
	a, err := g.Ask(t.Context(), tck.Question{Function: abi.Route, Request: tck.Request("hello"), Patience: 40})
	if err != nil || a.Decision == nil || len(a.Decision.Candidates) != 1 || a.Decision.Candidates[0] != "large" {
		t.Errorf("with a configuration it decides %s, %v", a.Answer, err)
	}
	plain, err := tck.Load(t.Context(), tck.Module{Code: code, Manifest: m})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close(context.Background())
	if len(m.Samples) == 0 {
		t.Error("the manifest has no samples")
	}
	for _, f := range plain.Test(t.Context()) {
		if f.Err != nil {
			t.Errorf("%s: %v", f.Test, f.Err)
		}
	}
}

func TestFiles(t *testing.T) {
	if _, err := guest.Files("cobol", "x"); err == nil || !strings.Contains(err.Error(), "rust") {
		t.Errorf("an unknown language: %v", err)
	}
	for _, lang := range guest.Languages() {
		list, err := guest.Files(lang, "x-1")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"x-1.json", "README.md", "Makefile"} {
			if len(list[file]) == 0 {
				t.Errorf("%s: no %s", lang, file)
			}
		}
	}
}
