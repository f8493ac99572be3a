package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"onebit/store/archive"
	"onebit/store/sqlite"
)

// RestoreOptions says how a backup is opened. One of Passphrase and Identities is given.
type RestoreOptions struct {
	Passphrase string
	Identities []string // "AGE-SECRET-KEY-1..."
	Replace    bool     // set a database that is there aside instead of refusing
}

// String, GoString and MarshalJSON keep passphrase and identities out of logs.
func (o RestoreOptions) String() string {
	return fmt.Sprintf("restore with passphrase %t, %d identities, replace %t", o.Passphrase != "", len(o.Identities), o.Replace)
}

// GoString is String.
func (o RestoreOptions) GoString() string { return o.String() }

// MarshalJSON is String as JSON.
func (o RestoreOptions) MarshalJSON() ([]byte, error) { return json.Marshal(o.String()) }

// Restored is what a backup held beside the database.
type Restored struct {
	Manifest Manifest
	Files    map[string][]byte
	SetAside string // where the database that was there is now; empty: there was none
}

// Restore puts the databases of a backup into dir, once all of it has been read and checked. A store that is open there is
// [ErrLocked], a database that is there [ErrConflict] unless o.Replace sets it aside, with its snapshots.
func Restore(ctx context.Context, dir string, r io.Reader, o RestoreOptions) (Restored, error) {
	res, err := restore(ctx, dir, r, o)
	if err != nil {
		return Restored{}, fmt.Errorf("restoring a backup: %w", meaning(err))
	}
	return res, nil
}

func restore(ctx context.Context, dir string, r io.Reader, o RestoreOptions) (res Restored, err error) {
	lock, err := lockDir(dir)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	path := filepath.Join(dir, fileName)
	if st, err := os.Stat(path); err == nil && st.Size() > 0 && !o.Replace {
		return res, fmt.Errorf("%w: there is a database in %q", ErrConflict, dir)
	}
	tmp, err := temp(dir)
	if err != nil {
		return res, err
	}
	defer os.RemoveAll(tmp)
	if res.Manifest, res.Files, err = unlock(ctx, tmp, r, o); err != nil {
		return res, err
	}
	now := time.Now()
	// an old snapshot must never take the place of what is restored now
	old := filepath.Join(dir, snapshotFolder)
	if err := ignoreMissing(os.Rename(old, old+".replaced-"+now.UTC().Format(stampLayout))); err != nil {
		return res, err
	}
	if res.SetAside, err = setAside(path, "replaced", now); err != nil {
		return res, err
	}
	// documents belong to people of the database: those of another go with it
	docs := filepath.Join(dir, archive.Documents)
	if _, err := setAside(docs, "replaced", now); err != nil {
		return res, err
	}
	if err := ignoreMissing(os.Rename(filepath.Join(tmp, archive.Documents), docs)); err != nil {
		return res, err
	}
	return res, errors.Join(os.Rename(filepath.Join(tmp, fileName), path), syncDir(dir))
}

// VerifyBackup reads a whole backup and checks every hash and the database. It needs room in dir for a copy of that.
func VerifyBackup(ctx context.Context, dir string, r io.Reader, o RestoreOptions) (Manifest, error) {
	tmp, err := temp(dir)
	if err != nil {
		return Manifest{}, fmt.Errorf("verifying a backup: %w", meaning(err))
	}
	defer os.RemoveAll(tmp)
	m, _, err := unlock(ctx, tmp, r, o)
	if err != nil {
		return Manifest{}, fmt.Errorf("verifying a backup: %w", meaning(err))
	}
	return m, nil
}

// unlock decrypts a backup, unpacks it into the empty folder dir and checks all of it.
func unlock(ctx context.Context, dir string, r io.Reader, o RestoreOptions) (Manifest, map[string][]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Manifest{}, nil, err
	}
	defer root.Close()
	m, files, err := archive.Read(contextReader{ctx, r}, archive.Keys{Passphrase: o.Passphrase, Identities: o.Identities}, root)
	if err != nil {
		return m, nil, errors.Join(ctx.Err(), err)
	}
	steps, err := embedded()
	if err != nil {
		return m, nil, err
	}
	path := filepath.Join(dir, fileName)
	if err := errors.Join(verifyDatabase(ctx, path, steps), syncFile(path)); err != nil {
		return m, files, err
	}
	docs := filepath.Join(dir, archive.Documents)
	if _, err := os.Stat(docs); err != nil {
		return m, files, ignoreMissing(err)
	}
	return m, files, errors.Join(onFile(ctx, docs, func(db *sqlite.Reader) error { return check(ctx, db) }), syncFile(docs))
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
