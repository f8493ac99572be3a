//go:build unix

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFiveMinutes runs the commands by which extensions/README.md makes a first module, as they stand there.
func TestFiveMinutes(t *testing.T) {
	paper, err := os.ReadFile("../extensions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(paper), "```sh\n")
	script, _, end := strings.Cut(rest, "```")
	if !ok || !end || strings.Count(script, "\n") < 4 {
		t.Fatalf("the commands are not there: %q", script)
	}
	bin := t.TempDir()
	path, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(bin, "1bit")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{" 0 failed (2 samples)", `"action":"route","candidates":["small"`, " of 50000000"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not said:\n%s", want, out)
		}
	}
}
