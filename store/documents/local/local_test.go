package local_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onebit/store/documents"
	"onebit/store/documents/chunk"
	"onebit/store/documents/keepertest"
	"onebit/store/documents/local"
)

func open(t *testing.T, dir string, now func() time.Time) *local.Keeper {
	t.Helper()
	k, err := local.Open(t.Context(), local.Config{Dir: dir, Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

func TestKeeper(t *testing.T) {
	keepertest.Run(t, func(t *testing.T, now func() time.Time) documents.Keeper { return open(t, t.TempDir(), now) })
}

// TestDeletedIsGone looks for a word of a deleted file in the bytes on the disk.
func TestDeletedIsGone(t *testing.T) {
	dir := t.TempDir()
	k := open(t, dir, nil)
	ann := documents.Reader{Person: "ann"}
	c, err := k.AddCollection(t.Context(), ann, documents.Collection{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := k.AddFile(t.Context(), ann, documents.File{Name: "f"}, strings.NewReader("The canaryquux sings in CANARYQUUX."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Attach(t.Context(), ann, documents.Attachment{Collection: c.ID, File: f.ID}); err != nil {
		t.Fatal(err)
	}
	if err := k.Cut(t.Context(), c.ID, f.ID, 1, []chunk.Chunk{{Text: "The canaryquux sings", End: 20}, {Text: "in CANARYQUUX.", Start: 21, End: 35}}); err != nil {
		t.Fatal(err)
	}
	list, err := k.Bare(t.Context(), c.ID, f.ID, "m", 9)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	secret := []float32{1.2345678, 2.3456789, 3.4567891}
	for _, b := range list {
		if err := k.Embed(t.Context(), "m", []documents.Vector{{ID: b.ID, Vector: secret}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Complete(t.Context(), c.ID, f.ID, "m", 3); err != nil {
		t.Fatal(err)
	}
	raw := []byte{0x51, 0x06, 0x9e, 0x3f} // the first number of the vector
	on := func() (words, numbers int) {
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			b, err := os.ReadFile(n)
			if err != nil {
				t.Fatal(err)
			}
			words += strings.Count(strings.ToLower(string(b)), "canaryqu")
			numbers += bytes.Count(b, raw)
		}
		return words, numbers
	}
	if w, n := on(); w == 0 || n == 0 {
		t.Fatalf("the test looks for the wrong bytes: %d, %d", w, n)
	}
	if err := k.DeleteFile(t.Context(), ann, f.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Expire(t.Context(), time.Now()); err != nil { // as the box does each minute
		t.Fatal(err)
	}
	if w, n := on(); w != 0 || n != 0 {
		t.Errorf("after the file was deleted its words are on the disk %d times, its vectors %d times", w, n)
	}
}

func TestDamagedFileIsSetAside(t *testing.T) {
	dir := t.TempDir()
	k := open(t, dir, nil)
	if _, err := k.AddCollection(t.Context(), documents.Reader{Person: "ann"}, documents.Collection{Name: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, local.FileName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(b); i++ {
		b[i] ^= 0x5a
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	k = open(t, dir, nil)
	if list, _, err := k.Collections(t.Context(), documents.System(), documents.Page{}); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if got, err := os.ReadFile(k.SetAside()); err != nil || !bytes.Equal(got, b) {
		t.Errorf("the damaged file is at %q: %v", k.SetAside(), err)
	}
}

// TestSurvivesReopening: what was there is there, and what was half done goes on.
func TestSurvivesReopening(t *testing.T) {
	dir := t.TempDir()
	k := open(t, dir, nil)
	ann := documents.Reader{Person: "ann"}
	c, err := k.AddCollection(t.Context(), ann, documents.Collection{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		f, err := k.AddFile(t.Context(), ann, documents.File{Name: name}, strings.NewReader(name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Attach(t.Context(), ann, documents.Attachment{Collection: c.ID, File: f.ID}); err != nil {
			t.Fatal(err)
		}
		if err := k.Cut(t.Context(), c.ID, f.ID, 1, []chunk.Chunk{{Text: name, End: 1}, {Text: name + "2", End: 1}}); err != nil {
			t.Fatal(err)
		}
		list, err := k.Bare(t.Context(), c.ID, f.ID, "m", 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Embed(t.Context(), "m", []documents.Vector{{ID: list[0].ID, Vector: []float32{1}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k = open(t, dir, nil)
	list, err := k.Unfinished(t.Context(), 10)
	if err != nil || len(list) != 2 || list[0].Chunks != 2 || list[0].Embedded != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, a := range list {
		rest, err := k.Bare(t.Context(), c.ID, a.File, "m", 9)
		if err != nil || len(rest) != 1 {
			t.Fatalf("%+v, %v", rest, err)
		}
	}
}
