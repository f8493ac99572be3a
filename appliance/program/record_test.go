package program_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/appliance/program"
	"onebit/appliance/record"
)

// formatsKept is how many formats before the newest are read.
const formatsKept = 3

// manifestOf is a manifest as the program of a format wrote it, of the server v1.
func manifestOf(t *testing.T, format int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "formats", fmt.Sprintf("%d.json", format)))
	if err != nil {
		t.Fatalf("each format needs a manifest here, as it was written: %v", err)
	}
	return string(b)
}

// TestProgramsOfEarlierFormats: what earlier programs have installed holds, is whole, can be gone back to, and is not
// rewritten.
func TestProgramsOfEarlierFormats(t *testing.T) {
	newest := program.NewestFormat()
	for format := max(1, newest-formatsKept); format <= newest; format++ {
		t.Run(fmt.Sprint(format), func(t *testing.T) {
			s := store(t)
			v := install(t, s, "vulkan", "v1")
			if err := os.WriteFile(filepath.Join(v.Dir, "manifest.json"), []byte(manifestOf(t, format)), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := names(t, s); got != "vulkan/v1*" {
				t.Errorf("there are %q", got)
			}
			old, err := s.Verify(t.Context(), "vulkan")
			if err != nil || old.Name != v.Name || old.Manifest.Source != "https://example.org/v1.tar.gz" {
				t.Errorf("%+v, %v", old, err)
			}
			install(t, s, "vulkan", "v2")
			if v, err := s.Rollback(t.Context(), "vulkan"); err != nil || v.Manifest.Version != "v1" || says(t, s, "vulkan") != "v1" {
				t.Errorf("going back: %+v, %v", v, err)
			}
			if got := file(t, filepath.Join(v.Dir, "manifest.json")); got != manifestOf(t, format) {
				t.Errorf("the manifest has become %s", got)
			}
		})
	}
}

// TestNewestFormatIsCommitted holds the manifest that is written today to the one in testdata: whoever changes what an
// older program would misread gives it a new number.
func TestNewestFormatIsCommitted(t *testing.T) {
	v := install(t, store(t), "vulkan", "v1")
	members := func(text string) (all string) {
		for line := range strings.Lines(text) {
			name, value, ok := strings.Cut(line, ": ")
			if name = strings.TrimSpace(name); ok && (name == `"format"` || name == `"path"` || name == `"sha256"`) {
				name += value
			}
			if ok {
				all += name + "\n"
			}
		}
		return all
	}
	got, want := members(file(t, filepath.Join(v.Dir, "manifest.json"))), members(manifestOf(t, program.NewestFormat()))
	if got != want {
		t.Errorf("a manifest has\n%swant\n%s", got, want)
	}
}

// TestNewerManifestIsLeftAlone: where a newer program has installed something, nothing is installed, removed or turned
// over, and the other devices are not concerned.
func TestNewerManifestIsLeftAlone(t *testing.T) {
	s := store(t)
	v1 := install(t, s, "vulkan", "v1")
	install(t, s, "vulkan", "v2")
	install(t, s, "rocm", "v1")
	if err := os.WriteFile(filepath.Join(v1.Dir, "manifest.json"), []byte(`{"format":99,"device":"vulkan"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	before := tree(t, filepath.Join(s.Dir, "vulkan"))
	all, err := s.List()
	if !errors.Is(err, record.ErrNewer) || !strings.Contains(err.Error(), v1.Name) || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := s.Install(t.Context(), program.Wish{Device: "vulkan", Source: put(t, "v3.tar.gz", tarball(t, server("v3")))}); !errors.Is(err, record.ErrNewer) {
		t.Errorf("installing beside it: %v", err)
	}
	if _, err := s.Rollback(t.Context(), "vulkan"); !errors.Is(err, record.ErrNewer) {
		t.Errorf("going back to it: %v", err)
	}
	if after := tree(t, filepath.Join(s.Dir, "vulkan")); after != before {
		t.Errorf("it was\n%sand is\n%s", before, after)
	}
	if _, err := s.Verify(t.Context(), "vulkan"); err != nil || says(t, s, "vulkan") != "v2" {
		t.Errorf("what holds: %v", err)
	}
	install(t, s, "rocm", "v2")
}

func file(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
