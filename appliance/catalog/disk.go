package catalog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"onebit/appliance/record"
	"onebit/engine/gguf"
)

// SpaceError says that a disk is too small, with the numbers in bytes.
type SpaceError struct {
	Dir        string
	Need, Free uint64
}

// Error gives the numbers in GB.
func (e *SpaceError) Error() string {
	return fmt.Sprintf("%.1f GB are needed in %s, and %.1f GB are free: make room, or name a folder on another drive with --to", float64(e.Need)/1e9, e.Dir, float64(e.Free)/1e9)
}

// spare is left free on a disk, in bytes.
const spare = 256 << 20

// room returns a *SpaceError when a disk has not so many bytes. A disk that does not tell has room.
func room(dir string, need int64, space func(string) (uint64, error)) error {
	if need <= 0 || space == nil {
		return nil
	}
	free, err := space(dir)
	if err != nil {
		return nil //nolint:nilerr // the write says what is wrong, when something is
	}
	if uint64(need)+spare > free {
		return &SpaceError{Dir: dir, Need: uint64(need) + spare, Free: free}
	}
	return nil
}

// CheckGGUF reads the header of a GGUF file, also of one shard alone, and returns what is wrong with it.
func CheckGGUF(path string) error {
	f, err := gguf.OpenShard(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return f.Close()
}

// writeFile writes a small file so that after a crash there is the old one or the new one.
func writeFile(path string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".write-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if err == nil {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return err
	}
	return record.SyncDir(filepath.Dir(path))
}

// place gives a finished file its final name.
func place(partial, final string) error {
	if err := os.Rename(partial, final); err != nil {
		return fmt.Errorf("naming the downloaded file: %w", err)
	}
	os.Remove(partial + ".state")
	return record.SyncDir(filepath.Dir(final))
}

// rest sleeps after a piece of work for three times as long as it took: a model that is served has most of the memory's
// bandwidth, and most of a processor that groups of processes share by parts, where priorities do not reach. On a busy
// machine work takes longer without being more, so there is a longest sleep.
func rest(begin time.Time) { time.Sleep(min(3*time.Since(begin), 20*time.Millisecond)) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// escapeGlob keeps the signs of a pattern in a path from being read as such.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
