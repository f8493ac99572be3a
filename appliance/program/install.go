package program

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"onebit/appliance/egress"
	"onebit/appliance/record"
)

// Wish says what is to be installed.
type Wish struct {
	Device  string
	Source  string // a folder, an archive (.tar, .tar.gz, .tgz, .zip), or the URL of one
	SHA256  string // of the archive, in hex; needed for a URL
	Version string // empty takes the archive's name
	Client  *egress.Client
	Note    func(string)                              // told what goes on; may be nil
	Bytes   func(what string, done, total int64)      // told how far a download is; may be nil
	Space   func(dir string) (free uint64, err error) // may be nil
}

var hashHex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Install brings in a version, tries it and makes it the current one. The one before it stays, those before that go.
// The error wraps ErrRefused when the program did not decode; then, as after every error, all is as it was before.
func (s *Store) Install(ctx context.Context, w Wish) (Version, error) {
	if w.SHA256 = strings.ToLower(w.SHA256); w.SHA256 != "" && !hashHex.MatchString(w.SHA256) {
		return Version{}, fmt.Errorf("%q is no SHA-256 in hex", w.SHA256)
	}
	if w.Version == "" {
		w.Version = versionOf(w.Source)
	}
	if !versionName.MatchString(w.Version) {
		return Version{}, fmt.Errorf("%q is no version: letters, digits, points, dashes and underscores are wanted, at most 64", w.Version)
	}
	unlock, dir, err := s.begin(w.Device)
	if err != nil {
		return Version{}, err
	}
	defer unlock()
	s.at("begin")
	v, err := s.bring(ctx, dir, w)
	if err != nil {
		return v, fmt.Errorf("installing %s for %s: %w", withoutQuery(w.Source), w.Device, err)
	}
	before := link(dir, currentLink)
	if before == v.Name { // it holds already: only what was damaged has been mended
		return s.Current(w.Device)
	}
	if err := s.turn(dir, v.Name, before); err != nil {
		return v, err
	}
	s.prune(dir)
	return s.Current(w.Device)
}

// versionOf is the version that a source's name speaks of.
func versionOf(source string) string {
	base := path.Base(filepath.ToSlash(withoutQuery(source)))
	for _, ending := range []string{".gz", ".tgz", ".tar", ".zip"} {
		base = strings.TrimSuffix(base, ending)
	}
	base = strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("._-", r)) {
			return r
		}
		return '-'
	}, base)
	base = strings.TrimLeft(base, "._-")
	return base[:min(len(base), 64)]
}

func withoutQuery(s string) string {
	if strings.Contains(s, "://") {
		s, _, _ = strings.Cut(s, "?")
	}
	return s
}

// begin keeps a device's folder for one change at a time and removes what earlier ones have left.
func (s *Store) begin(device string) (unlock func(), dir string, err error) {
	if dir, err = s.device(device); err != nil {
		return nil, "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", fmt.Errorf("making the folder of programs: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, "", fmt.Errorf("keeping the folder of programs: %w", err)
	}
	if err := record.Lock(f, ErrBusy); err != nil {
		f.Close()
		return nil, "", fmt.Errorf("keeping the folder %s: %w", dir, err)
	}
	if now, aside := link(dir, currentLink), filepath.Join(dir, asideFolder); now != "" {
		if _, err := os.Stat(filepath.Join(dir, now)); errors.Is(err, fs.ErrNotExist) { // broken off between two names
			_ = os.Rename(aside, filepath.Join(dir, now)) // when there is none, there is nothing to lose
		}
	}
	if err := tooNew(dir); err != nil {
		f.Close()
		return nil, "", err
	}
	left, err := filepath.Glob(filepath.Join(escape(dir), incoming+"*"))
	for _, l := range left {
		err = errors.Join(err, os.RemoveAll(l))
	}
	if err != nil {
		f.Close()
		return nil, "", fmt.Errorf("removing what an earlier install has left: %w", err)
	}
	return func() { f.Close() }, dir, nil
}

// tooNew returns record.ErrNewer for a folder in which a newer program has installed something: how that is kept is not
// known here, so nothing in it is changed.
func tooNew(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("looking into the folder of programs: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && folderName.MatchString(e.Name()) {
			if _, err := readManifest(filepath.Join(dir, e.Name())); errors.Is(err, record.ErrNewer) {
				return err
			}
		}
	}
	return nil
}

// escape keeps the signs of a pattern in a path from being read as such.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// bring unpacks a version, tries it, and gives its folder the final name.
func (s *Store) bring(ctx context.Context, dir string, w Wish) (Version, error) {
	v := Version{Device: w.Device}
	at := filepath.Join(dir, incoming+"version")
	if err := os.Mkdir(at, 0o755); err != nil {
		return v, err
	}
	defer os.RemoveAll(at) // it has another name when all went well
	s.at("fetch")
	archive, sum, err := s.fetch(ctx, dir, w)
	if err != nil {
		return v, err
	}
	s.at("unpack")
	root, err := os.OpenRoot(at)
	if err != nil {
		return v, err
	}
	defer func() { _ = root.Close() }()
	if err := unpack(ctx, archive, root, budget(dir, w.Space)); err != nil {
		return v, err
	}
	if err := front(root, files[w.Device]); err != nil {
		return v, err
	}
	v.Manifest = Manifest{Device: w.Device, Version: w.Version, Source: withoutQuery(w.Source), Archive: sum, Installed: time.Now().UTC().Truncate(time.Second)}
	if v.Manifest.Files, err = inventory(ctx, root); err != nil {
		return v, err
	}
	v.Name = w.Version + "-" + id(v.Manifest.Files)
	v.Dir = filepath.Join(dir, v.Name)
	s.at("manifest")
	if err := write(root, v.Manifest); err != nil {
		return v, err
	}
	s.at("try")
	if err := s.try(ctx, w.Device, filepath.Join(at, files[w.Device])); err != nil {
		return v, err
	}
	s.at("name")
	return v, s.name(ctx, at, v)
}

