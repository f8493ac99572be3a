package program_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"onebit/appliance/egress"
	"onebit/appliance/program"
)

// item is one entry of a made archive.
type item struct {
	name, text, link string
	mode             int64
	kind             byte // of a tar entry; 0 for what the fields say
}

// server is a program that says its version, with a library and a link to it, as such archives have them.
func server(version string) []item {
	return []item{
		{name: "build/bin/llama-server", text: "#!/bin/sh\ncat \"$(dirname \"$(readlink -f \"$0\")\")/libx.so\"\n", mode: 0o755},
		{name: "build/bin/libx.so.1", text: version, mode: 0o644},
		{name: "build/bin/libx.so", link: "libx.so.1"},
		{name: "LICENSE", text: "free", mode: 0o644},
	}
}

func tarball(t testing.TB, items []item) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Mode: i.mode, Size: int64(len(i.text)), Linkname: i.link, Typeflag: tar.TypeReg}
		switch {
		case i.kind != 0:
			h.Typeflag = i.kind
		case i.link != "":
			h.Typeflag = tar.TypeSymlink
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(i.text)); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	z.Close()
	return b.Bytes()
}

func zipped(t testing.TB, items []item) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, i := range items {
		h := &zip.FileHeader{Name: i.name, Method: zip.Deflate}
		h.SetMode(os.FileMode(i.mode))
		text := i.text
		if i.link != "" {
			h.SetMode(os.ModeSymlink | 0o777)
			text = i.link
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte(text))
	}
	w.Close()
	return b.Bytes()
}

