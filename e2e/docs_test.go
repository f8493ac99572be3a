//go:build unix

package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocsCommand works with documents from the command line: over the box's own socket, and with a key from elsewhere.
func TestDocsCommand(t *testing.T) {
	state := documentBox(t)
	text, err := os.ReadFile(filepath.Join(state, "1bit.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := string(text)
	b := startBox(t, state)
	b.claim()
	key, _ := b.key("")
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("well.md", "# Well\n\nThe well is eleven metres deep.")
	write("roof.md", "# Roof\n\nThe roof was mended in June by Tamsin.")
	write("broken.pdf", "%PDF-1.7\nnothing")
	docs := func(args ...string) (string, error) {
		cmd := exec.Command(binary, append([]string{"docs"}, args...)...)
		cmd.Env = append(os.Environ(), "ONEBIT_SOCKET="+filepath.Join(state, "admin.sock"), "ONEBIT_KEY="+key)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(want string, args ...string) {
		t.Helper()
		if out, err := docs(args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("docs %v: %v\n%s", args, err, out)
		}
	}
	out, err := docs("add", "--to", "House", dir)
	if err == nil || !strings.Contains(out, "broken.pdf  failed: ") || !strings.Contains(out, "2 added, 0 there already, 1 failed") {
		t.Errorf("adding: %v\n%s", err, out)
	}
	must("1 added", "add", "--to", "House", written(t, dir, "extra.md", "# Gate\n\nThe gate is green."))
	must("there already", "add", "--to", "House", filepath.Join(dir, "well.md"))
	must("House", "list")
	must("well.md", "list", "House")
	must("eleven metres", "search", "--in", "House", "--top", "2", "How", "deep", "is", "the", "well?")
	must("from: ", "ask", "--in", "House", "How deep is the well?")
	remote := []string{"--box", "https://127.0.0.1:" + b.port, "--root", b.rootFile()}
	must("Tamsin", append([]string{"search", "--in", "House", "Who mended the roof?"}, remote...)...)
	must("deleting roof.md", "rm", "House", "roof.md")
	if out, err := docs("search", "--in", "House", "roof"); err != nil || strings.Contains(out, "Tamsin") {
		t.Errorf("what was deleted is found: %v\n%s", err, out)
	}
	if out, err := docs("rm", "House", "nothing.md"); err == nil || !strings.Contains(out, "has no file") {
		t.Errorf("%v\n%s", err, out)
	}

	// a folder that is watched
	if err := os.Remove(filepath.Join(dir, "broken.pdf")); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	watch := exec.CommandContext(t.Context(), binary, "docs", "watch", "--every", "1", "--to", "Watched", dir)
	watch.Env = append(os.Environ(), "ONEBIT_SOCKET="+filepath.Join(state, "admin.sock"))
	watch.Stdout, watch.Stderr = &said, &said
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	files := func() string { out, _ := docs("list", "Watched"); return out }
	b.soon("the folder is in", func() bool { return strings.Count(files(), "completed") == 3 })
	write("well.md", "# Well\n\nThe well is twelve metres deep now.")
	if err := os.Remove(filepath.Join(dir, "extra.md")); err != nil {
		t.Fatal(err)
	}
	b.soon("the folder's change is in", func() bool {
		out, _ := docs("search", "--in", "Watched", "well")
		return strings.Contains(out, "twelve") && !strings.Contains(out, "eleven") && !strings.Contains(files(), "extra.md")
	})
	if err := watch.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("ending the watch: %v", err)
	}
	if n := strings.Count(said.String(), "roof.md"); n != 1 {
		t.Errorf("roof.md was brought in %d times:\n%s", n, said.String())
	}
	must("deleted the collection", "rm", "House")

	// a folder of the configuration is for everybody on the box
	b.configure(fmt.Sprintf("%sdocuments:\n  watch: [%q]\n", config, dir+"=Shared"))
	b.reload()
	other := b.admin("POST", "/people", `{"name":"Bea","role":"member"}`)
	key, _ = b.key(fmt.Sprintf(`,"owner":%q`, other["id"]))
	b.soon("the configured folder is in", func() bool {
		out, err := docs(append([]string{"search", "--in", "Shared", "well"}, remote...)...)
		return err == nil && strings.Contains(out, "twelve")
	})
}

// written writes a file and returns its path.
func written(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
