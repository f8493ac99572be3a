package store_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readAll returns the content of every file below a folder.
func readAll(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		all[p] = b
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// glob returns the one file that a pattern names.
func glob(t testing.TB, pattern ...string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(pattern...))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", filepath.Join(pattern...), found, err)
	}
	return found[0]
}

// spoil overwrites every place where a file holds some text.
func spoil(t testing.TB, path, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), text) {
		t.Fatalf("%s does not hold %q", path, text)
	}
	b = []byte(strings.ReplaceAll(string(b), text, strings.Repeat("#", len(text))))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
