package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"onebit/appliance/record"
	"onebit/engine/gguf"
)

// Puller obtains models.
type Puller struct {
	Library  Library
	Hub      Hub
	Pip      []string                         // the command that runs pip; nil for python3 -m pip
	Space    func(dir string) (uint64, error) // bytes free where a folder is, or would be; nil does not ask
	Progress Progress                         // may be nil
	Note     func(string)                     // told what is worth knowing; may be nil

	Tries  int                                        // in a row that bring nothing; default 6
	Window time.Duration                              // in which 64 KiB must come, or the server counts as gone; default 1 min
	Pause  func(context.Context, time.Duration) error // waits between tries; nil for what it says
}

// Want is what is to be pulled.
type Want struct {
	Reference
	Include string // a pattern for a repository's files, in place of a quantisation
	Name    string // under which the model is kept; empty takes the file's
	SHA256  string // of the file that a URL names; empty when it is not known
}

// errBusy says that another process is at work on the same model.
var errBusy = errors.New("another pull is at work on it")

// job is one file to obtain.
type job struct {
	url  string
	file File // Size and SHA256 as far as they are known before
}

// Pull obtains a model and returns it. What is here already, also in another program's folder, is not obtained again.
// The errors wrap ErrDamaged when the bytes are wrong; a *SpaceError says that the disk is too small.
func (p *Puller) Pull(ctx context.Context, w Want) (Model, error) {
	if w.Name != "" {
		if err := CheckName(w.Name); err != nil {
			return Model{}, err
		}
	}
	switch {
	case w.Entry != nil && w.Entry.SHA256 != "":
		return p.entry(ctx, *w.Entry)
	case w.Entry != nil:
		e := w.Entry
		w.Repo, w.Revision, w.Include, w.Name = e.Hub.Repo, e.Hub.Revision, e.Hub.Path, e.Name
	}
	if w.Repo != "" {
		return p.repo(ctx, w)
	}
	return p.url(ctx, w)
}

func (p *Puller) note(format string, args ...any) {
	if p.Note != nil {
		p.Note(fmt.Sprintf(format, args...))
	}
}

// entry obtains a file whose hash is known.
func (p *Puller) entry(ctx context.Context, e Entry) (Model, error) {
	m := Model{Name: e.Name, Source: "catalogue", Kind: Pulled, Files: []File{{Path: e.File, Size: e.Size, SHA256: e.SHA256}}}
	for _, root := range p.Library.Roots {
		c := Cache{Dir: root}
		if exists(c.Path(e)) && c.Verify(ctx, e, p.Progress) == nil {
			m.Dir = filepath.Dir(c.Path(e))
			return m, nil
		}
	}
	if there, ok := p.inPlace(ctx, m.Files); ok {
		return there, nil
	}
	c := Cache{Dir: p.Library.Roots[0]}
	f := NewFetcher(c)
	f.Hub, f.Progress, f.Note, f.Tries, f.Pause = p.Hub, p.Progress, p.Note, p.Tries, p.Pause
	if p.Pip != nil {
		f.Pip = p.Pip
	}
	m.Dir = filepath.Dir(c.Path(e))
	unlock, err := p.begin(m.Dir, e.Size-partialSize(c.Path(e)))
	if err != nil {
		return m, err
	}
	defer unlock()
	_, err = f.Fetch(ctx, e)
	if err == nil && e.Size == 0 {
		if info, err := os.Stat(m.Path()); err == nil {
			m.Files[0].Size = info.Size()
		}
	}
	return m, err
}

// partialSize is how much of a file is there already, in bytes.
func partialSize(path string) int64 {
	info, err := os.Stat(path + ".partial")
	if err != nil {
		return 0
	}
	return info.Size()
}

// repo obtains files of a hub repository.
func (p *Puller) repo(ctx context.Context, w Want) (Model, error) {
	r, err := p.Hub.Repo(ctx, w.Repo, w.Revision)
	if err != nil {
		return Model{}, err
	}
	chosen, err := Choose(r.Files, w.Quant, w.Include)
	if err != nil {
		return Model{}, fmt.Errorf("choosing from %s: %w", w.Repo, err)
	}
	m := Model{Name: w.Name, Source: w.Repo + "@" + r.Commit}
	if w.Entry != nil {
		m.Dir = Cache{Dir: p.Library.Roots[0]}.folder(*w.Entry)
	}
	var jobs []job
	for _, f := range chosen {
		at := f.Path
		if w.Include == "" {
			at = path.Base(at)
		}
		jobs = append(jobs, job{p.Hub.file(w.Repo, r.Commit, f.Path), File{at, f.Size, f.SHA256}})
	}
	return p.obtain(ctx, m, jobs)
}

// url obtains a file, or all parts of a split one, from a server that is no hub, or of which nothing more is known.
func (p *Puller) url(ctx context.Context, w Want) (Model, error) {
	u, err := url.Parse(w.URL)
	if err != nil {
		return Model{}, fmt.Errorf("%q is no URL", withoutQuery(w.URL))
	}
	if err := p.Hub.Client.CheckURL(u); err != nil {
		return Model{}, err
	}
	base := path.Base(u.Path)
	names, err := parts(base)
	if err != nil {
		return Model{}, err
	}
	if len(names) > 1 && w.SHA256 != "" {
		return Model{}, fmt.Errorf("%s is one of %d parts: one hash does not speak for all", base, len(names))
	}
	var jobs []job
	for _, name := range names {
		if err := local(name); err != nil {
			return Model{}, err
		}
		one := *u
		one.Path, one.RawPath = path.Join(path.Dir(u.Path), name), ""
		head, err := p.Hub.Head(ctx, one.String())
		if err != nil {
			return Model{}, err
		}
		if w.SHA256 != "" {
			head.SHA256 = w.SHA256
		}
		jobs = append(jobs, job{one.String(), File{name, head.Size, head.SHA256}})
	}
	return p.obtain(ctx, Model{Name: w.Name, Source: withoutQuery(w.URL)}, jobs)
}

