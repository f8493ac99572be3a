package program

import (
	"bytes"
	"context"
	"os"
)

// Steps tells of each step of a change.
func (s *Store) Steps(f func(name string)) { s.step = f }

// UnpackTar unpacks a tar stream into a folder, at most so many bytes.
func UnpackTar(ctx context.Context, b []byte, packed bool, dir string, budget int64) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	u := &unpacker{ctx: ctx, root: root, budget: budget, left: budget}
	if err := u.tar(bytes.NewReader(b), packed); err != nil {
		return err
	}
	return u.finish()
}

// UnpackZip unpacks a zip file into a folder, at most so many bytes.
func UnpackZip(ctx context.Context, source, dir string, budget int64) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return unpack(ctx, source, root, budget)
}

// NewestFormat is the number of the format in which manifests are written.
func NewestFormat() int { return formats.Format() }
