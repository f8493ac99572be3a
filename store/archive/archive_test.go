package archive_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"onebit/store/archive"
)

const passphrase = "correct horse battery"

// entry is one file of a hand-made archive.
type entry struct {
	name string
	data string
	kind byte
	pax  string
}

// raw makes a tar archive.
func raw(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o600, Size: int64(len(e.data)), Typeflag: tar.TypeReg}
		if e.pax != "" {
			h.PAXRecords = map[string]string{e.pax: "x"}
		}
		if e.kind != 0 {
			h.Typeflag, h.Size, h.Linkname = e.kind, 0, "/etc/passwd"
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == 0 {
			if _, err := w.Write([]byte(e.data)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// manifest makes the first entry from the others.
func manifest(t testing.TB, entries ...entry) entry {
	t.Helper()
	m := archive.Manifest{Format: 1}
	for _, e := range entries {
		m.Files = append(m.Files, archive.File{Name: e.name, Size: int64(len(e.data)), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(e.data)))})
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return entry{name: "manifest.json", data: string(b)}
}

func folder(t testing.TB, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func TestRoundTrip(t *testing.T) {
	db := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(db, bytes.Repeat([]byte("page"), 50_000), 0o600); err != nil {
		t.Fatal(err)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		lock archive.Lock
		keys archive.Keys
	}{
		{"passphrase", archive.Lock{Passphrase: passphrase, Work: 4}, archive.Keys{Passphrase: passphrase}},
		{"recipient", archive.Lock{Recipients: []string{id.Recipient().String()}}, archive.Keys{Identities: []string{id.String()}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := archive.Manifest{Created: time.Unix(1e9, 5).UTC(), Schema: 3, Models: []archive.Model{{Name: "m", Digest: "d"}}}
			files := map[string][]byte{"a.yaml": []byte("a"), "b": {}}
			var b bytes.Buffer
			if err := archive.Write(&b, tt.lock, &m, archive.Contents{Database: db, Files: files}); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			got, gotFiles, err := archive.Read(&b, tt.keys, folder(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(m, got); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(files, gotFiles); d != "" {
				t.Error(d)
			}
			want, err := os.ReadFile(db)
			if err != nil {
				t.Fatal(err)
			}
			back, err := os.ReadFile(filepath.Join(dir, archive.Database))
			if err != nil || !bytes.Equal(want, back) {
				t.Errorf("the database came back different: %v", err)
			}
		})
	}
}

// hostile are archives that somebody who knows the passphrase might make.
func hostile(t testing.TB) map[string][]byte {
	db, file := entry{name: "1bit.db", data: "database"}, entry{name: "files/a", data: "a"}
	m := manifest(t, db, file)
	with := func(e ...entry) []byte { return raw(t, e...) }
	wrong := file
	wrong.data = "b"
	longer := file
	longer.data = "ab"
	evil := func(name string) []byte {
		e := entry{name: name, data: "x"}
		return with(manifest(t, db, e), db, e)
	}
	return map[string][]byte{
		"nothing":           with(),
		"no manifest":       with(db),
		"only a manifest":   with(m),
		"no database":       with(manifest(t, file), file),
		"a file is missing": with(m, db),
		"a file too many":   with(m, db, file, entry{name: "files/c", data: "c"}),
		"a file twice":      with(m, db, file, file),
		"a database twice":  with(m, db, db),
		"twice in the list": with(manifest(t, db, file, file), db, file, file),
		"another hash":      with(m, db, wrong),
		"another size":      with(m, db, longer),
		"manifest not JSON": with(entry{name: "manifest.json", data: "{"}, db),
		"manifest too big":  with(entry{name: "manifest.json", data: strings.Repeat(" ", 5<<20)}, db),
		"a link":            with(m, entry{name: "1bit.db", kind: tar.TypeSymlink}, file),
		"a hard link":       with(m, db, entry{name: "files/a", kind: tar.TypeLink}),
		"a file with holes": bytes.ReplaceAll(with(m, entry{name: db.name, data: db.data, pax: "GNU_sparse.name"}, file),
			[]byte("GNU_sparse"), []byte("GNU.sparse")),
		"a folder":            with(m, db, entry{name: "files", kind: tar.TypeDir}, file),
		"a path upward":       evil("files/../../x"),
		"an absolute path":    evil("/tmp/x"),
		"a path inside":       evil("files/a/b"),
		"a hidden file":       evil("files/.bashrc"),
		"a lock":              evil("1bit.lock"),
		"something behind it": append(with(m, db, file), 'x'),
		"cut off":             with(m, db, file)[:2500],
	}
}

// TestDocumentsTravelToo: a backup with documents is of the second format.
func TestDocumentsTravelToo(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "the database", "b": "the documents"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	m := archive.Manifest{}
	lock := archive.Lock{Passphrase: "long enough for this", Work: 1}
	if err := archive.Write(&b, lock, &m, archive.Contents{Database: filepath.Join(dir, "a"), Documents: filepath.Join(dir, "b")}); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	got, _, err := archive.Read(&b, archive.Keys{Passphrase: lock.Passphrase}, folder(t, out))
	if err != nil || got.Format != 2 || len(got.Files) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, want := range map[string]string{archive.Database: "the database", archive.Documents: "the documents"} {
		if text, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	// documents in the first format are nothing that this program wrote
	db, docs := entry{name: archive.Database, data: "x"}, entry{name: archive.Documents, data: "y"}
	if _, _, err := archive.Unpack(bytes.NewReader(raw(t, manifest(t, db, docs), db, docs)), folder(t, t.TempDir())); !errors.Is(err, archive.ErrCorrupt) {
		t.Errorf("got error %v, want ErrCorrupt", err)
	}
}

func TestHostileArchives(t *testing.T) {
	for name, data := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "in")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			_, _, err := archive.Unpack(bytes.NewReader(data), folder(t, dir))
			if !errors.Is(err, archive.ErrCorrupt) {
				t.Errorf("got error %v, want ErrCorrupt", err)
			}
			onlyDatabase(t, outer)
		})
	}
	newer := raw(t, entry{name: "manifest.json", data: `{"format": 3}`})
	if _, _, err := archive.Unpack(bytes.NewReader(newer), folder(t, t.TempDir())); !errors.Is(err, archive.ErrTooNew) {
		t.Errorf("got error %v, want ErrTooNew", err)
	}
}

// onlyDatabase fails where anything but in/1bit.db was written.
func onlyDatabase(t testing.TB, outer string) {
	t.Helper()
	err := filepath.WalkDir(outer, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if rel, err := filepath.Rel(outer, p); err != nil || rel != filepath.Join("in", archive.Database) {
			t.Errorf("%s was written: %v", p, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func FuzzUnpack(f *testing.F) {
	db, file := entry{name: "1bit.db", data: "database"}, entry{name: "files/a", data: "a"}
	f.Add(raw(f, manifest(f, db, file), db, file))
	f.Add(raw(f, manifest(f, db, entry{name: "files/../x"}), db, file))
	f.Add(raw(f, manifest(f, db), entry{name: "1bit.db", kind: tar.TypeSymlink}))
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		m, files, err := archive.Unpack(bytes.NewReader(data), folder(t, dir))
		onlyDatabase(t, outer)
		if err != nil {
			return
		}
		// what was taken is what the manifest says, to the byte
		if len(files) != len(m.Files)-1 {
			t.Fatalf("%d files, manifest %v", len(files), m.Files)
		}
		for _, e := range m.Files {
			got, ok := files[strings.TrimPrefix(e.Name, "files/")]
			if e.Name == archive.Database {
				b, err := os.ReadFile(filepath.Join(dir, archive.Database))
				got, ok = b, err == nil
			}
			if !ok || int64(len(got)) != e.Size || fmt.Sprintf("%x", sha256.Sum256(got)) != e.SHA256 {
				t.Fatalf("%s does not agree with the manifest", e.Name)
			}
		}
	})
}

func FuzzRead(f *testing.F) {
	db := filepath.Join(f.TempDir(), "x")
	if err := os.WriteFile(db, []byte("database"), 0o600); err != nil {
		f.Fatal(err)
	}
	var b bytes.Buffer
	if err := archive.Write(&b, archive.Lock{Passphrase: passphrase, Work: 1}, &archive.Manifest{}, archive.Contents{Database: db}); err != nil {
		f.Fatal(err)
	}
	whole := b.Bytes()
	want := []byte("database")
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add([]byte("age-encryption.org/v1\n-> scrypt AAAAAAAAAAAAAAAAAAAAAA 30\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if _, _, err := archive.Read(bytes.NewReader(data), archive.Keys{Passphrase: passphrase}, folder(t, dir)); err != nil {
			return
		}
		// nothing that this process did not lock can be opened
		if got, err := os.ReadFile(filepath.Join(dir, archive.Database)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("something else than the backup was taken for it: %q, %v", got, err)
		}
	})
}
