package program

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Budgets of what is unpacked.
const (
	maxEntries = 20_000
	maxUnpack  = 16 << 30 // bytes, all together
	maxDepth   = 32       // folders
	maxName    = 512      // bytes of a path
)

// checkPath returns an error when a path of an archive does not stay in its folder, or is one of our names.
func checkPath(p string) error {
	switch {
	case p == "" || len(p) > maxName || !filepath.IsLocal(filepath.FromSlash(p)) || path.Clean(p) != p || p == ".":
		return fmt.Errorf("the path %.80q leads elsewhere", p)
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' || r == ':' }):
		return fmt.Errorf("the path %.80q has signs that no file of a program has", p)
	case strings.Count(p, "/") > maxDepth:
		return fmt.Errorf("the path %.80q is too deep", p)
	case p == manifestFile:
		return fmt.Errorf("the path %q is ours", p)
	}
	return nil
}

// checkLink returns an error when a link does not stay in the folder.
func checkLink(at, to string) error {
	if to == "" || path.IsAbs(to) || strings.ContainsAny(to, "\\:\x00") {
		return fmt.Errorf("the link %.80q leads elsewhere: %.80q", at, to)
	}
	return checkPath(path.Join(path.Dir(at), to))
}

// unpacker writes what an archive holds into a folder.
type unpacker struct {
	ctx     context.Context
	root    *os.Root
	entries int
	budget  int64 // bytes, all together
	left    int64
	links   []Entry // made last: no file is written through one
}

// unpack copies a folder, or what an archive holds, into root, at most so many bytes.
func unpack(ctx context.Context, source string, root *os.Root, budget int64) error {
	u := &unpacker{ctx: ctx, root: root, budget: budget, left: budget}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	name := strings.ToLower(source)
	switch {
	case info.IsDir():
		err = u.folder(source)
	case strings.HasSuffix(name, ".zip"):
		err = u.zip(source)
	case strings.HasSuffix(name, ".tar"), strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"):
		err = u.tarFile(source, !strings.HasSuffix(name, ".tar"))
	default:
		err = errors.New("it is neither a folder nor a .tar, .tar.gz, .tgz or .zip file")
	}
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	return u.finish()
}

// finish makes the links, and holds each to what is there.
func (u *unpacker) finish() error {
	for _, l := range u.links {
		if err := u.parent(l.Path); err != nil {
			return err
		}
		if err := u.root.Symlink(filepath.FromSlash(l.Link), l.Path); err != nil {
			return fmt.Errorf("unpacking: %w", err)
		}
	}
	for _, l := range u.links {
		if _, err := u.root.Stat(l.Path); err != nil {
			return fmt.Errorf("unpacking: the link %s leads nowhere: %w", l.Path, err)
		}
	}
	return nil
}

// count takes one entry out of the budget.
func (u *unpacker) count() error {
	if u.entries++; u.entries > maxEntries {
		return fmt.Errorf("there are more than %d entries", maxEntries)
	}
	return u.ctx.Err()
}

// parent makes the folders above a path.
func (u *unpacker) parent(p string) error {
	if dir := path.Dir(p); dir != "." {
		return u.root.MkdirAll(dir, 0o755)
	}
	return nil
}

// file writes one file.
func (u *unpacker) file(name string, run bool, r io.Reader) error {
	if err := checkPath(name); err != nil {
		return err
	}
	if err := u.parent(name); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if run {
		mode = 0o755
	}
	f, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(f, io.LimitReader(r, u.left+1))
	if u.left -= n; u.left < 0 {
		return fmt.Errorf("there is room for %.1f GB, and it is larger", float64(u.budget)/1e9)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}

// link notes a link for the end.
func (u *unpacker) link(name, to string) error {
	if err := errors.Join(checkPath(name), checkLink(name, to)); err != nil {
		return err
	}
	u.links = append(u.links, Entry{Path: name, Link: to})
	return nil
}

func (u *unpacker) tarFile(source string, packed bool) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	return u.tar(f, packed)
}

// tar unpacks a tar stream.
func (u *unpacker) tar(r io.Reader, packed bool) error {
	if packed {
		z, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		defer func() { _ = z.Close() }()
		r = z
	}
	// what is skipped costs too: a bomb must not be read for ever
	t := tar.NewReader(io.LimitReader(r, u.budget+maxEntries*2048))
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := u.count(); err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		switch h.Typeflag {
		case tar.TypeDir:
			if name != "" && name != "." {
				err = checkPath(name)
			}
		case tar.TypeReg:
			err = u.file(name, h.Mode&0o111 != 0, t)
		case tar.TypeSymlink:
			err = u.link(name, h.Linkname)
		case tar.TypeXGlobalHeader:
		default:
			err = fmt.Errorf("%.80q is neither a file, a folder nor a link", name)
		}
		if err != nil {
			return err
		}
	}
}

