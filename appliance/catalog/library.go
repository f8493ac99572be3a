package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"onebit/appliance/record"
)

// Library is the folders that hold models: our own, one of them on each drive, and those of other programs, which are
// only read.
type Library struct {
	Roots  []string // our own; new models go to the first
	Places []Place  // of other programs
}

// Model is a model on this machine.
type Model struct {
	Name   string    `json:"name"`
	Source string    `json:"source,omitempty"` // where it came from: owner/name@commit, a URL without its query, or nothing
	Files  []File    `json:"files"`            // the first is the one to load
	Added  time.Time `json:"added"`

	Kind string `json:"-"` // pulled, added, or the program whose folder it is in
	Dir  string `json:"-"` // where Files are; empty when their paths are whole
}

// File is one file of a model.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`             // bytes
	SHA256 string `json:"sha256,omitempty"` // lower-case hex; empty when nobody has said it
}

// Kinds of models that are ours.
const (
	Pulled = "pulled"
	Added  = "added"
)

// Path is the file to load.
func (m Model) Path() string { return m.at(m.Files[0]) }

func (m Model) at(f File) string { return filepath.Join(m.Dir, filepath.FromSlash(f.Path)) }

// Size is what all files take, in bytes.
func (m Model) Size() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Ours reports whether the model may be removed by us.
func (m Model) Ours() bool { return m.Kind == Pulled || m.Kind == Added }

// Models lists what is there: our own models first, in the order of their names. What cannot be read is left out, and
// the errors say why.
func (l Library) Models() (out []Model, errs []error) {
	for _, root := range l.Roots {
		records, err := filepath.Glob(filepath.Join(escapeGlob(root), "*", recordFile))
		if err != nil {
			errs = append(errs, err)
		}
		for _, path := range records {
			m, err := readRecord(path)
			if err != nil {
				errs = append(errs, fmt.Errorf("reading %s: %w", path, err))
				continue
			}
			m.Kind, m.Dir = Pulled, filepath.Dir(path)
			if filepath.IsAbs(m.Files[0].Path) {
				m.Kind, m.Dir = Added, ""
			}
			out = append(out, m)
		}
		out = append(out, bare(root, out)...)
	}
	slices.SortStableFunc(out, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range l.Places {
		found, err := p.models()
		if err != nil {
			errs = append(errs, err)
		}
		out = append(out, found...)
	}
	return out, errs
}

// bare lists the entries of the catalogue that lie in a root without a record, as earlier versions left them.
func bare(root string, known []Model) (out []Model) {
	c := Cache{Dir: root}
	for _, e := range Entries() {
		if e.SHA256 == "" {
			continue
		}
		info, err := os.Stat(c.Path(e))
		dir := filepath.Dir(c.Path(e))
		if errors.Is(tooNew(dir), record.ErrNewer) {
			continue // it is not ours to say what it is
		}
		if err != nil || slices.ContainsFunc(known, func(m Model) bool { return m.Dir == dir }) {
			continue
		}
		out = append(out, Model{
			Name: e.Name, Source: "catalogue", Kind: Pulled, Dir: dir, Added: info.ModTime(),
			Files: []File{{Path: e.File, Size: info.Size(), SHA256: e.SHA256}},
		})
	}
	return out
}

// Find returns the model of a name: an entry of the catalogue that is here, one that was pulled or added under the name,
// or one in another program's folder.
func (l Library) Find(name string) (Model, error) {
	models, errs := l.Models()
	for _, m := range models {
		if m.Name == name {
			return m, nil
		}
	}
	return Model{}, errors.Join(append([]error{fmt.Errorf("no model here is called %q; `1bit model list` shows those that are: %w", name, fs.ErrNotExist)}, errs...)...)
}

// Add takes in a model that lies somewhere, without moving it: all shards of it. It is checked and hashed.
func (l Library) Add(ctx context.Context, path, name string, p Progress) (Model, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Model{}, err
	}
	if name == "" {
		name = stem(path)
	}
	if err := CheckName(name); err != nil {
		return Model{}, err
	}
	if m, err := l.Find(name); err == nil && m.Ours() {
		return m, fmt.Errorf("there is a model called %q: %s; give another --name", name, m.Path())
	}
	files, err := parts(path)
	if err != nil {
		return Model{}, err
	}
	m := Model{Name: name, Kind: Added, Added: time.Now().UTC().Truncate(time.Second)}
	for _, f := range files {
		if err := CheckGGUF(f); err != nil {
			return Model{}, err
		}
		info, err := os.Stat(f)
		if err != nil {
			return Model{}, err
		}
		sum, err := hashFile(ctx, f, "checking "+filepath.Base(f), info.Size(), p)
		if err != nil {
			return Model{}, err
		}
		m.Files = append(m.Files, File{Path: f, Size: info.Size(), SHA256: sum})
	}
	dir := filepath.Join(l.Roots[0], "added-"+name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Model{}, fmt.Errorf("making the model's folder: %w", err)
	}
	return m, writeRecord(dir, m)
}

// Remove takes a model of ours away: the files of one that was pulled, the note of one that was added.
func (l Library) Remove(name string) (Model, error) {
	m, err := l.Find(name)
	if err != nil {
		return m, err
	}
	if !m.Ours() {
		return m, fmt.Errorf("%s belongs to %s; remove it there", m.Path(), m.Kind)
	}
	dir := m.Dir
	if m.Kind == Added {
		for _, root := range l.Roots {
			if at := filepath.Join(root, "added-"+name); exists(filepath.Join(at, recordFile)) {
				dir = at
			}
		}
	}
	for _, root := range l.Roots { // nothing but a folder of ours is removed
		if dir != "" && filepath.Dir(dir) == filepath.Clean(root) {
			return m, os.RemoveAll(dir)
		}
	}
	return m, fmt.Errorf("%s is not in one of our folders", m.Path())
}

// Verify reads all files of a model and compares their hashes with those on record, and their headers with what a GGUF
// file is. The error wraps ErrDamaged. A file without a hash on record is checked by its header alone.
func (l Library) Verify(ctx context.Context, m Model, p Progress) error {
	for _, f := range m.Files {
		path := m.at(f)
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() != f.Size {
			return fmt.Errorf("checking %s: it has %d bytes, not %d: %w", path, info.Size(), f.Size, ErrDamaged)
		}
		if f.SHA256 != "" {
			sum, err := hashFile(ctx, path, "checking "+filepath.Base(path), info.Size(), p)
			if err != nil {
				return err
			}
			if sum != f.SHA256 {
				return fmt.Errorf("checking %s: its SHA-256 is %s, not %s: %w", path, sum, f.SHA256, ErrDamaged)
			}
		}
		if strings.HasSuffix(path, ".gguf") || f.SHA256 == "" || !m.Ours() {
			if err := CheckGGUF(path); err != nil {
				return fmt.Errorf("%w: %w", err, ErrDamaged)
			}
		}
	}
	return nil
}
