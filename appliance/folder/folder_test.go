package folder_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/folder"
)

// collection is a target in memory.
type collection struct {
	files  map[string]folder.Entry // by id
	text   map[string]string       // by path
	next   int
	refuse map[string]error
	puts   int
}

func (c *collection) List(context.Context) ([]folder.Entry, error) {
	var all []folder.Entry
	for _, e := range c.files {
		all = append(all, e)
	}
	return all, nil
}

func (c *collection) Put(_ context.Context, e folder.Entry, old string, r io.Reader) error {
	c.puts++
	if err := c.refuse[e.Path]; err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	c.next++
	e.File = fmt.Sprint(c.next)
	delete(c.files, old)
	c.files[e.File] = e
	c.text[e.Path] = string(b)
	return nil
}

func (c *collection) Remove(_ context.Context, e folder.Entry) error {
	delete(c.files, e.File)
	delete(c.text, e.Path)
	return nil
}

func TestSync(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put("a.md", "one")
	put("sub/b.md", "two")
	put(".hidden/c.md", "no")
	put("bad.md", "bad")
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "link.md")); err != nil {
		t.Fatal(err)
	}
	c := &collection{files: map[string]folder.Entry{}, text: map[string]string{}, refuse: map[string]error{"bad.md": errors.New("no document")}}
	var told []string
	w := &folder.Watcher{Dir: dir, Target: c, Report: func(e folder.Event) { told = append(told, fmt.Sprintf("%s %s %v", e.Did, e.Path, e.Err)) }}
	check := func(what string, text map[string]string, want ...string) {
		t.Helper()
		told = nil
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(text, c.text); d != "" {
			t.Errorf("%s: %s", what, d)
		}
		if d := cmp.Diff(want, told); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	check("first", map[string]string{"a.md": "one", "sub/b.md": "two"}, "added a.md <nil>", "added bad.md no document", "added sub/b.md <nil>")
	check("nothing new", map[string]string{"a.md": "one", "sub/b.md": "two"})
	puts := c.puts
	put("a.md", "longer")
	check("changed", map[string]string{"a.md": "longer", "sub/b.md": "two"}, "changed a.md <nil>")
	if err := os.Remove(filepath.Join(dir, "sub", "b.md")); err != nil {
		t.Fatal(err)
	}
	check("removed", map[string]string{"a.md": "longer"}, "removed sub/b.md <nil>")
	if c.puts != puts+1 {
		t.Errorf("%d files were put in again", c.puts-puts-1)
	}

	// another watcher, which remembers nothing, puts nothing in again
	c.refuse = nil
	w = &folder.Watcher{Dir: dir, Target: c, Report: w.Report}
	check("afresh", map[string]string{"a.md": "longer", "bad.md": "bad"}, "added bad.md <nil>")

	// a folder that cannot be read has not lost its files
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(t.Context()); err == nil || len(c.text) != 2 {
		t.Errorf("%v, %v", err, c.text)
	}
}

// TestSyncKeepsOut leaves alone what no collection can have, and puts in again what somebody else took out.
func TestSyncKeepsOut(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.md", "one")
	write("huge.md", "")
	if err := os.Truncate(filepath.Join(dir, "huge.md"), folder.MaxBytes+1); err != nil { // it has a hole
		t.Fatal(err)
	}
	odd := false
	if runtime.GOOS == "linux" { // others have no such names
		write("b\xff.md", "two")
		odd = true
	}
	c := &collection{files: map[string]folder.Entry{}, text: map[string]string{}}
	told := map[string]int{}
	w := &folder.Watcher{Dir: dir, Target: c, Report: func(e folder.Event) { told[e.Did]++ }}
	for range 3 {
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{"added": 1, "skipped": 1}
	if odd {
		want["skipped"]++
	}
	if d := cmp.Diff(want, told); d != "" {
		t.Error(d)
	}
	clear(c.files)
	clear(c.text)
	for range 2 {
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if c.text["a.md"] != "one" || c.puts != 2 {
		t.Errorf("what was taken out: %v, put in %d times", c.text, c.puts)
	}
}