// obtain downloads files into the model's folder and puts it on record.
func (p *Puller) obtain(ctx context.Context, m Model, jobs []job) (Model, error) {
	m.Kind, m.Added = Pulled, time.Now().UTC().Truncate(time.Second)
	missing, known := int64(0), true
	for _, j := range jobs {
		m.Files = append(m.Files, j.file)
		known = known && j.file.SHA256 != ""
	}
	if m.Name == "" {
		m.Name = stem(m.Files[0].Path)
	}
	if err := CheckName(m.Name); err != nil {
		return m, fmt.Errorf("%w; give one with --name", err)
	}
	if known {
		if there, ok := p.inPlace(ctx, m.Files); ok {
			return there, nil
		}
	}
	if m.Dir == "" {
		m.Dir = p.folder(jobs[0])
	}
	if old, err := p.Library.Find(m.Name); err == nil && old.Ours() && old.Dir != m.Dir {
		return m, fmt.Errorf("there is a model called %q: %s; give another --name, or remove it", m.Name, old.Path())
	}
	ready := make([]bool, len(jobs))
	for i, f := range m.Files {
		if m.Files[i], ready[i] = p.have(ctx, m, f); !ready[i] {
			missing += max(f.Size-partialSize(m.at(f)), 0)
		}
	}
	unlock, err := p.begin(m.Dir, missing)
	if err != nil {
		return m, err
	}
	defer unlock()
	for i, j := range jobs {
		if ready[i] {
			continue
		}
		if m.Files[i], err = p.one(ctx, m, m.Files[i], j.url); err != nil {
			return m, err
		}
	}
	if err := m.check(); err != nil {
		return m, err
	}
	return m, writeRecord(m.Dir, m)
}

// folder is where a model lies: named by the hash of its first file, or by where it came from when that is not known
// before it is here.
func (p *Puller) folder(first job) string {
	name := first.file.SHA256
	if name == "" {
		sum := sha256.Sum256([]byte(withoutQuery(first.url)))
		return filepath.Join(p.Library.Roots[0], "from-"+hex.EncodeToString(sum[:6]))
	}
	return filepath.Join(p.Library.Roots[0], name[:12])
}

// begin makes a folder that has room for so many bytes and keeps it for us.
func (p *Puller) begin(dir string, missing int64) (unlock func(), err error) {
	if err := tooNew(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the model's folder: %w", err)
	}
	if err := room(dir, missing, p.Space); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("keeping the model's folder: %w", err)
	}
	if err := record.Lock(f, errBusy); err != nil {
		f.Close()
		return nil, fmt.Errorf("keeping the model's folder %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

// have completes what is known of a file that is here and right.
func (p *Puller) have(ctx context.Context, m Model, f File) (File, bool) {
	info, err := os.Stat(m.at(f))
	if err != nil || (f.Size > 0 && info.Size() != f.Size) {
		return f, false
	}
	sum, err := hashFile(ctx, m.at(f), "checking "+path.Base(f.Path), info.Size(), p.Progress)
	if err != nil || (f.SHA256 != "" && sum != f.SHA256) {
		return f, false
	}
	return File{f.Path, info.Size(), sum}, true
}

// one obtains one file.
func (p *Puller) one(ctx context.Context, m Model, f File, address string) (File, error) {
	final := m.at(f)
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return f, fmt.Errorf("making the model's folder: %w", err)
	}
	isGGUF := strings.HasSuffix(f.Path, ".gguf")
	t := &transfer{
		client: p.Hub.Client, url: address, partial: final + ".partial", name: path.Base(f.Path), want: f.Size, sha256: f.SHA256,
		gguf: isGGUF, progress: p.Progress, note: p.Note, pause: p.Pause, tries: p.Tries, window: p.Window,
	}
	err := quietly(func() (err error) {
		f.SHA256, f.Size, err = t.run(ctx)
		return err
	})
	if err != nil {
		return f, err
	}
	if isGGUF {
		if err := CheckGGUF(t.partial); err != nil {
			os.Remove(t.partial)
			os.Remove(t.stateFile())
			return f, fmt.Errorf("%w; it was removed: %w", err, ErrDamaged)
		}
	}
	return f, place(t.partial, final)
}

// check opens the model as a loader would.
func (m Model) check() error {
	if !strings.HasSuffix(m.Files[0].Path, ".gguf") {
		return nil
	}
	f, err := gguf.Open(m.Path())
	if err != nil {
		return fmt.Errorf("reading %s: %w: %w", m.Path(), err, ErrDamaged)
	}
	return f.Close()
}

// inPlace looks for files in the folders of other programs, by their hashes.
func (p *Puller) inPlace(ctx context.Context, files []File) (Model, bool) {
	for _, place := range p.Library.Places {
		models, err := place.models()
		if err != nil {
			continue // a folder that cannot be read has nothing for us
		}
		for _, m := range models {
			if len(m.Files) < len(files) || !sameFiles(m.Files[:len(files)], files) {
				continue
			}
			if err := p.Library.Verify(ctx, m, p.Progress); err != nil {
				p.note("%v; not taking it from %s", err, m.Kind)
				continue
			}
			p.note("it is here already, in a folder of %s: %s", m.Kind, m.Path())
			return m, true
		}
	}
	return Model{}, false
}

func sameFiles(a, b []File) bool {
	for i := range a {
		if a[i].SHA256 == "" || a[i].SHA256 != b[i].SHA256 {
			return false
		}
	}
	return true
}
