package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrDamaged is wrapped by errors about a file whose size or hash is not the expected one.
var ErrDamaged = errors.New("the file is damaged")

// Cache keeps verified model files below Dir.
type Cache struct {
	Dir string
}

// UserCache is the cache in the user's own cache directory.
func UserCache() (Cache, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return Cache{}, fmt.Errorf("finding the cache directory (set XDG_CACHE_HOME or HOME): %w", err)
	}
	return Cache{Dir: filepath.Join(dir, "1bit", "models")}, nil
}

// Path is where the file of e lies, or will lie.
func (c Cache) Path(e Entry) string {
	return filepath.Join(c.folder(e), e.File)
}

// folder is named by the hash, or by the entry where the hash is the hub's to say.
func (c Cache) folder(e Entry) string {
	if e.SHA256 == "" {
		return filepath.Join(c.Dir, "name-"+e.Name)
	}
	return filepath.Join(c.Dir, e.SHA256[:12])
}

// Verify checks the file of e: that it exists, its size and its hash. A hash that was checked before is not computed
// again while size and modification time stay what they were. The error wraps fs.ErrNotExist or ErrDamaged. Of an entry
// whose hash is the hub's to say, what was pulled is checked by its record.
func (c Cache) Verify(ctx context.Context, e Entry, p Progress) error {
	path := c.Path(e)
	if e.SHA256 == "" {
		m, err := readRecord(filepath.Join(c.folder(e), recordFile))
		if err != nil {
			return fmt.Errorf("looking for model %s: %w", e.Name, err)
		}
		m.Kind, m.Dir = Pulled, c.folder(e)
		return Library{}.Verify(ctx, m, p)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("looking for model %s: %w", e.Name, err)
	}
	if e.Size > 0 && info.Size() != e.Size {
		return fmt.Errorf("checking %s: it has %d bytes, not %d: %w", path, info.Size(), e.Size, ErrDamaged)
	}
	if old, err := os.ReadFile(path + ".ok"); err == nil && string(old) == stamp(e, info) {
		return nil
	}
	sum, err := hashFile(ctx, path, "checking "+e.File, info.Size(), p)
	if err != nil {
		return err
	}
	if sum != e.SHA256 {
		return fmt.Errorf("checking %s: its SHA-256 is %s, not %s: %w", path, sum, e.SHA256, ErrDamaged)
	}
	c.remember(e, info)
	return nil
}

// stamp is what is remembered of a file whose hash was right.
func stamp(e Entry, info fs.FileInfo) string {
	return fmt.Sprintf("%s %d %d\n", e.SHA256, info.Size(), info.ModTime().UnixNano())
}

// remember writes the stamp, which only saves time: a folder that cannot be written is no reason to refuse the model.
func (c Cache) remember(e Entry, info fs.FileInfo) {
	_ = os.WriteFile(c.Path(e)+".ok", []byte(stamp(e, info)), 0o644)
}

// hashFile computes the SHA-256 of a file in lower-case hex, without getting into anybody's way: see quietly.
func hashFile(ctx context.Context, path, what string, size int64, p Progress) (sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	readAhead(f)
	h := sha256.New()
	err = quietly(func() error {
		buf := make([]byte, hashChunk)
		for done := int64(0); ; {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			begin := time.Now()
			n, err := f.Read(buf)
			h.Write(buf[:n])
			forget(f, done, int64(n))
			rest(begin)
			if done += int64(n); p != nil && n > 0 {
				p(what, done, size)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashChunk is how much of a file is hashed at once, in bytes.
const hashChunk = 1 << 20

// promote gives a finished partial file its final name once its hash is right, and removes it otherwise.
func (c Cache) promote(ctx context.Context, e Entry, partial string, p Progress) error {
	info, err := os.Stat(partial)
	if err != nil {
		return err
	}
	sum, err := hashFile(ctx, partial, "checking "+e.File, info.Size(), p)
	if err != nil {
		return err
	}
	if sum != e.SHA256 {
		os.Remove(partial)
		return fmt.Errorf("checking what was downloaded for %s: its SHA-256 is %s, not %s; it was removed: %w", e.Name, sum, e.SHA256, ErrDamaged)
	}
	if err := syncFile(partial); err != nil {
		return err
	}
	return c.put(e, partial)
}

// put gives a checked file its final name.
func (c Cache) put(e Entry, partial string) error {
	if err := place(partial, c.Path(e)); err != nil {
		return err
	}
	if info, err := os.Stat(c.Path(e)); err == nil { // else the next use computes the hash again
		c.remember(e, info)
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("writing %s to disk: %w", path, err)
	}
	return nil
}

// Progress is told how far a step of a transfer is, in bytes. A total of 0 means that it is not known.
type Progress func(what string, done, total int64)

// Names lists the known names, for messages.
func Names() string {
	var s []string
	for _, e := range Entries() {
		s = append(s, e.Name)
	}
	return strings.Join(s, ", ")
}
