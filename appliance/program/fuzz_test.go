package program_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/appliance/program"
)

const fuzzBudget = 1 << 20

// outside fails when something was written beside a folder, or into it beyond its budget.
func outside(t *testing.T, parent, dir string) {
	t.Helper()
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Join(parent, e.Name()) != dir && e.Name() != "archive.zip" {
			t.Errorf("%s was written beside the folder", e.Name())
		}
	}
	total := int64(0)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		if info.Mode().IsRegular() {
			total += info.Size()
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(path)
			if err != nil || filepath.IsAbs(to) || !strings.HasPrefix(filepath.Join(filepath.Dir(path), to), dir) {
				t.Errorf("the link %s leads to %s", path, to)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total > fuzzBudget+1 {
		t.Errorf("%d bytes were written", total)
	}
}

// evil are archives that want out.
func evil() [][]item {
	return [][]item{
		server("v1"),
		{{name: "../x", text: "x"}}, {{name: "a/../../x", text: "x"}}, {{name: "/x", text: "x"}}, {{name: `..\x`, text: "x"}}, {{name: "C:x", text: "x"}},
		{{name: "a", link: ".."}, {name: "a/x", text: "x"}}, {{name: "a", link: "b"}, {name: "b", link: "../.."}, {name: "a/x", text: "x"}},
		{{name: "a", text: "x", mode: 0o4755}}, {{name: "a/b/c/d", text: strings.Repeat("x", 1<<16)}}, {{name: strings.Repeat("a/", 100) + "x", text: "x"}},
	}
}

func FuzzTar(f *testing.F) {
	for _, items := range evil() {
		f.Add(tarball(f, items), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, packed bool) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = program.UnpackTar(t.Context(), b, packed, dir, fuzzBudget)
		outside(t, parent, dir)
	})
}

func FuzzZip(f *testing.F) {
	for _, items := range evil() {
		f.Add(zipped(f, items))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		parent := t.TempDir()
		dir, archive := filepath.Join(parent, "in"), filepath.Join(parent, "archive.zip")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(archive, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = program.UnpackZip(t.Context(), archive, dir, fuzzBudget)
		outside(t, parent, dir)
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"device":"vulkan","version":"v1","files":[{"path":"a/b","size":1,"sha256":"00"},{"path":"c","link":"a/b"}]}`))
	f.Add([]byte(`{"device":"vulkan","version":"v1","files":[{"path":"../b"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := program.ParseManifest(b)
		if err != nil {
			return
		}
		for _, e := range m.Files {
			if !filepath.IsLocal(e.Path) || (e.Link != "" && !filepath.IsLocal(filepath.Join(filepath.Dir(e.Path), e.Link))) {
				t.Errorf("%+v was taken", e)
			}
		}
		if _, err := json.Marshal(m); err != nil {
			t.Error(err)
		}
	})
}
