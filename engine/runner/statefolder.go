package runner

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// stateFolder holds the files that the state of slots is kept in. No name leads out of it.
type stateFolder struct {
	root *os.Root
	mode os.FileMode // of files
}

const (
	unfinished     = ".saving-" // begins the name of a file that is being written
	unfinishedTime = 10 * time.Minute
	nameBytes      = 255 // longest name of a file
)

// openStates opens a folder, which must be there. What a process that was killed has left unfinished is removed.
func openStates(dir string) (*stateFolder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("the folder for the state of slots: %w", err)
	}
	f := &stateFolder{root: root, mode: 0o600}
	info, err := root.Stat(".")
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("the folder for the state of slots: %w", err)
	}
	if info.Mode()&0o020 != 0 { // its group takes part: files come and go with one user or another
		f.mode = 0o660
	}
	f.sweep(time.Now().Add(-unfinishedTime))
	return f, nil
}

// sweep removes unfinished files that nobody has written to since a time.
func (f *stateFolder) sweep(before time.Time) {
	entries, err := fs.ReadDir(f.root.FS(), ".")
	if err != nil {
		return // it is tried again with the next start
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), unfinished) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.ModTime().Before(before) {
			_ = f.root.Remove(e.Name()) // likewise
		}
	}
}

func (f *stateFolder) close() { f.root.Close() }

// stateFile is a file on its way.
type stateFile struct {
	*os.File
	folder *stateFolder
	name   string // empty once it has its own, or is gone
}

// create begins a file.
func (f *stateFolder) create() (*stateFile, error) {
	name := unfinished + rand.Text()
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
	if err != nil {
		return nil, err
	}
	return &stateFile{file, f, name}, nil
}

// finish gives the file its name. What had that name before is replaced: after a crash the name has one or the other,
// and all of it.
func (s *stateFile) finish(name string) error {
	if err := s.Sync(); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if err := s.folder.root.Rename(s.name, name); err != nil {
		return err
	}
	s.name = ""
	if dir, err := s.folder.root.Open("."); err == nil {
		_ = dir.Sync() // some systems cannot; there a crash may bring the old file back
		dir.Close()
	}
	return nil
}

// discard removes the file, unless it is finished.
func (s *stateFile) discard() {
	if s.name == "" {
		return
	}
	s.Close()
	_ = s.folder.root.Remove(s.name) // the next start does what cannot be done now
	s.name = ""
}

// errNotFile is said of folders, pipes and the like, which are not opened at all.
var errNotFile = errors.New("it is no file")

// open opens a finished file.
func (f *stateFolder) open(name string) (*os.File, int64, error) {
	info, err := f.root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errNotFile
	}
	if err != nil {
		return nil, 0, err
	}
	file, err := f.root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	if info, err = file.Stat(); err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// reason is what is wrong with a file, without its path.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// validName reports whether a client may name a file so: llama-server's rule, by which the name is one on every system.
func validName(name string) bool {
	if name == "" || len(name) > nameBytes || !utf8.ValidString(name) || strings.HasPrefix(name, unfinished) {
		return false
	}
	if name[0] == ' ' || name[len(name)-1] == ' ' || name[len(name)-1] == '.' || strings.Contains(name, "..") {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		switch r {
		case '/', '\\', ':', '*', '?', '"', '<', '>', '|':
			return true
		case '\uFF0E', '\u2215', '\u2216', utf8.RuneError, '\uFEFF': // look like a dot and slashes, or stand for nothing
			return true
		}
		return r < ' ' || r >= 0x7F && r <= 0x9F
	})
}
