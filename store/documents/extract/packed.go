package extract

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// packed is a zip file that is read within the budget. Its names are looked up,
// never used as paths.
type packed struct {
	budget   Budget
	files    map[string]*zip.File
	expanded int64
}

func (b *builder) unpack(content []byte) (*packed, error) {
	if err := countEntries(content, b.budget.Parts); err != nil {
		return nil, err
	}
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, refuse(saveIt, "it is no whole packed file: %v", err)
	}
	if len(z.File) > b.budget.Parts {
		return nil, refuse("", "it has %d parts; %d are allowed", len(z.File), b.budget.Parts)
	}
	p := &packed{budget: b.budget, files: make(map[string]*zip.File, len(z.File))}
	for _, f := range z.File {
		if f.Flags&1 != 0 {
			return nil, refuse(unlock, "it is locked by a password")
		}
		p.files[strings.TrimPrefix(path.Clean("/"+f.Name), "/")] = f
	}
	return p, nil
}

// countEntries looks at the count in the directory's end before the directory is
// read into memory.
func countEntries(content []byte, most int) error {
	tail := content[max(0, len(content)-(1<<16+22)):]
	i := bytes.LastIndex(tail, []byte("PK\x05\x06"))
	if i < 0 || len(tail) < i+12 {
		return refuse(saveIt, "it is no whole packed file")
	}
	// 0xFFFF stands for more than that, or for a number elsewhere; the reader
	// then finds out.
	if n := int(tail[i+10]) | int(tail[i+11])<<8; n > most && n != 0xFFFF {
		return refuse("", "it has %d parts; %d are allowed", n, most)
	}
	return nil
}

func (p *packed) has(name string) bool { return p.files[name] != nil }

// read returns a part, unpacked.
func (p *packed) read(name string) ([]byte, error) {
	f := p.files[strings.TrimPrefix(path.Clean("/"+name), "/")]
	if f == nil {
		return nil, refuse(saveIt, "its part %q is missing", name)
	}
	r, err := f.Open()
	if err != nil {
		return nil, refuse(saveIt, "its part %q cannot be unpacked: %v", name, err)
	}
	defer r.Close()
	left := p.budget.Expanded - p.expanded
	ratio := max(1<<20, int64(f.CompressedSize64)*p.budget.Ratio)
	b, err := io.ReadAll(io.LimitReader(r, min(left, ratio)+1))
	p.expanded += int64(len(b))
	switch {
	case int64(len(b)) > ratio:
		return nil, refuse("", "its part %q unpacks to over %d times its size", name, p.budget.Ratio)
	case int64(len(b)) > left:
		return nil, refuse(splitIt, "it unpacks to more than %d MiB", p.budget.Expanded>>20)
	case err != nil:
		return nil, refuse(saveIt, "its part %q is damaged: %v", name, err)
	}
	return b, nil
}

// optional is read, with nothing where there is no such part.
func (p *packed) optional(name string) ([]byte, error) {
	if !p.has(name) {
		return nil, nil
	}
	return p.read(name)
}

// resolve returns the name of a part that another part names.
func resolve(from, target string) string {
	if strings.HasPrefix(target, "/") {
		return strings.TrimPrefix(path.Clean(target), "/")
	}
	return strings.TrimPrefix(path.Clean("/"+path.Join(path.Dir(from), target)), "/")
}

func inPart(name string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("part %q: %w", name, err)
}
