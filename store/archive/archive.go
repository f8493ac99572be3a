// Package archive is the form of a backup: an age file around a tar archive with manifest.json, 1bit.db, documents.db
// where there are documents, and files/NAME, in this order. It knows nothing of the database but that it is a file.
package archive

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"filippo.io/age"
)

// Errors that callers branch on.
var (
	ErrInvalid  = errors.New("not a valid value")
	ErrTooNew   = errors.New("written by a newer version")
	ErrCorrupt  = errors.New("the data is damaged")
	ErrPassword = errors.New("the passphrase or key does not open this backup")
)

// Database is the name of the database inside a backup.
const Database = "1bit.db"

// Documents is the name of the document store's database inside a backup.
const Documents = "documents.db"

const (
	manifestName  = "manifest.json"
	filesFolder   = "files/"
	format        = 1 // without documents
	withDocuments = 2
	maxManifest   = 4 << 20
	maxFiles      = 64
	maxFile       = 4 << 20
	usualWork     = 17 // half a second and 128 MiB
	maxPassphrase = 20 // more than that in a stranger's file is an attack
	shortest      = 8  // characters of a passphrase
)

// Lock says who can open a backup. Exactly one of Passphrase and Recipients is given.
type Lock struct {
	Passphrase string   // at least 8 characters
	Recipients []string // "age1..."
	Work       int      // log2 of scrypt's rounds for a passphrase; 0: 17
}

// Keys open a backup. One of them is given.
type Keys struct {
	Passphrase string
	Identities []string // "AGE-SECRET-KEY-1..."
}

// Manifest is the table of contents of a backup.
type Manifest struct {
	Format     int       `json:"format"`
	Created    time.Time `json:"created"`
	Schema     int       `json:"schema"`
	IncludesCA bool      `json:"includes_ca"`
	Audit      int64     `json:"audit_entries"`
	AuditHash  string    `json:"audit_hash"` // hex
	Files      []File    `json:"files"`
	Models     []Model   `json:"models"` // not in the backup: what to obtain again
}

// File is one file of a backup.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
}

// Model names a model that the box had.
type Model struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
	Source string `json:"source"`
}

// recipients returns whom the backup is for.
func (l Lock) recipients() ([]age.Recipient, error) {
	if (l.Passphrase == "") == (len(l.Recipients) == 0) {
		return nil, fmt.Errorf("%w: a backup is locked by a passphrase or for recipients", ErrInvalid)
	}
	if l.Passphrase != "" {
		if len(l.Passphrase) < shortest {
			return nil, fmt.Errorf("%w: a passphrase has at least %d characters", ErrInvalid, shortest)
		}
		r, err := age.NewScryptRecipient(l.Passphrase)
		if err != nil {
			return nil, err
		}
		r.SetWorkFactor(cmp.Or(l.Work, usualWork))
		return []age.Recipient{r}, nil
	}
	var all []age.Recipient
	for _, text := range l.Recipients {
		r, err := age.ParseX25519Recipient(text)
		if err != nil {
			return nil, fmt.Errorf("%w: recipient %q: %w", ErrInvalid, text, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// Check tells whether the lock can be used.
func (l Lock) Check() error {
	_, err := l.recipients()
	return err
}

// Contents is what goes into a backup.
type Contents struct {
	Database  string            // path of a file that nothing changes
	Documents string            // the same; empty where there is none
	Files     map[string][]byte // small files by plain name
}

// CheckFiles tells whether files can go into a backup.
func CheckFiles(files map[string][]byte) error {
	if len(files) > maxFiles {
		return fmt.Errorf("%w: more than %d files", ErrInvalid, maxFiles)
	}
	for name, data := range files {
		if err := plainName(name); err != nil {
			return err
		}
		if len(data) > maxFile {
			return fmt.Errorf("%w: the file %q has more than %d bytes", ErrInvalid, name, maxFile)
		}
	}
	return nil
}

// Write writes a backup and fills in the manifest's format and files.
func Write(w io.Writer, l Lock, m *Manifest, c Contents) error {
	to, err := l.recipients()
	if err != nil {
		return err
	}
	if err := CheckFiles(c.Files); err != nil {
		return err
	}
	m.Format, m.Files = format, nil
	large := []string{c.Database}
	if c.Documents != "" {
		m.Format = withDocuments
		large = append(large, c.Documents)
	}
	for i, path := range large {
		f, err := describe(path, []string{Database, Documents}[i])
		if err != nil {
			return err
		}
		m.Files = append(m.Files, f)
	}
	names := slices.Sorted(maps.Keys(c.Files))
	for _, name := range names {
		m.Files = append(m.Files, File{filesFolder + name, int64(len(c.Files[name])), sha256Hex(c.Files[name])})
	}
	enc, err := age.Encrypt(w, to...)
	if err != nil {
		return err
	}
	p := packer{tar.NewWriter(enc), m.Created}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := p.put(manifestName, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	for i, path := range large {
		if err := p.putFile(m.Files[i], path); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := p.put(filesFolder+name, int64(len(c.Files[name])), bytes.NewReader(c.Files[name])); err != nil {
			return err
		}
	}
	return errors.Join(p.Close(), enc.Close())
}

// describe hashes a file that goes in under a name.
func describe(path, name string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, f)
	return File{name, size, hex.EncodeToString(h.Sum(nil))}, err
}

type packer struct {
	*tar.Writer
	time time.Time
}

func (p packer) put(name string, size int64, from io.Reader) error {
	h := &tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: p.time.Truncate(time.Second), Format: tar.FormatPAX}
	if err := p.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(p.Writer, from)
	return err
}

func (p packer) putFile(as File, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return p.put(as.Name, as.Size, f)
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
