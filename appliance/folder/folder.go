// Package folder keeps a collection of documents the same as a folder: what is new or has changed is put in, what has
// gone is taken out. What is in a collection says by its path and hash where it came from, so nothing else is
// remembered, and a folder may be watched from anywhere.
package folder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"
)

// The attributes by which a file of a collection is known again.
const (
	PathAttribute = "path"
	HashAttribute = "sha256"
)

const (
	maxFiles = 100_000
	maxPath  = 512 // characters of an attribute
	maxDepth = 64

	// MaxBytes is the size of the largest file that is read.
	MaxBytes = 512 << 20
)

// Entry is a file that a collection has of a folder.
type Entry struct {
	File   string // id
	Path   string // in the folder, with slashes
	SHA256 string
}

// Target is the collection.
type Target interface {
	// List returns what it has of the folder.
	List(ctx context.Context) ([]Entry, error)
	// Put brings a file in. It returns when that was taken, or has failed for good; old is what it replaces, if anything.
	Put(ctx context.Context, e Entry, old string, r io.Reader) error
	// Remove takes a file out and deletes it.
	Remove(ctx context.Context, e Entry) error
}

// Event is one thing that was done, or could not be.
type Event struct {
	Path string
	Did  string // added, changed, removed or skipped
	Err  error
}

// Watcher keeps one collection the same as one folder.
type Watcher struct {
	Dir    string
	Target Target
	Report func(Event) // nil for nobody
	// Settle is for how long a file must not have changed before it is read.
	Settle time.Duration

	known map[string]stamp // of files whose hash is known
}

// stamp is what changes when a file does.
type stamp struct {
	size  int64
	time  time.Time
	hash  string
	tried bool // it was put in, or cannot be
	in    bool // it was put in
}

// Sync makes the collection the same as the folder is now. One file that cannot be read, or is refused, does not stop
// the rest; the error says that the folder or the collection could not be read.
func (w *Watcher) Sync(ctx context.Context) error {
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		return fmt.Errorf("opening the folder: %w", err)
	}
	defer root.Close()
	there, err := w.Target.List(ctx)
	if err != nil {
		return err
	}
	has := map[string]Entry{}
	for _, e := range there {
		if twice, ok := has[e.Path]; ok { // one replaced the other, and was interrupted
			if err := w.Target.Remove(ctx, twice); err != nil {
				return err
			}
		}
		has[e.Path] = e
	}
	seen, err := w.walk(ctx, root, has)
	if err != nil {
		return err // what was not seen has not gone
	}
	for p, e := range has {
		if !seen[p] {
			w.tell(p, "removed", w.Target.Remove(ctx, e))
			delete(w.known, p)
		}
	}
	return ctx.Err()
}

// walk looks at each file of the folder. Links are not followed, and names that begin with a dot are left alone.
func (w *Watcher) walk(ctx context.Context, root *os.Root, has map[string]Entry) (map[string]bool, error) {
	if w.known == nil {
		w.known = map[string]stamp{}
	}
	seen := map[string]bool{}
	err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if p == "." {
				return err
			}
			for known := range has { // it may come back
				if known == p || strings.HasPrefix(known, p+"/") {
					seen[known] = true
				}
			}
			w.tell(p, "skipped", err)
			return nil
		case p != "." && strings.HasPrefix(d.Name(), "."), d.IsDir() && strings.Count(p, "/") > maxDepth:
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		seen[p] = true
		if len(seen) > maxFiles {
			return fmt.Errorf("the folder has more than %d files", maxFiles)
		}
		w.file(ctx, root, p, has)
		return nil
	})
	return seen, err
}

// file puts one file in when the collection has not got it as it is.
func (w *Watcher) file(ctx context.Context, root *os.Root, p string, has map[string]Entry) {
	info, err := root.Lstat(p)
	if err != nil {
		return // it has just gone
	}
	before := w.known[p]
	same := before.size == info.Size() && before.time.Equal(info.ModTime())
	_, there := has[p]
	done := before.tried && (there || !before.in) // what somebody else took out is put in again
	if same && done || time.Since(info.ModTime()) < w.Settle && time.Since(info.ModTime()) >= 0 {
		return
	}
	now := stamp{size: info.Size(), time: info.ModTime(), tried: true}
	var never error
	switch {
	case !info.Mode().IsRegular():
		return // it has just become something else
	case len([]rune(p)) > maxPath:
		never = fmt.Errorf("its path is longer than %d characters", maxPath)
	case !utf8.ValidString(p): // the collection would give it another path
		never = errors.New("its path is not UTF-8")
	case info.Size() > MaxBytes:
		never = fmt.Errorf("it is larger than %d bytes", MaxBytes)
	}
	if never != nil {
		w.known[p] = now
		w.tell(p, "skipped", never)
		return
	}
	did, err := w.put(ctx, root, p, has, &now)
	if err != nil && ctx.Err() != nil {
		return
	}
	if _, later := errors.AsType[*LaterError](err); later {
		now.tried = false
	}
	now.in = err == nil
	w.known[p] = now
	if did != "" || err != nil {
		w.tell(p, did, err)
	}
}

func (w *Watcher) put(ctx context.Context, root *os.Root, p string, has map[string]Entry, now *stamp) (did string, err error) {
	f, err := root.Open(p)
	if err != nil {
		return "skipped", err
	}
	defer f.Close()
	sum := sha256.New()
	switch n, err := io.Copy(sum, io.LimitReader(f, MaxBytes+1)); {
	case err != nil:
		return "skipped", err
	case n > MaxBytes:
		return "skipped", fmt.Errorf("it is larger than %d bytes", MaxBytes)
	}
	now.hash = hex.EncodeToString(sum.Sum(nil))
	old, ok := has[p]
	if ok && old.SHA256 == now.hash {
		return "", nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "skipped", err
	}
	did = "added"
	if ok {
		did = "changed"
	}
	return did, w.Target.Put(ctx, Entry{Path: p, SHA256: now.hash}, old.File, io.LimitReader(f, MaxBytes))
}

// LaterError says that a file could not be put in now and may be later.
type LaterError struct{ Err error }

func (e *LaterError) Error() string { return e.Err.Error() }
func (e *LaterError) Unwrap() error { return e.Err }

func (w *Watcher) tell(p, did string, err error) {
	if w.Report != nil {
		w.Report(Event{p, did, err})
	}
}

// Run keeps the two the same until ctx ends. What fails is told and tried again.
func (w *Watcher) Run(ctx context.Context, every time.Duration) error {
	last := ""
	for {
		switch err := w.Sync(ctx); {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // that it was stopped is no failure
		case err == nil:
			last = ""
		case err.Error() != last:
			last = err.Error()
			w.tell(".", "skipped", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// Name is what a file of a folder is called in a collection.
func Name(p string) string { return path.Base(p) }
