// Package program keeps the servers of other people that run models: llama-server for a device, and its like. Each
// version lies in a folder of its own and is used only after it has decoded a token here.
//
// # A folder
//
//	DIR/DEVICE/VERSION-HASH/...       the files as they were installed, never changed, with manifest.json beside them
//	DIR/DEVICE/current                a link to the version that holds
//	DIR/DEVICE/previous               a link to the one before it, for going back
//	DIR/DEVICE/incoming-*             what an install that was broken off has left; the next one removes it
//
// An install unpacks into incoming, hashes each file, writes all of it to disk, lets the program decode a token, gives
// the folder its name, and turns the link over in one step. Broken off anywhere before that last step, what held before
// still holds. Nothing of one device's folder is touched by another's.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"onebit/appliance/record"
)

// Store is the folder of installed programs.
type Store struct {
	Dir   string
	Check Check

	step func(name string) // told before each step of a change; tests break it off there
}

// Check tries a program: it returns nil once the program has decoded a token.
type Check func(ctx context.Context, device, path string) error

// Files are the programs' file names by device.
var files = map[string]string{
	"cpu": "llama-server", "vulkan": "llama-server", "hrx": "llama-server", "rocm": "llama-server", "lean": "llama-server",
	"zinc": "zinc", "ds4": "ds4-server", "mlx": "lemon-mlx-server", "npu": "1bit-npu-server", "onnx": "ryzenai-server",
}

// Devices lists the devices that programs can be installed for.
func Devices() []string {
	var all []string
	for d := range files {
		all = append(all, d)
	}
	slices.Sort(all)
	return all
}

// File returns the name of a device's program, "" for a device that has none.
func File(device string) string { return files[device] }

// Version is one installed version.
type Version struct {
	Device   string
	Name     string // of its folder: VERSION-HASH
	Dir      string
	Current  bool
	Previous bool
	Manifest Manifest
}

// Program is the path of its program.
func (v Version) Program() string { return filepath.Join(v.Dir, files[v.Device]) }

// Manifest describes a version: what was installed, from where, and the hash of each file.
type Manifest struct {
	Device    string    `json:"device"`
	Version   string    `json:"version"`
	Source    string    `json:"source"`  // without a query
	Archive   string    `json:"archive"` // SHA-256 of what was unpacked, in hex; empty for a folder
	Installed time.Time `json:"installed"`
	Files     []Entry   `json:"files"`
}

// Entry is one file of a version, or a link inside of it.
type Entry struct {
	Path   string `json:"path"`
	Size   int64  `json:"size,omitempty"` // bytes
	SHA256 string `json:"sha256,omitempty"`
	Run    bool   `json:"run,omitempty"`  // it may be executed
	Link   string `json:"link,omitempty"` // where a link leads, from its own folder
}

// formats are those of a manifest:
//
//	1  without a number
//	2  with its number
var formats = record.Ladder{record.Same}

// Names of ours in a device's folder.
const (
	manifestFile = "manifest.json"
	currentLink  = "current"
	previousLink = "previous"
	incoming     = "incoming-"
	asideFolder  = incoming + "aside"
	lockFile     = ".lock"
)

// Errors that callers branch on.
var (
	ErrNone     = errors.New("no such version is installed")
	ErrDamaged  = errors.New("a file is not what was installed")
	ErrBusy     = errors.New("another install is at work on it")
	ErrRefused  = errors.New("it was not installed")
	errNoDevice = errors.New("no program is installed for such a device")
)

