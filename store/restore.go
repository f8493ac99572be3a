package store

import (
	"archive/tar"
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
	"regexp"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
)

// RestoreOptions says how a backup is opened. One of Passphrase and Identities is given.
type RestoreOptions struct {
	Passphrase string
	Identities []string // "AGE-SECRET-KEY-1..."
	Replace    bool     // set a database that is there aside instead of refusing
}

// Restored is what a backup held beside the database.
type Restored struct {
	Manifest Manifest
	Files    map[string][]byte
	SetAside string // where the database that was there is now; empty: there was none
}

func (o RestoreOptions) identities() ([]age.Identity, error) {
	var all []age.Identity
	if o.Passphrase != "" {
		i, err := age.NewScryptIdentity(o.Passphrase)
		if err != nil {
			return nil, err
		}
		i.SetMaxWorkFactor(maxPassphrase)
		all = append(all, i)
	}
	for _, text := range o.Identities {
		i, err := age.ParseX25519Identity(text)
		if err != nil {
			// age's own words may quote the secret
			return nil, fmt.Errorf("%w: an identity is not one of age's", ErrInvalid)
		}
		all = append(all, i)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: neither passphrase nor identity is given", ErrPassword)
	}
	return all, nil
}

// Restore puts the database of a backup into dir, once all of it has been read and checked. A store that is open there is
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
	ids, err := o.identities()
	if err != nil {
		return Manifest{}, nil, err
	}
	plain, err := age.Decrypt(r, ids...)
	if _, wrong := errors.AsType[*age.NoIdentityMatchError](err); wrong {
		return Manifest{}, nil, ErrPassword
	}
	if err != nil {
		return Manifest{}, nil, fmt.Errorf("%w: it is not a backup: %w", ErrCorrupt, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Manifest{}, nil, err
	}
	defer root.Close()
	u := unpacker{root: root, files: map[string][]byte{}}
	if err := u.unpack(contextReader{ctx, plain}); err != nil {
		return Manifest{}, nil, err
	}
	steps, err := embedded()
	if err != nil {
		return Manifest{}, nil, err
	}
	return u.manifest, u.files, verifyDatabase(ctx, filepath.Join(dir, fileName), steps[len(steps)-1].version)
}

// unpacker reads the archive inside a backup. Everything in it is a stranger's until its hash agrees with the manifest.
type unpacker struct {
	root     *os.Root
	manifest Manifest
	files    map[string][]byte
	seen     []string
}

var plainFile = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func plainName(name string) error {
	if !plainFile.MatchString(name) {
		return fmt.Errorf("%w: %q is not a plain file name", ErrInvalid, name)
	}
	return nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrCorrupt, fmt.Errorf(format, args...))
}

func (u *unpacker) unpack(r io.Reader) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return damaged("reading the archive: %w", err)
		}
		if h.Typeflag != tar.TypeReg || h.Size < 0 {
			return damaged("%q is not a plain file", h.Name)
		}
		if err := u.entry(h, t); err != nil {
			return err
		}
	}
	if len(u.seen) == 0 || len(u.seen) != len(u.manifest.Files)+1 {
		return damaged("the archive has %d files, not those of its manifest", len(u.seen))
	}
	// the last piece of the encryption proves that nothing was cut off
	n, err := io.Copy(io.Discard, io.LimitReader(r, 1<<20))
	if err != nil {
		return damaged("reading the end: %w", err)
	}
	if n == 1<<20 {
		return damaged("there is something behind the archive")
	}
	return nil
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	if slices.Contains(u.seen, h.Name) {
		return damaged("%q is there twice", h.Name)
	}
	u.seen = append(u.seen, h.Name)
	if len(u.seen) == 1 {
		return u.readManifest(h, r)
	}
	i := slices.IndexFunc(u.manifest.Files, func(f ManifestFile) bool { return f.Name == h.Name })
	if i < 0 {
		return damaged("%q is not in the manifest", h.Name)
	}
	f := u.manifest.Files[i]
	if h.Size != f.Size {
		return damaged("%q has %d bytes, not %d", h.Name, h.Size, f.Size)
	}
	if h.Name == fileName {
		return u.readDatabase(f, r)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return damaged("reading %q: %w", h.Name, err)
	}
	if sha256Hex(data) != f.SHA256 {
		return damaged("the hash of %q differs", h.Name)
	}
	u.files[h.Name[len(filesFolder):]] = data
	return nil
}

func (u *unpacker) readManifest(h *tar.Header, r io.Reader) error {
	if h.Name != manifestName || h.Size > maxManifest {
		return damaged("it does not begin with a manifest")
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return damaged("reading the manifest: %w", err)
	}
	if err := json.Unmarshal(text, &u.manifest); err != nil {
		return damaged("reading the manifest: %w", err)
	}
	if u.manifest.Format != backupFormat {
		return fmt.Errorf("%w: the backup's format is %d", ErrTooNew, u.manifest.Format)
	}
	if len(u.manifest.Files) > maxFiles+1 {
		return damaged("the manifest has too many files")
	}
	database := false
	for _, f := range u.manifest.Files {
		if f.Name == fileName {
			database = true
			continue
		}
		name, ok := strings.CutPrefix(f.Name, filesFolder)
		if !ok || plainName(name) != nil || f.Size > maxFile {
			return damaged("the manifest has the file %q", f.Name)
		}
	}
	if !database {
		return damaged("the manifest has no database")
	}
	return nil
}

func (u *unpacker) readDatabase(f ManifestFile, r io.Reader) error {
	out, err := u.root.OpenFile(fileName, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := newHashWriter(out)
	_, err = io.Copy(sum, r)
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		if full(err) {
			return err
		}
		return damaged("reading the database: %w", err)
	}
	if sum.Sum() != f.SHA256 {
		return damaged("the hash of the database differs")
	}
	return nil
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

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
