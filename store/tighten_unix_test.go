//go:build unix

package store_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"

	"onebit/store"
)

// TestOpenTightens opens state directories that others can look into: they are closed, and that is said once. One that
// others may only go through stays, and so does somebody else's.
func TestOpenTightens(t *testing.T) {
	for _, c := range []struct {
		before, after fs.FileMode
		foreign       bool
		said          int
	}{
		{0o755, 0o700, false, 1}, {0o750, 0o700, false, 1}, {0o722, 0o700, false, 1},
		{0o711, 0o711, false, 0}, {0o700, 0o700, false, 0}, {0o777, 0o777, true, 0},
	} {
		t.Run(c.before.String(), func(t *testing.T) {
			dir := t.TempDir()
			if c.foreign {
				if os.Geteuid() != 0 {
					t.Skip("only root can give a directory away: run the tests as root to have this one")
				}
				if err := os.Chown(dir, 65534, 65534); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, c.before); err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			for range 2 {
				s, err := store.Open(t.Context(), store.Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&said, nil))})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			info, err := os.Stat(dir)
			if err != nil || info.Mode().Perm() != c.after {
				t.Errorf("it is %v, want %v, %v", info.Mode().Perm(), c.after, err)
			}
			if n := strings.Count(said.String(), "was open to others"); n != c.said {
				t.Errorf("it was said %d times, want %d:\n%s", n, c.said, &said)
			}
		})
	}
}
