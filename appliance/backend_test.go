package main_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	main "onebit/appliance"
	"onebit/engine/sandbox"
)

// TestBackendCommand checks what somebody sees who does not know the command yet, and that nothing is installed that
// does not decode.
func TestBackendCommand(t *testing.T) {
	state, model := t.TempDir(), filepath.Join(t.TempDir(), "m.gguf")
	t.Setenv("STATE_DIRECTORY", state)
	t.Setenv("ONEBIT_MODELS", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	folder := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret") // what the one who installs can read, and the program cannot
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho no such model >&2\nexit 1\n"
	if sandbox.Supported().Landlock > 0 {
		script = "#!/bin/sh\nif (cat " + secret + ") >/dev/null 2>&1; then echo it reads secrets; else echo no such model; fi >&2\nexit 1\n"
	}
	if err := os.WriteFile(filepath.Join(folder, "llama-server"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(model, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"", 2, "usage: 1bit backend list"},
		{"-h", 0, "usage: 1bit backend list"},
		{"fly", 2, `unknown command "fly"`},
		{"list --fast", 2, `unexpected "--fast"`},
		{"list", 0, "nothing is installed"},
		{"verify", 1, "a device is needed"},
		{"verify cpu", 1, "no such version is installed"},
		{"verify warp", 1, `no program is installed for such a device as "warp"; there are cpu, ds4`},
		{"rollback cpu", 1, "no such version is installed"},
		{"install cpu", 1, "a device and a source are needed"},
		{"install cpu https://example.com/x.tar.gz", 1, "needs the SHA-256"},
		{"install cpu http://127.0.0.1:1/x.tar.gz --sha256 " + strings.Repeat("0", 64), 1, "refused"},
		{"install cpu " + folder + " --version v1", 1, "`1bit model pull smollm2` obtains one"},
		{"install cpu " + folder + " --version v1 --model " + model, 1, "it printed last: no such model"},
		{"list", 0, "nothing is installed"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out, errs strings.Builder
			status := main.Run(context.Background(), strings.NewReader(""), &out, &errs, append([]string{"backend"}, strings.Fields(c.args)...)...)
			if said := out.String() + errs.String(); status != c.status || !strings.Contains(said, c.want) {
				t.Errorf("status %d, not %d; said %q, want %q in it", status, c.status, said, c.want)
			}
		})
	}
}