// budget is how many bytes may be unpacked into a folder: what is free there but a GB, and never more than a program has.
func budget(dir string, space func(string) (uint64, error)) int64 {
	if space == nil {
		return maxUnpack
	}
	free, err := space(dir)
	if err != nil {
		return maxUnpack
	}
	return int64(min(free-min(free, 1<<30), maxUnpack))
}

// name gives an unpacked version its folder. One that is there already, and is whole, stays.
func (s *Store) name(ctx context.Context, at string, v Version) error {
	if old, err := readManifest(v.Dir); err == nil {
		have := Version{Device: v.Device, Name: v.Name, Dir: v.Dir, Manifest: old}
		if have.verify(ctx) == nil {
			return nil
		}
	}
	aside := filepath.Join(filepath.Dir(v.Dir), asideFolder)
	if _, err := os.Stat(v.Dir); err == nil { // damaged: what takes its place is whole
		if err := os.Rename(v.Dir, aside); err != nil {
			return err
		}
	}
	s.at("aside")
	if err := os.Rename(at, v.Dir); err != nil {
		return err
	}
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	return record.SyncDir(filepath.Dir(v.Dir))
}

// prune removes all versions but the current and the previous one. One that cannot be removed is tried again next time.
func (s *Store) prune(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	current, previous := link(dir, currentLink), link(dir, previousLink)
	for _, e := range entries {
		if n := e.Name(); e.IsDir() && folderName.MatchString(n) && n != current && n != previous {
			s.at("prune")
			gone := filepath.Join(dir, incoming+"gone-"+n)
			if os.Rename(filepath.Join(dir, n), gone) == nil {
				os.RemoveAll(gone)
			}
		}
	}
}

// maxArchive is the largest archive that is fetched, in bytes.
const maxArchive = 8 << 30

// fetch returns what is to be unpacked, and the hash of an archive.
func (s *Store) fetch(ctx context.Context, dir string, w Wish) (path, sum string, err error) {
	path = w.Source
	if strings.Contains(w.Source, "://") {
		if w.SHA256 == "" {
			return "", "", errors.New("a URL needs the SHA-256 of what it is to bring (--sha256)")
		}
		if path, err = download(ctx, dir, w); err != nil {
			return "", "", err
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", "", err
	}
	if info.IsDir() {
		if w.SHA256 != "" {
			return "", "", errors.New("a folder has no one hash")
		}
		return path, "", nil
	}
	if sum, err = hashOf(path); err != nil {
		return "", "", err
	}
	if w.SHA256 != "" && sum != w.SHA256 {
		return "", "", fmt.Errorf("its SHA-256 is %s, not %s: %w", sum, w.SHA256, ErrDamaged)
	}
	return path, sum, nil
}

// download fetches an archive. Its name keeps the ending, by which it is unpacked.
func download(ctx context.Context, dir string, w Wish) (string, error) {
	if w.Client == nil {
		return "", errors.New("there is no way to fetch it")
	}
	u, err := url.Parse(w.Source)
	if err != nil {
		return "", fmt.Errorf("%q is no URL", withoutQuery(w.Source))
	}
	res, err := w.Client.Get(ctx, w.Source, egress.Limits{Bytes: maxArchive, Least: 64 << 10})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", &egress.StatusError{Status: res.StatusCode, Host: u.Hostname()}
	}
	if w.Space != nil {
		if free, err := w.Space(dir); err == nil && res.ContentLength > 0 && uint64(res.ContentLength)*4 > free {
			return "", fmt.Errorf("%.1f GB are needed to unpack it in %s, and %.1f GB are free", float64(res.ContentLength)*4/1e9, dir, float64(free)/1e9)
		}
	}
	out, err := os.Create(filepath.Join(dir, incoming+path.Base(u.Path)))
	if err != nil {
		return "", err
	}
	defer out.Close()
	_, err = io.Copy(&counter{w: out, f: w.Bytes, what: "downloading " + path.Base(u.Path), total: res.ContentLength}, res.Body)
	return out.Name(), errors.Join(err, out.Close())
}

// counter tells how much was written.
type counter struct {
	w           io.Writer
	f           func(what string, done, total int64)
	what        string
	done, total int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.done += int64(n)
	if c.f != nil {
		c.f(c.what, c.done, c.total)
	}
	return n, err
}

func hashOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// write puts the manifest beside the files and all of it on disk.
func write(root *os.Root, m Manifest) error {
	b, err := formats.Write(m)
	if err != nil {
		return err
	}
	f, err := root.OpenFile(manifestFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	defer f.Close()
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	return flush(root)
}