// zip unpacks a zip file.
func (u *unpacker) zip(source string) error {
	z, err := zip.OpenReader(source)
	if err != nil {
		return err
	}
	defer func() { _ = z.Close() }()
	return u.zipFiles(z.File)
}

func (u *unpacker) zipFiles(files []*zip.File) error {
	for _, f := range files {
		if err := u.count(); err != nil {
			return err
		}
		name := strings.TrimSuffix(f.Name, "/")
		var err error
		switch mode := f.Mode(); {
		case strings.HasSuffix(f.Name, "/"):
			err = checkPath(name)
		case mode.IsRegular():
			err = u.zipFile(f, name, mode&0o111 != 0)
		case mode&fs.ModeSymlink != 0:
			err = u.zipLink(f, name)
		default:
			err = fmt.Errorf("%.80q is neither a file, a folder nor a link", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) zipFile(f *zip.File, name string, run bool) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	return u.file(name, run, r)
}

// zipLink reads where a link leads, which is what the file holds.
func (u *unpacker) zipLink(f *zip.File, name string) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(io.LimitReader(r, maxName+1))
	if err != nil {
		return err
	}
	return u.link(name, string(b))
}

// folder copies a folder.
func (u *unpacker) folder(source string) error {
	from, err := os.OpenRoot(source)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	return fs.WalkDir(from.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return err
		}
		if err := u.count(); err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return checkPath(p)
		case d.Type()&fs.ModeSymlink != 0:
			to, err := from.Readlink(p)
			if err != nil {
				return err
			}
			return u.link(p, filepath.ToSlash(to))
		case !d.Type().IsRegular():
			return fmt.Errorf("%.80q is neither a file, a folder nor a link", p)
		}
		f, err := from.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		return u.file(p, info.Mode()&0o111 != 0, f)
	})
}

// front makes sure that the program lies in front: where it does not, a link there leads to it.
func front(root *os.Root, file string) error {
	if info, err := root.Stat(file); err == nil && info.Mode().IsRegular() {
		return runnable(info, file)
	}
	var found []string
	err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && path.Base(p) == file {
			found = append(found, p)
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("there is no %s in it", file)
	}
	slices.SortFunc(found, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	info, err := root.Stat(found[0])
	if err != nil {
		return err
	}
	if err := runnable(info, found[0]); err != nil {
		return err
	}
	return root.Symlink(filepath.FromSlash(found[0]), file)
}

func runnable(info fs.FileInfo, name string) error {
	if info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s may not be executed", name)
	}
	return nil
}

// inventory lists all files and links of a folder, but the manifest, in the order of their paths.
func inventory(ctx context.Context, root *os.Root) ([]Entry, error) {
	var out []Entry
	err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || p == manifestFile {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		e := Entry{Path: p}
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			to, err := root.Readlink(p)
			if err != nil {
				return err
			}
			e.Link = filepath.ToSlash(to)
		case d.Type().IsRegular():
			if e, err = describe(root, p); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s is neither a file, a folder nor a link: %w", p, ErrDamaged)
		}
		out = append(out, e)
		return nil
	})
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return out, err
}

// describe hashes one file.
func describe(root *os.Root, p string) (Entry, error) {
	f, err := root.Open(p)
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Entry{}, err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return Entry{}, fmt.Errorf("reading %s: %w", p, err)
	}
	return Entry{Path: p, Size: n, SHA256: hex.EncodeToString(h.Sum(nil)), Run: info.Mode()&0o111 != 0}, nil
}

// id is a hash over all files, the end of a version's name.
func id(all []Entry) string {
	h := sha256.New()
	for _, e := range all {
		fmt.Fprintf(h, "%q %d %s %v %q\n", e.Path, e.Size, e.SHA256, e.Run, e.Link)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// flush writes all files and folders to disk.
func flush(root *os.Root) error {
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || (!d.IsDir() && !d.Type().IsRegular()) {
			return err
		}
		f, err := root.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Sync(); err != nil && !d.IsDir() { // systems that cannot write a folder to disk do it by themselves
			return fmt.Errorf("writing %s to disk: %w", p, err)
		}
		return nil
	})
}