func put(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// runs is a check that runs the program, which has to print a version.
func runs(ctx context.Context, _, path string) error {
	out, err := exec.CommandContext(ctx, path).Output()
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(out, []byte("v")) {
		return fmt.Errorf("it printed %q", out)
	}
	return nil
}

func store(t testing.TB) *program.Store {
	t.Helper()
	return &program.Store{Dir: t.TempDir(), Check: runs}
}

func install(t testing.TB, s *program.Store, device, version string) program.Version {
	t.Helper()
	v, err := s.Install(t.Context(), program.Wish{Device: device, Source: put(t, version+".tar.gz", tarball(t, server(version)))})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// says runs the current program of a device.
func says(t testing.TB, s *program.Store, device string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(s.Dir, device, "current", program.File(device))).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func names(t testing.TB, s *program.Store) string {
	t.Helper()
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, v := range all {
		mark := ""
		if v.Current {
			mark = "*"
		}
		if v.Previous {
			mark = "-"
		}
		out += v.Device + "/" + v.Manifest.Version + mark + " "
	}
	return strings.TrimSpace(out)
}

func TestInstallAndRollback(t *testing.T) {
	s := store(t)
	if all, err := s.List(); err != nil || all != nil {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := s.Verify(t.Context(), "vulkan"); !errors.Is(err, program.ErrNone) {
		t.Errorf("nothing is installed: %v", err)
	}
	if _, err := s.Rollback(t.Context(), "vulkan"); !errors.Is(err, program.ErrNone) {
		t.Errorf("nothing is installed: %v", err)
	}
	first := install(t, s, "vulkan", "v1")
	if !first.Current || first.Manifest.Version != "v1" || len(first.Manifest.Files) != 5 || says(t, s, "vulkan") != "v1" {
		t.Errorf("%+v", first)
	}
	if _, err := s.Rollback(t.Context(), "vulkan"); !errors.Is(err, program.ErrNone) {
		t.Errorf("there is none before: %v", err)
	}
	install(t, s, "rocm", "v1")
	before := tree(t, filepath.Join(s.Dir, "rocm"))
	install(t, s, "vulkan", "v2")
	if got := names(t, s); got != "rocm/v1* vulkan/v2* vulkan/v1-" && got != "rocm/v1* vulkan/v1- vulkan/v2*" {
		t.Error(got)
	}
	if v, err := s.Rollback(t.Context(), "vulkan"); err != nil || v.Name != first.Name || says(t, s, "vulkan") != "v1" {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := s.Rollback(t.Context(), "vulkan"); err != nil || says(t, s, "vulkan") != "v2" {
		t.Errorf("and forward again: %v", err)
	}
	install(t, s, "vulkan", "v3")
	if got := names(t, s); strings.Contains(got, "vulkan/v1") || !strings.Contains(got, "vulkan/v2-") || says(t, s, "vulkan") != "v3" {
		t.Error(got)
	}
	if after := tree(t, filepath.Join(s.Dir, "rocm")); after != before {
		t.Errorf("the other device's folder has changed:\n%s\n%s", before, after)
	}
	// the same once more changes nothing
	again := install(t, s, "vulkan", "v3")
	if got := names(t, s); !strings.Contains(got, "vulkan/v3*") || !strings.Contains(got, "vulkan/v2-") || !again.Current {
		t.Error(got)
	}
}

// tree describes all of a folder: names, kinds, times and contents.
func tree(t testing.TB, dir string) string {
	t.Helper()
	out := ""
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		out += fmt.Sprintf("%s %v %d", path, info.Mode(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out += fmt.Sprintf(" %x", sha256.Sum256(b))
		}
		out += "\n"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSources(t *testing.T) {
	items := server("v1")
	folder := filepath.Join(t.TempDir(), "v1")
	for _, i := range items {
		path := filepath.Join(folder, i.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if i.link != "" {
			err = os.Symlink(i.link, path)
		} else {
			err = os.WriteFile(path, []byte(i.text), os.FileMode(i.mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	packed := tarball(t, items)
	sum := sha256.Sum256(packed)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(packed) }))
	defer web.Close()
	client, err := egress.New(egress.Config{Allow: []string{strings.TrimPrefix(web.URL, "http://")}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	id := ""
	for _, w := range []program.Wish{
		{Source: folder},
		{Source: put(t, "v1.tar.gz", packed)},
		{Source: put(t, "v1.tgz", packed), SHA256: hex.EncodeToString(sum[:])},
		{Source: put(t, "v1.zip", zipped(t, items))},
		{Source: web.URL + "/v1.tar.gz?signature=secret", SHA256: strings.ToUpper(hex.EncodeToString(sum[:])), Client: client},
	} {
		s := store(t)
		w.Device = "hrx"
		v, err := s.Install(t.Context(), w)
		if err != nil {
			t.Fatalf("%s: %v", w.Source, err)
		}
		if id == "" {
			id = v.Name
		}
		if v.Name != id || says(t, s, "hrx") != "v1" || strings.Contains(v.Manifest.Source, "secret") {
			t.Errorf("%s: %s, not %s; from %s", w.Source, v.Name, id, v.Manifest.Source)
		}
		if _, err := s.Verify(t.Context(), "hrx"); err != nil {
			t.Error(err)
		}
	}
}

func TestRefused(t *testing.T) {
	good := tarball(t, server("v2"))
	sum := sha256.Sum256([]byte("another"))
	for _, c := range []struct {
		name string
		wish program.Wish
		why  string
	}{
		{"no such device", program.Wish{Device: "warp", Source: put(t, "v2.tar.gz", good)}, "no program is installed for such a device"},
		{"a path for a device", program.Wish{Device: "../vulkan", Source: put(t, "v2.tar.gz", good)}, "no program is installed for such a device"},
		{"a bad version", program.Wish{Version: "../x", Source: put(t, "v2.tar.gz", good)}, "is no version"},
		{"nothing there", program.Wish{Source: "/nonexistent/v2.tar.gz"}, "no such file"},
		{"a URL without a hash", program.Wish{Source: "https://example.com/v2.tar.gz"}, "needs the SHA-256"},
		{"a URL inward", program.Wish{Source: "https://169.254.169.254/v2.tar.gz", SHA256: hex.EncodeToString(sum[:]), Client: client(t)}, "refused"},
		{"a wrong hash", program.Wish{Source: put(t, "v2.tar.gz", good), SHA256: hex.EncodeToString(sum[:])}, "its SHA-256 is"},
		{"no hash at all", program.Wish{Source: put(t, "v2.tar.gz", good), SHA256: "abc"}, "is no SHA-256"},
		{"no archive", program.Wish{Source: put(t, "v2.rar", good)}, "neither a folder nor"},
		{"a damaged archive", program.Wish{Source: put(t, "v2.tar.gz", good[:len(good)/2])}, "unpacking"},
		{"no program in it", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, server("v2")[1:]))}, "no llama-server in it"},
		{"a program that may not run", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, []item{{name: "llama-server", text: "x", mode: 0o644}}))}, "may not be executed"},
		{"a program that does not decode", program.Wish{Source: put(t, "x.tar.gz", tarball(t, server("broken")))}, "it was not installed: trying it"},
		{"no room", program.Wish{Source: put(t, "v2.tar.gz", good), Space: func(string) (uint64, error) { return 1<<30 + 20, nil }}, "there is room for"},
		{"our own name", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, append(server("v2"), item{name: "manifest.json", text: "{}"})))}, "is ours"},
		{"up", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, append(server("v2"), item{name: "../evil", text: "x"})))}, "leads elsewhere"},
		{"from the root", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, append(server("v2"), item{name: "/tmp/evil", text: "x"})))}, "leads elsewhere"},
		{"a link up", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, append(server("v2"), item{name: "a/b", link: "../../evil"})))}, "leads elsewhere"},
		{"a link to the root", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, append(server("v2"), item{name: "a", link: "/etc/passwd"})))}, "leads elsewhere"},
		{"through a link", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, append(server("v2"), item{name: "d", link: "build"}, item{name: "d/evil", text: "x", mode: 0o644})))}, "file exists"},
		{"a link to nothing", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, append(server("v2"), item{name: "a", link: "b"})))}, "leads nowhere"},
		{"a link to itself", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, append(server("v2"), item{name: "a", link: "b"}, item{name: "b", link: "a"})))}, "leads nowhere"},
		{"a hard link", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, append(server("v2"), item{name: "a", link: "/etc/passwd", kind: tar.TypeLink})))}, "neither a file"},
		{"a device", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, append(server("v2"), item{name: "a", kind: tar.TypeChar})))}, "neither a file"},
		{"twice", program.Wish{Source: put(t, "v2.tar.gz", tarball(t, append(server("v2"), server("v2")...)))}, "file exists"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := store(t)
			old := install(t, s, "vulkan", "v1")
			before := tree(t, old.Dir)
			if c.wish.Device == "" {
				c.wish.Device = "vulkan"
			}
			if _, err := s.Install(t.Context(), c.wish); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("error %v, want %q", err, c.why)
			}
			if says(t, s, "vulkan") != "v1" || tree(t, old.Dir) != before || names(t, s) != "vulkan/v1*" {
				t.Error("what held before does not hold any more")
			}
			left, _ := filepath.Glob(filepath.Join(s.Dir, "vulkan", "incoming-*"))
			for _, l := range left {
				if info, err := os.Stat(l); err == nil && info.IsDir() {
					t.Errorf("left over: %s", l)
				}
			}
		})
	}
}

