package main_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	main "onebit/appliance"
	"onebit/engine/gguf"
	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

// TestConversionUsage checks what the commands say to command lines that are not sound.
func TestConversionUsage(t *testing.T) {
	draft, hadamard := main.ToolCommands()["mtp-draft-vocab"], main.ToolCommands()["hadamard"]
	importing, convert, quantize := main.ModelCommands()["import"], main.ModelCommands()["convert"], main.ModelCommands()["quantize"]
	memory, perplexity := main.ToolCommands()["memory"], main.ToolCommands()["perplexity"]
	tests := []struct {
		name   string
		run    func(args []string, stdout, stderr io.Writer) int
		args   string
		status int
		want   string
	}{
		{"help", draft, "--help", 0, "usage: 1bit tool mtp-draft-vocab"},
		{"nothing", draft, "", 2, "--target and --out are needed"},
		{"no head", draft, "--target a --out b", 2, "--mtp and --ids are needed"},
		{"stray", draft, "--target a --out b c", 2, `unexpected "c"`},
		{"count without texts", draft, "--count --target a --out b", 2, "at least one text"},
		{"count with a head", draft, "--count c --target a --out b --mtp d", 2, "do not go with it"},
		{"no file", draft, "--target none --out b --mtp none --ids none", 1, "none: no such file"},
		{"rotate", hadamard, "--in a", 2, "--in and --out are needed"},
		{"rotate with a crowd", hadamard, "--in a --out b --threads 5000", 2, "it is not a whole number from 0 to 1024"},
		{"memory help", memory, "-h", 0, "usage: 1bit tool memory"},
		{"memory, no reader", memory, "-t 0", 2, "it is not a whole number from 1 to 1024"},
		{"memory with a crowd", memory, "-t 99999999", 2, "it is not a whole number from 1 to 1024"},
		{"memory, stray", memory, "2", 2, `unexpected "2"`},
		{"perplexity help", perplexity, "--help", 0, "usage: 1bit tool perplexity"},
		{"perplexity of nothing", perplexity, "-m a", 2, "-m MODEL and -f TEXT are needed"},
		{"perplexity, no window", perplexity, "-m a -f b -c 1", 2, "it is not a whole number from 2"},
		{"perplexity, no text", perplexity, "-m a -f none", 1, "none: no such file"},
		{"perplexity without end", perplexity, "-m a -f /dev/zero", 1, `"/dev/zero" is larger than 64 MiB`},
		{"import", importing, "", 2, "more needed"},
		{"import without out", importing, "dir", 2, "--out is needed"},
		{"two folders", importing, "a b --out c", 2, `unexpected "b"`},
		{"convert", convert, "none --out c", 1, "no config.json"},
		{"quantize with a crowd", quantize, "a b Q8_0 --threads -1", 2, "it is not a whole number from 0 to 1024"},
		{"quantize", quantize, "a b", 2, "more needed"},
		{"option", quantize, "--fast a b c", 2, "not defined: -fast"},
		{"bench", main.RunBench, "", 2, "-m is needed"},
		{"bench nothing", main.RunBench, "-m x", 2, "at least one --config"},
		{"bench port", main.RunBench, "-m x --config --port=1", 2, "chooses address and port"},
		{"e2e both", main.RunBench, "e2e -m x --url y", 2, "do not go with it"},
		{"e2e sizes", main.RunBench, "e2e -m x --prompt 1,b", 2, `"b" is not a number of tokens`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs strings.Builder
			status := tt.run(strings.Fields(tt.args), &out, &errs)
			if said := out.String() + errs.String(); status != tt.status || !strings.Contains(said, tt.want) {
				t.Errorf("status %d, not %d; said %q, want %q in it", status, tt.status, said, tt.want)
			}
		})
	}
}

// TestConversionCommands makes a list of ids and a rotated file.
func TestConversionCommands(t *testing.T) {
	dir := t.TempDir()
	b, err := synth.Bytes(synth.Tiny("qwen3", tensor.Q8_0))
	if err != nil {
		t.Fatal(err)
	}
	model, text := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "text")
	for path, content := range map[string][]byte{model: b, text: []byte("the end of the line")} {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs strings.Builder
	ids, turned := filepath.Join(dir, "ids"), filepath.Join(dir, "turned.gguf")
	if status := main.ToolCommands()["mtp-draft-vocab"]([]string{"--count", text, "--size", "9", "--target", model, "--out", ids}, &out, &errs); status != 0 {
		t.Errorf("counting: %s", errs.String())
	}
	if list, err := os.ReadFile(ids); err != nil || len(strings.Fields(string(list))) < 9 {
		t.Errorf("ids %q, error %v", list, err)
	}
	if status := main.ToolCommands()["hadamard"]([]string{"--in", model, "--out", turned}, &out, &errs); status != 0 {
		t.Errorf("rotating: %s", errs.String())
	}
	f, err := gguf.Open(turned)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, _ := f.Uint("onebit.hadamard_q4_0"); n != 32 {
		t.Errorf("stamp %d", n)
	}
}
