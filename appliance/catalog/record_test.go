package catalog_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onebit/appliance/catalog"
	"onebit/appliance/record"
)

// formatsKept is how many formats before the newest are read.
const formatsKept = 3

// recordOf is a record as the program of a format wrote it, of the model in testdata/formats/tiny.gguf.
func recordOf(t *testing.T, format int) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "formats", fmt.Sprintf("%d.json", format)))
	if err != nil {
		t.Fatalf("each format needs a record here, as it was written: %v", err)
	}
	return b
}

// TestModelsOfEarlierFormats: the models that earlier programs have recorded are all there, and whole.
func TestModelsOfEarlierFormats(t *testing.T) {
	tiny, err := os.ReadFile(filepath.Join("testdata", "formats", "tiny.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	newest := catalog.NewestFormat()
	root, want := t.TempDir(), []string(nil)
	for format := max(1, newest-formatsKept); format <= newest; format++ {
		name := fmt.Sprintf("model-%d", format)
		put(t, filepath.Join(root, "pulled-"+name, "tiny.gguf"), tiny)
		put(t, filepath.Join(root, "pulled-"+name, "model.json"), []byte(strings.ReplaceAll(string(recordOf(t, format)), "NAME", name)))
		put(t, filepath.Join(root, "pulled-"+name, ".write-1234"), []byte("{")) // a write that was broken off
		added := strings.ReplaceAll(string(recordOf(t, format)), "NAME", "added-"+name)
		put(t, filepath.Join(root, "added-"+name, "model.json"), []byte(strings.ReplaceAll(added, `"tiny.gguf"`, fmt.Sprintf("%q", put(t, filepath.Join(t.TempDir(), "tiny.gguf"), tiny)))))
		want = append(want, "added-"+name+" added owner/name@0123", name+" pulled owner/name@0123")
	}
	before := contents(t, root)
	l := catalog.Library{Roots: []string{root}}
	models, errs := l.Models()
	if errs != nil {
		t.Error(errs)
	}
	var got []string
	for _, m := range models {
		got = append(got, fmt.Sprintf("%s %s %s", m.Name, m.Kind, m.Source))
		if err := l.Verify(t.Context(), m, nil); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if contents(t, root) != before {
		t.Error("reading has changed something: a program that is rolled back would miss it")
	}
}

// TestNewestFormatIsCommitted holds the record that is written today to the one in testdata: whoever changes what an
// older program would misread gives it a new number.
func TestNewestFormatIsCommitted(t *testing.T) {
	tiny := filepath.Join("testdata", "formats", "tiny.gguf")
	root := t.TempDir()
	l := catalog.Library{Roots: []string{root}}
	if _, err := l.Add(t.Context(), tiny, "NAME", nil); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "added-NAME", "model.json"))
	if err != nil {
		t.Fatal(err)
	}
	members := func(b []byte) (all string) {
		for line := range strings.Lines(string(b)) {
			if name, _, ok := strings.Cut(line, ":"); ok && !strings.Contains(name, "source") { // what was added has none
				all += strings.TrimSpace(name) + "\n"
			}
		}
		return all
	}
	if want := recordOf(t, catalog.NewestFormat()); members(got) != members(want) {
		t.Errorf("a record has the members\n%swant\n%s", members(got), members(want))
	}
}

// TestNewerRecordIsLeftAlone: what a newer program has written is told of, and nothing in its folder changes.
func TestNewerRecordIsLeftAlone(t *testing.T) {
	file := model(t, 64, 0, 0)
	h := newHub(t, map[string][]byte{"m.gguf": file})
	p := h.puller()
	if _, err := p.Pull(t.Context(), want(t, "o/r")); err != nil {
		t.Fatal(err)
	}
	models, _ := p.Library.Models()
	if len(models) != 1 {
		t.Fatalf("%+v", models)
	}
	newer := `{"format":99,"name":"m","files":"elsewhere"}`
	put(t, filepath.Join(models[0].Dir, "model.json"), []byte(newer))
	put(t, filepath.Join(p.Library.Roots[0], "added-mine", "model.json"), []byte(newer))
	before := contents(t, p.Library.Roots[0])
	found, errs := p.Library.Models()
	if len(found) != 0 || len(errs) != 2 || !errors.Is(errs[0], record.ErrNewer) || !strings.Contains(errs[0].Error(), "update 1bit") {
		t.Errorf("%+v, %v", found, errs)
	}
	if _, err := p.Pull(t.Context(), want(t, "o/r")); !errors.Is(err, record.ErrNewer) {
		t.Errorf("pulling over it: %v", err)
	}
	if _, err := p.Library.Remove("m"); err == nil {
		t.Error("it was removed")
	}
	if _, err := p.Library.Add(t.Context(), filepath.Join("testdata", "formats", "tiny.gguf"), "mine", nil); !errors.Is(err, record.ErrNewer) {
		t.Errorf("adding over it: %v", err)
	}
	if contents(t, p.Library.Roots[0]) != before {
		t.Error("something of it has changed")
	}
}

// contents is every file below a folder.
func contents(t *testing.T, dir string) (all string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all += path + " " + sha(b) + "\n"
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
