package main_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	main "onebit/appliance"
	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

// TestModelCommand checks what somebody sees who does not know the command yet.
func TestModelCommand(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "tiny.gguf")
	b, err := synth.Bytes(synth.Tiny("llama", tensor.Q8_0))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"model", 2, "usage: 1bit model pull"},
		{"model -h", 0, "usage: 1bit model pull"},
		{"model pull -h", 0, "usage: 1bit model pull"},
		{"model list --help", 0, "usage: 1bit model pull"},
		{"model plan -h", 0, "usage: 1bit model plan"},
		{"model import -h", 0, "usage: 1bit model import"},
		{"model pull", 2, "the name of a model is needed; known are qwen2.5-coder-0.5b, smollm2"},
		{"model pull nothing", 1, `no model is called "nothing"; known are`},
		{"model pull --fallback smollm2 nothing", 1, `no model is called "nothing"; known are`},
		{"model list", 0, "not here"},
		{"model plan", 2, "the name of a GGUF file is needed"},
		{"model plan --free much " + file, 2, "invalid value \"much\" for flag -free"},
		{"model plan " + file + " --free -1", 1, "-1 GiB is no amount of memory"},
		{"model plan " + file + " --ctx-size 0", 2, "it is not a whole number from 1"},
		{"model plan " + file + " more", 2, `unexpected "more"`},
		{"model plan --parallel 2 " + file, 0, "64 GB box"},
		{"model add", 1, "the name of a GGUF file is needed"},
		{"model plan " + file, 0, "64 GB box"},
		{"model plan " + file + " --free 7", 0, "7 GiB free"},
		{"serve -m smollm2", 1, "no such file or directory; `1bit model pull smollm2` obtains the model of that name and prints its path"},
		{"chat -m smollm2", 1, "`1bit model pull smollm2` obtains"},
		{"serve -m other", 1, "the model \"other\" cannot be read: no such file or directory\n"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out, errs strings.Builder
			status := main.Run(context.Background(), strings.NewReader(""), &out, &errs, strings.Fields(c.args)...)
			if said := out.String() + errs.String(); status != c.status || !strings.Contains(said, c.want) {
				t.Errorf("status %d, not %d; said %q, want %q in it", status, c.status, said, c.want)
			}
		})
	}
}