func client(t testing.TB) *egress.Client {
	t.Helper()
	c, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDamage(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(dir string) error
		why   string
	}{
		{"changed", func(dir string) error { return os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("other"), 0o600) }, "LICENSE has changed"},
		{"missing", func(dir string) error { return os.Remove(filepath.Join(dir, "LICENSE")) }, "LICENSE is missing"},
		{"added", func(dir string) error { return os.WriteFile(filepath.Join(dir, "evil.so"), nil, 0o600) }, "evil.so was added"},
		{"another link", func(dir string) error {
			path := filepath.Join(dir, "build", "bin", "libx.so")
			return errors.Join(os.Remove(path), os.Symlink("llama-server", path))
		}, "build/bin/libx.so has changed"},
		{"files and manifest together", func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
			if err != nil {
				return err
			}
			old, evil := sha256.Sum256([]byte("free")), sha256.Sum256([]byte("evil"))
			b = bytes.ReplaceAll(b, []byte(hex.EncodeToString(old[:])), []byte(hex.EncodeToString(evil[:])))
			return errors.Join(os.WriteFile(filepath.Join(dir, "manifest.json"), b, 0o600), os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("evil"), 0o600))
		}, "its manifest is another version's"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := store(t)
			v1 := install(t, s, "vulkan", "v1")
			if err := c.spoil(v1.Dir); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Verify(t.Context(), "vulkan"); !errors.Is(err, program.ErrDamaged) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("error %v, want %q", err, c.why)
			}
			install(t, s, "vulkan", "v2")
			if _, err := s.Rollback(t.Context(), "vulkan"); !errors.Is(err, program.ErrDamaged) || says(t, s, "vulkan") != "v2" {
				t.Errorf("going back to what is damaged: %v", err)
			}
			install(t, s, "vulkan", "v1") // mends it
			if _, err := s.Verify(t.Context(), "vulkan"); err != nil || says(t, s, "vulkan") != "v1" {
				t.Errorf("after it was installed again: %v", err)
			}
		})
	}
}
