package extensions

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// files are the bytes of modules and assets, in files named after their hash: modules/HASH.wasm, where package worker looks
// for them, and assets/HASH.
type files struct{ dir string }

// What a file is.
const (
	aModule = "modules"
	anAsset = "assets"
	partial = ".partial-"
)

func (f files) path(what, hash string) string {
	if what == aModule {
		hash += ".wasm"
	}
	return filepath.Join(f.dir, what, hash)
}

// make makes the directories.
func (f files) make() error {
	return errors.Join(os.MkdirAll(filepath.Join(f.dir, aModule), 0o700), os.MkdirAll(filepath.Join(f.dir, anAsset), 0o700))
}

// sweep removes what uploads that were broken off have left.
func (f files) sweep() {
	left, err := filepath.Glob(filepath.Join(f.dir, partial+"*"))
	if err != nil {
		return
	}
	for _, name := range left {
		_ = os.Remove(name) // the next start tries again
	}
}

// staged is a file that has no name yet.
type staged struct {
	file *os.File
	hash string
	size int64
}

// stage writes what r gives, at most limit bytes, to a partial file.
func (f files) stage(r io.Reader, limit int64) (*staged, error) {
	if err := f.make(); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(f.dir, partial+"*")
	if err != nil {
		return nil, err
	}
	s := &staged{file: file}
	h := sha256.New()
	s.size, err = io.Copy(io.MultiWriter(file, h), io.LimitReader(r, limit+1))
	if err == nil && s.size > limit {
		err = refused("too_large", "there are more than %d bytes; this kind of module may bring no more", limit)
	}
	if err != nil {
		s.drop()
		return nil, err
	}
	s.hash = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

func (s *staged) drop() {
	s.file.Close()
	_ = os.Remove(s.file.Name()) // gone already when it was kept
}

// keep gives a staged file its name. It is on the disk when the call returns.
func (f files) keep(what string, s *staged) error {
	if err := errors.Join(s.file.Sync(), s.file.Close()); err != nil { // some systems rename no open file
		return err
	}
	if err := os.Rename(s.file.Name(), f.path(what, s.hash)); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil // a directory cannot be synced there
	}
	d, err := os.Open(filepath.Join(f.dir, what))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// read returns a file's bytes, checked against its name.
func (f files) read(what, hash string) ([]byte, error) {
	b, err := os.ReadFile(f.path(what, hash))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the file %s is missing", short(hash))
	}
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != hash {
		return nil, fmt.Errorf("the file %s is damaged: its bytes are not those that were uploaded", short(hash))
	}
	return b, nil
}

// remove deletes a file.
func (f files) remove(what, hash string) error {
	if err := os.Remove(f.path(what, hash)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// short is a hash as people read it.
func short(hash string) string { return strings.ToLower(hash[:min(8, len(hash))]) }
