package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"onebit/store/archive"
	"onebit/store/sqlite"
)

// BackupOptions says how a backup is locked and what goes in. Exactly one of Passphrase and Recipients is given.
type BackupOptions struct {
	Passphrase string            // at least 8 characters
	Recipients []string          // "age1..."
	IncludeCA  bool              // also the local authority's private keys
	Files      map[string][]byte // further small files, such as the configuration, by plain name
}

// String, GoString and MarshalJSON keep the passphrase out of logs.
func (o BackupOptions) String() string {
	return fmt.Sprintf("backup with passphrase %t, %d recipients, CA %t, %d files", o.Passphrase != "", len(o.Recipients), o.IncludeCA, len(o.Files))
}

// GoString is String.
func (o BackupOptions) GoString() string { return o.String() }

// MarshalJSON is String as JSON.
func (o BackupOptions) MarshalJSON() ([]byte, error) { return json.Marshal(o.String()) }

func (o BackupOptions) lock(work int) archive.Lock {
	return archive.Lock{Passphrase: o.Passphrase, Recipients: o.Recipients, Work: work}
}

// Manifest is the table of contents of a backup.
type Manifest = archive.Manifest

// Backup writes a backup of everything, documents included, but models, logins and (unless asked for) the local authority's private keys. It
// needs room in the state directory for one copy of the databases. Admins only.
func (s *Store) Backup(ctx context.Context, a Actor, w io.Writer, o BackupOptions) (Manifest, error) {
	if !a.Admin {
		return Manifest{}, ErrForbidden
	}
	m, err := s.backup(ctx, a, w, o)
	if err != nil {
		return Manifest{}, fmt.Errorf("writing a backup: %w", s.meaning(err))
	}
	return m, nil
}

func (s *Store) backup(ctx context.Context, a Actor, w io.Writer, o BackupOptions) (Manifest, error) {
	lock := o.lock(s.scrypt)
	if err := errors.Join(lock.Check(), archive.CheckFiles(o.Files)); err != nil {
		return Manifest{}, err
	}
	release, err := s.busy(ctx)
	if err != nil {
		return Manifest{}, err
	}
	defer release()
	if err := s.Audit(ctx, a, "backup.write", "", ""); err != nil {
		return Manifest{}, err
	}
	if err := s.Flush(ctx); err != nil {
		return Manifest{}, err
	}
	dir, err := temp(s.dir)
	if err != nil {
		return Manifest{}, err
	}
	defer os.RemoveAll(dir)
	db := filepath.Join(dir, fileName)
	m := Manifest{Created: s.now().UTC(), IncludesCA: o.IncludeCA}
	if err := s.prepare(ctx, db, &m); err != nil {
		return Manifest{}, err
	}
	docs, err := s.copyDocuments(ctx, dir)
	if err != nil {
		return Manifest{}, fmt.Errorf("copying the documents: %w", err)
	}
	return m, archive.Write(w, lock, &m, archive.Contents{Database: db, Documents: docs, Files: o.Files})
}

// copyDocuments copies the document store's database, where there is one. Another package keeps it; here it is a file of
// SQLite beside ours.
func (s *Store) copyDocuments(ctx context.Context, dir string) (string, error) {
	from := filepath.Join(s.dir, archive.Documents)
	if _, err := os.Stat(from); err != nil {
		return "", ignoreMissing(err)
	}
	to := filepath.Join(dir, archive.Documents)
	return to, copyDatabase(ctx, from, to)
}

// prepare writes the copy of the database that goes into a backup, and describes it in the manifest.
func (s *Store) prepare(ctx context.Context, path string, m *Manifest) error {
	if err := copyDatabase(ctx, s.path(), path); err != nil {
		return err
	}
	err := onFile(ctx, path, func(db *sqlite.Reader) error {
		// secure_delete is on: what is deleted here is overwritten
		if err := db.Once(ctx, "delete from logins"); err != nil {
			return err
		}
		if !m.IncludesCA {
			from, to := folderRange(PrivateCAPrefix)
			if err := db.Once(ctx, "delete from tls_values where name >= ? and name < ?", from, to); err != nil {
				return err
			}
		}
		return s.describe(ctx, db, m)
	})
	if err != nil {
		return err
	}
	return onFile(ctx, path, func(db *sqlite.Reader) error { return check(ctx, db) })
}

// describe fills in what the manifest says of the database.
func (s *Store) describe(ctx context.Context, q querier, m *Manifest) error {
	if err := q.Row(ctx, "pragma user_version").Scan(&m.Schema); err != nil {
		return err
	}
	n, hash, err := head(ctx, q)
	if err != nil {
		return err
	}
	m.Audit, m.AuditHash = n, hex.EncodeToString(hash[:])
	models, err := modelsOf(ctx, q)
	for _, r := range models {
		m.Models = append(m.Models, archive.Model{Name: r.ID, Digest: r.Digest, Size: r.Size, Source: r.Source})
	}
	return err
}

// BackupFile writes a backup to a new file. The file has its name only once it has been read back: whole and, where the
// passphrase is known, opened and checked. Admins only.
func (s *Store) BackupFile(ctx context.Context, a Actor, path string, o BackupOptions) (Manifest, error) {
	if !a.Admin {
		return Manifest{}, ErrForbidden
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return Manifest{}, fmt.Errorf("writing a backup: %w", err)
	}
	defer root.Close()
	m, err := s.backupInto(ctx, a, root, placed{filepath.Base(path), o})
	if err != nil {
		return Manifest{}, fmt.Errorf("writing a backup to %q: %w", path, s.meaning(err))
	}
	return m, nil
}

// placed is a backup to be written under a name.
type placed struct {
	name    string
	options BackupOptions
}

func (s *Store) backupInto(ctx context.Context, a Actor, root *os.Root, p placed) (m Manifest, err error) {
	tmp := temporary + p.name
	if _, err := root.Lstat(p.name); err == nil {
		return m, fmt.Errorf("%w: there is a file of this name", ErrConflict)
	}
	f, err := root.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return m, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreMissing(root.Remove(tmp)))
		}
	}()
	sum := newHashWriter(f)
	m, err = s.backup(ctx, a, sum, p.options)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return m, err
	}
	if err := s.readBack(ctx, root, placed{tmp, p.options}, sum.Sum()); err != nil {
		return m, fmt.Errorf("reading the backup back: %w", err)
	}
	if err := root.Rename(tmp, p.name); err != nil {
		return m, err
	}
	return m, syncDir(root.Name())
}

// readBack checks a file that was just written: its bytes, and what is in it where the options can open it.
func (s *Store) readBack(ctx context.Context, root *os.Root, p placed, want string) error {
	f, err := root.Open(p.name)
	if err != nil {
		return err
	}
	defer f.Close()
	got := newHashWriter(io.Discard)
	if _, err := io.Copy(got, f); err != nil {
		return err
	}
	if got.Sum() != want {
		return fmt.Errorf("%w: the file is not what was written", ErrCorrupt)
	}
	if p.options.Passphrase == "" {
		return nil // only the recipients can look inside
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = VerifyBackup(ctx, s.dir, f, RestoreOptions{Passphrase: p.options.Passphrase})
	return err
}

// hashWriter writes on and hashes.
type hashWriter struct {
	w io.Writer
	h hash.Hash
}

func newHashWriter(w io.Writer) *hashWriter { return &hashWriter{w, sha256.New()} }

func (h *hashWriter) Write(p []byte) (int, error) {
	n, err := h.w.Write(p)
	h.h.Write(p[:n])
	return n, err
}

func (h *hashWriter) Sum() string { return hex.EncodeToString(h.h.Sum(nil)) }
