package store

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"filippo.io/age"
)

// A backup is an age file around a tar archive: manifest.json, then 1bit.db, then files/NAME.
const (
	manifestName   = "manifest.json"
	filesFolder    = "files/"
	backupFormat   = 1
	maxManifest    = 4 << 20
	maxFiles       = 64
	maxFile        = 4 << 20
	passphraseWork = 17 // log2 of scrypt's rounds: half a second and 128 MiB
	maxPassphrase  = 20 // more than that in a stranger's file is an attack
	shortest       = 8  // characters of a passphrase
)

// BackupOptions says how a backup is locked and what goes in. Exactly one of Passphrase and Recipients is given.
type BackupOptions struct {
	Passphrase string            // at least 8 characters
	Recipients []string          // "age1..."
	IncludeCA  bool              // also the local authority's private keys
	Files      map[string][]byte // further small files, such as the configuration, by plain name
}

// Manifest is the table of contents of a backup.
type Manifest struct {
	Format     int             `json:"format"`
	Created    time.Time       `json:"created"`
	Schema     int             `json:"schema"`
	IncludesCA bool            `json:"includes_ca"`
	Audit      int64           `json:"audit_entries"`
	AuditHash  string          `json:"audit_hash"` // hex
	Files      []ManifestFile  `json:"files"`
	Models     []ManifestModel `json:"models"` // not in the backup: what to obtain again
}

// ManifestFile is one file of a backup.
type ManifestFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
}

// ManifestModel names a model that the box had.
type ManifestModel struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
	Source string `json:"source"`
}

// recipients returns whom the backup is for.
func (o BackupOptions) recipients(work int) ([]age.Recipient, error) {
	if (o.Passphrase == "") == (len(o.Recipients) == 0) {
		return nil, fmt.Errorf("%w: a backup is locked by a passphrase or for recipients", ErrInvalid)
	}
	if o.Passphrase != "" {
		if len(o.Passphrase) < shortest {
			return nil, fmt.Errorf("%w: a passphrase has at least %d characters", ErrInvalid, shortest)
		}
		r, err := age.NewScryptRecipient(o.Passphrase)
		if err != nil {
			return nil, err
		}
		r.SetWorkFactor(work)
		return []age.Recipient{r}, nil
	}
	var all []age.Recipient
	for _, text := range o.Recipients {
		r, err := age.ParseX25519Recipient(text)
		if err != nil {
			return nil, fmt.Errorf("%w: recipient %q: %w", ErrInvalid, text, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// Backup writes a backup of everything but models, logins and (unless asked for) the local authority's private keys. It
// needs room in the state directory for one copy of the database. Admins only.
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
	to, err := o.recipients(s.scrypt)
	if err != nil {
		return Manifest{}, err
	}
	for name, data := range o.Files {
		if err := plainName(name); err != nil || len(data) > maxFile || len(o.Files) > maxFiles {
			return Manifest{}, fmt.Errorf("%w: %q cannot go into a backup", ErrInvalid, name)
		}
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
	m := Manifest{Format: backupFormat, Created: s.now().UTC(), IncludesCA: o.IncludeCA}
	if err := s.prepare(ctx, db, &m); err != nil {
		return Manifest{}, err
	}
	return m, pack(w, to, db, &m, o.Files)
}

// prepare writes the copy of the database that goes into a backup, and enters it in the manifest.
func (s *Store) prepare(ctx context.Context, path string, m *Manifest) error {
	if err := copyDatabase(ctx, s.path(), path); err != nil {
		return err
	}
	err := onFile(ctx, path, func(db *reader) error {
		// secure_delete is on: what is deleted here is overwritten
		for _, q := range []string{"delete from logins", "delete from tls_locks"} {
			if _, err := db.db.ExecContext(ctx, q); err != nil {
				return err
			}
		}
		if !m.IncludesCA {
			from, to := folderRange(PrivateCAPrefix)
			if _, err := db.db.ExecContext(ctx, "delete from tls_values where name >= ? and name < ?", from, to); err != nil {
				return err
			}
		}
		return s.describe(ctx, db, m)
	})
	if err != nil {
		return err
	}
	if err := onFile(ctx, path, func(db *reader) error { return check(ctx, db) }); err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	sum, err := hashFile(path)
	m.Files = append(m.Files, ManifestFile{fileName, st.Size(), sum})
	return err
}

// describe fills in what the manifest says of the database.
func (s *Store) describe(ctx context.Context, q querier, m *Manifest) error {
	if err := q.row(ctx, "pragma user_version").Scan(&m.Schema); err != nil {
		return err
	}
	n, hash, err := head(ctx, q)
	if err != nil {
		return err
	}
	m.Audit, m.AuditHash = n, hex.EncodeToString(hash[:])
	models, err := modelsOf(ctx, q)
	for _, r := range models {
		m.Models = append(m.Models, ManifestModel{r.ID, r.Digest, r.Size, r.Source})
	}
	return err
}

// pack writes manifest, database and files, encrypted.
func pack(w io.Writer, to []age.Recipient, db string, m *Manifest, files map[string][]byte) error {
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		m.Files = append(m.Files, ManifestFile{filesFolder + name, int64(len(files[name])), sha256Hex(files[name])})
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	enc, err := age.Encrypt(w, to...)
	if err != nil {
		return err
	}
	t := tar.NewWriter(enc)
	put := func(name string, size int64, from io.Reader) error {
		h := &tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: m.Created.Truncate(time.Second), Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(t, from)
		return err
	}
	f, err := os.Open(db)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := put(manifestName, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	if err := put(fileName, m.Files[0].Size, f); err != nil {
		return err
	}
	for _, name := range names {
		if err := put(filesFolder+name, int64(len(files[name])), bytes.NewReader(files[name])); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), enc.Close())
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
