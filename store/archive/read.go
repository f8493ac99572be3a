package archive

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"filippo.io/age"
)

// Read unpacks a backup: the databases as new files into root, not synced, the small files into memory. What it returns without an
// error is whole and agrees with its manifest.
func Read(r io.Reader, k Keys, root *os.Root) (Manifest, map[string][]byte, error) {
	ids, err := k.identities()
	if err != nil {
		return Manifest{}, nil, err
	}
	plain, err := age.Decrypt(r, ids...)
	if _, wrong := errors.AsType[*age.NoIdentityMatchError](err); wrong {
		return Manifest{}, nil, ErrPassword
	}
	if err != nil {
		return Manifest{}, nil, damaged("it is not a backup: %w", err)
	}
	u := unpacker{root: root, files: map[string][]byte{}}
	if err := u.unpack(suspicious{plain}); err != nil {
		return Manifest{}, nil, err
	}
	return u.manifest, u.files, nil
}

// suspicious makes every error of reading one of the backup's: so it is told from those of writing.
type suspicious struct{ r io.Reader }

func (s suspicious) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged("reading it: %w", err)
	}
	return n, err
}

func (k Keys) identities() ([]age.Identity, error) {
	var all []age.Identity
	if k.Passphrase != "" {
		i, err := age.NewScryptIdentity(k.Passphrase)
		if err != nil {
			return nil, err
		}
		i.SetMaxWorkFactor(maxPassphrase)
		all = append(all, i)
	}
	for _, text := range k.Identities {
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
		if h.Typeflag != tar.TypeReg || h.Size < 0 || sparse(h) {
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
	n, err := io.Copy(io.Discard, io.LimitReader(r, 1))
	if err != nil {
		return damaged("reading the end: %w", err)
	}
	if n > 0 {
		return damaged("there is something behind the archive")
	}
	return nil
}

// sparse tells a file with holes, a few bytes of which can fill a disk.
func sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	if slices.Contains(u.seen, h.Name) {
		return damaged("%q is there twice", h.Name)
	}
	u.seen = append(u.seen, h.Name)
	if len(u.seen) == 1 {
		return u.readManifest(h, r)
	}
	i := slices.IndexFunc(u.manifest.Files, func(f File) bool { return f.Name == h.Name })
	if i < 0 {
		return damaged("%q is not in the manifest", h.Name)
	}
	f := u.manifest.Files[i]
	if h.Size != f.Size {
		return damaged("%q has %d bytes, not %d", h.Name, h.Size, f.Size)
	}
	if h.Name == Database || h.Name == Documents {
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
	if u.manifest.Format != format && u.manifest.Format != withDocuments {
		return fmt.Errorf("%w: the backup's format is %d", ErrTooNew, u.manifest.Format)
	}
	if len(u.manifest.Files) > maxFiles+2 {
		return damaged("the manifest has too many files")
	}
	database := false
	for _, f := range u.manifest.Files {
		if f.Name == Database {
			database = true
			continue
		}
		if f.Name == Documents && u.manifest.Format == withDocuments {
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

func (u *unpacker) readDatabase(f File, r io.Reader) error {
	out, err := u.root.OpenFile(f.Name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), r)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = damaged("reading the database: %w", err)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return damaged("the hash of %q differs", f.Name)
	}
	return nil
}