var (
	versionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	folderName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}-[0-9a-f]{12}$`)
)

// device returns the folder of a device.
func (s *Store) device(d string) (string, error) {
	if files[d] == "" {
		return "", fmt.Errorf("%w as %q; there are %s", errNoDevice, d, strings.Join(Devices(), ", "))
	}
	return filepath.Join(s.Dir, d), nil
}

// at calls what is told of steps.
func (s *Store) at(name string) {
	if s.step != nil {
		s.step(name)
	}
}

// List returns all versions, by device, the newest first. What cannot be read is left out; the error names what a newer
// program has installed.
func (s *Store) List() ([]Version, error) {
	var out []Version
	var newer []error
	for _, d := range Devices() {
		dir := filepath.Join(s.Dir, d)
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, fmt.Errorf("listing programs: %w", err)
		}
		current, previous := link(dir, currentLink), link(dir, previousLink)
		var all []Version
		for _, e := range entries {
			if !e.IsDir() || !folderName.MatchString(e.Name()) {
				continue
			}
			v := Version{Device: d, Name: e.Name(), Dir: filepath.Join(dir, e.Name()), Current: e.Name() == current, Previous: e.Name() == previous && current != previous}
			v.Manifest, err = readManifest(v.Dir)
			switch {
			case err == nil:
				all = append(all, v)
			case errors.Is(err, record.ErrNewer):
				newer = append(newer, err)
			}
		}
		slices.SortStableFunc(all, func(a, b Version) int { return b.Manifest.Installed.Compare(a.Manifest.Installed) })
		out = append(out, all...)
	}
	return out, errors.Join(newer...)
}

// Current returns the version of a device that holds.
func (s *Store) Current(device string) (Version, error) {
	return s.linked(device, currentLink)
}

func (s *Store) linked(device, name string) (Version, error) {
	dir, err := s.device(device)
	if err != nil {
		return Version{}, err
	}
	v := Version{Device: device, Name: link(dir, name)}
	if v.Name == "" {
		return v, fmt.Errorf("%s: %w", device, ErrNone)
	}
	v.Dir = filepath.Join(dir, v.Name)
	v.Current, v.Previous = name == currentLink, name == previousLink
	v.Manifest, err = readManifest(v.Dir)
	return v, err
}

// link returns the version that a link names, "" when there is none.
func link(dir, name string) string {
	target, err := os.Readlink(filepath.Join(dir, name))
	if err != nil || !folderName.MatchString(target) {
		return ""
	}
	return target
}

// maxManifest bounds a manifest, in bytes.
const maxManifest = 16 << 20

func readManifest(dir string) (Manifest, error) {
	f, err := os.Open(filepath.Join(dir, manifestFile))
	if err != nil {
		return Manifest{}, fmt.Errorf("reading a manifest: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return Manifest{}, fmt.Errorf("reading a manifest: %w", err)
	}
	m, err := ParseManifest(b)
	if err != nil {
		return m, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return m, nil
}

// ParseManifest reads a manifest and holds each path to the folder that it describes.
func ParseManifest(b []byte) (Manifest, error) {
	var m Manifest
	if len(b) > maxManifest {
		return m, errors.New("it is too long")
	}
	if err := formats.Read(b, &m); err != nil {
		return m, err
	}
	if files[m.Device] == "" || !versionName.MatchString(m.Version) {
		return m, fmt.Errorf("device %q and version %q make no sense", m.Device, m.Version)
	}
	for _, e := range m.Files {
		if err := checkPath(e.Path); err != nil {
			return m, err
		}
		if e.Link != "" {
			if err := checkLink(e.Path, e.Link); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// Verify compares each file of the version that holds with its manifest. The error wraps ErrDamaged.
func (s *Store) Verify(ctx context.Context, device string) (Version, error) {
	v, err := s.Current(device)
	if err != nil {
		return v, err
	}
	return v, v.verify(ctx)
}

// verify compares files and manifest, both ways.
func (v Version) verify(ctx context.Context) error {
	root, err := os.OpenRoot(v.Dir)
	if err != nil {
		return fmt.Errorf("checking %s: %w", v.Name, err)
	}
	defer func() { _ = root.Close() }()
	have, err := inventory(ctx, root)
	if err != nil {
		return fmt.Errorf("checking %s: %w", v.Name, err)
	}
	if !slices.Equal(have, v.Manifest.Files) {
		return fmt.Errorf("checking %s: %s: %w", v.Name, difference(v.Manifest.Files, have), ErrDamaged)
	}
	if id(have) != v.Name[len(v.Name)-12:] {
		return fmt.Errorf("checking %s: its manifest is another version's: %w", v.Name, ErrDamaged)
	}
	return nil
}

// difference names the first file that differs.
func difference(want, have []Entry) string {
	byPath := map[string]Entry{}
	for _, e := range have {
		byPath[e.Path] = e
	}
	for _, e := range want {
		got, ok := byPath[e.Path]
		if !ok {
			return e.Path + " is missing"
		}
		if got != e {
			return e.Path + " has changed"
		}
		delete(byPath, e.Path)
	}
	for path := range byPath {
		return path + " was added"
	}
	return "the order of its files has changed"
}

// Rollback makes the version before the current one the current one again, once it has decoded a token. The two change
// places.
func (s *Store) Rollback(ctx context.Context, device string) (Version, error) {
	unlock, dir, err := s.begin(device)
	if err != nil {
		return Version{}, err
	}
	defer unlock()
	v, err := s.linked(device, previousLink)
	if err != nil {
		return v, fmt.Errorf("going back: %w", err)
	}
	now := link(dir, currentLink)
	if v.Name == now {
		return v, fmt.Errorf("going back: %w before %s", ErrNone, now)
	}
	if err := v.verify(ctx); err != nil {
		return v, fmt.Errorf("going back: %w", err)
	}
	if err := s.try(ctx, device, v.Program()); err != nil {
		return v, fmt.Errorf("going back to %s: %w", v.Name, err)
	}
	if err := s.turn(dir, v.Name, now); err != nil {
		return v, err
	}
	return s.Current(device)
}

// try lets a program decode.
func (s *Store) try(ctx context.Context, device, path string) error {
	if s.Check == nil {
		return errors.New("there is no way to try it")
	}
	if err := s.Check(ctx, device, path); err != nil {
		return fmt.Errorf("%w: trying it: %w", ErrRefused, err)
	}
	return nil
}

// turn makes one version the current one and another the previous one.
func (s *Store) turn(dir, current, previous string) error {
	s.at("previous")
	if previous != "" && previous != current {
		if err := replace(dir, previousLink, previous); err != nil {
			return err
		}
	}
	s.at("current")
	if err := replace(dir, currentLink, current); err != nil {
		return err
	}
	s.at("turned")
	return nil
}

// replace makes a link lead elsewhere, in one step.
func replace(dir, name, target string) error {
	tmp := filepath.Join(dir, incoming+"link")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("turning %s over: %w", name, err)
	}
	if err := os.Symlink(target, tmp); err != nil {
		return fmt.Errorf("turning %s over: %w", name, err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("turning %s over: %w", name, err)
	}
	return record.SyncDir(dir)
}
