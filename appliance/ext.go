package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onebit/appliance/record"
	"onebit/extensions/abi"
	"onebit/extensions/guest"
	"onebit/extensions/payload"
	"onebit/extensions/tck"
)

const extUsage = `usage: 1bit ext new LANGUAGE DIR
       1bit ext check FILE [options]
       1bit ext run FILE --request FILE | --prompt TEXT [options]
       1bit ext test FILE [options]

Modules that decide where conversations run. These commands need no box.

new writes a first module in go, c, rust or assemblyscript: source, SDK, manifest, Makefile.
check says whether a box would take a module, what to do if not, and what it used of its budget.
run asks it once: the decision goes to standard output, what it used and its log to standard error.
test asks for the samples of its manifest and for inputs that were made to break it, each twice.

  --manifest FILE    what the module is (in the module itself, else FILE.json for FILE.wasm)
  --config FILE      the operator's JSON
  --asset NAME=FILE  a file beside the module; may be repeated
  --request FILE     a request as extensions/ABI.md describes it; - for standard input
  --prompt TEXT      a message of a user, with two candidates, small and large
  --classify         run: ask the module to classify, though it is a policy
`

// ext is `1bit ext`.
func (p program) ext(ctx context.Context, args []string) int {
	return p.runActs(ctx, "ext", extUsage+extServerUsage, extActs(), args)
}

// extActs are the words of the command.
func extActs() map[string]act {
	acts := map[string]act{"new": newExt, "check": checkExt, "run": runExt, "test": testExt}
	maps.Copy(acts, extServerActs())
	return acts
}

// newExt is `1bit ext new`.
func newExt(_ context.Context, p program, args []string) error {
	c := newCommandLine("new")
	if err := c.parse(args, 2, 2); err != nil {
		return usageError{err}
	}
	dir, err := filepath.Abs(c.words[1])
	if err != nil {
		return err
	}
	name := filepath.Base(dir)
	if _, err := payload.ReadManifest(fmt.Appendf(nil, `{"name":%q,"version":"0","abi":1,"kind":"policy"}`, name)); err != nil {
		return fmt.Errorf("the folder names the module: %w", err)
	}
	list, err := guest.Files(c.words[0], name)
	if err != nil {
		return usageError{err}
	}
	if old, err := os.ReadDir(dir); err == nil && len(old) > 0 {
		return fmt.Errorf("%s is not empty", c.words[1])
	}
	for file, b := range list {
		to := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.stdout, "%s has a first module: make builds %s.wasm there, make test tries it; its README.md says more\n", c.words[1], name)
	return nil
}

// extFile is a module on disk, as options name it.
type extFile struct {
	*commandLine
	manifest, config, request, prompt string
	assets                            map[string]string
	classify                          bool
}

func newExtFile(name string) *extFile {
	f := &extFile{commandLine: newCommandLine(name), assets: map[string]string{}}
	f.StringVar(&f.manifest, "manifest", "", "")
	f.StringVar(&f.config, "config", "", "")
	f.Func("asset", "", func(text string) error {
		name, file, ok := strings.Cut(text, "=")
		if !ok || name == "" || file == "" {
			return errors.New("write it as NAME=FILE")
		}
		f.assets[name] = file
		return nil
	})
	return f
}

// load takes the module in.
func (f *extFile) load(ctx context.Context, args []string) (*tck.Guest, tck.Module, error) {
	if err := f.parse(args, 1, 1); err != nil {
		return nil, tck.Module{}, usageError{err}
	}
	m, err := f.read()
	if err != nil {
		return nil, m, err
	}
	g, err := tck.Load(ctx, m)
	return g, m, err
}

// read reads what load needs.
func (f *extFile) read() (m tck.Module, err error) {
	if m.Code, err = readBounded(f.words[0], abi.Policy.Limits().Module); err != nil {
		return m, err
	}
	b, err := f.description(m.Code)
	if err != nil {
		return m, err
	}
	if m.Manifest, err = payload.ReadManifest(b); err != nil {
		return m, err
	}
	if f.config != "" {
		if m.Config, err = readWritten(f.config, abi.MaxConfig); err != nil {
			return m, err
		}
	}
	m.Assets = map[string][]byte{}
	for name, file := range f.assets {
		if m.Assets[name], err = readBounded(file, abi.Classifier.Limits().Assets); err != nil {
			return m, err
		}
	}
	return m, nil
}

// description finds the manifest.
func (f *extFile) description(code []byte) ([]byte, error) {
	if f.manifest != "" {
		return readWritten(f.manifest, payload.MaxManifest)
	}
	if b, ok := payload.ManifestOf(code); ok {
		return b, nil
	}
	beside := strings.TrimSuffix(f.words[0], ".wasm") + ".json"
	b, err := readWritten(beside, payload.MaxManifest)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the module has no manifest: write %s, or name one by --manifest; `1bit ext new` makes one to begin with", beside)
	}
	return b, err
}

// readWritten reads a file of at most so many bytes that somebody wrote.
func readWritten(path string, most int) ([]byte, error) {
	b, err := readBounded(path, most)
	if err != nil {
		return nil, err
	}
	if b, err = record.Text(b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// readBounded reads a file of at most so many bytes.
func readBounded(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return b, err
}

// checkExt is `1bit ext check`.
func checkExt(ctx context.Context, p program, args []string) error {
	f := newExtFile("check")
	g, m, err := f.load(ctx, args)
	if err != nil {
		return err
	}
	defer func() { _ = g.Close(ctx) }()
	p.describe(g, m)
	for _, name := range g.Functions() {
		q := tck.Question{Function: name, Request: tck.Request("What is the time in Oslo?"), Patience: patientExt}
		a, err := g.Ask(ctx, q)
		if err != nil {
			return fmt.Errorf("asked by %s: %w", name, err)
		}
		fmt.Fprintf(p.stdout, "%s, asked once\n", name)
		if err := p.spent(ctx, p.stdout, g, q, a); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.stdout, "a box would take it; `1bit ext test %s` tries it\n", f.words[0])
	return nil
}

// patientExt is how many times its wall clock a call may take here, where the machine may be busy with other things.
const patientExt = 40

// describe says what a module is.
func (p program) describe(g *tck.Guest, m tck.Module) {
	granted := "nothing"
	if len(m.Manifest.Capabilities) > 0 {
		granted = strings.Join(texts(m.Manifest.Capabilities), ", ")
	}
	setup := g.Setup()
	fmt.Fprintf(p.stdout, `%s %s, a %s with %s
  needs      %s
  module     %d of %d bytes; %d after the rewrite, compiled in %d ms
  setting up %d units, %d of %d pages
`, m.Manifest.Name, m.Manifest.Version, m.Manifest.Kind, strings.Join(g.Functions(), " and "), granted,
		len(m.Code), g.Limits.Module, g.Metered, g.Took.Milliseconds(), setup.Units, setup.Pages, g.Limits.Memory)
	p.lines(setup.Log)
}

func texts[T ~string](list []T) (out []string) {
	for _, s := range list {
		out = append(out, string(s))
	}
	return out
}

// chosen is the function to ask by.
func (f *extFile) chosen(g *tck.Guest) (string, error) {
	name := g.Function()
	if f.classify {
		name = abi.Classify
	}
	if !slices.Contains(g.Functions(), name) {
		return "", fmt.Errorf("it has no %s: it has %s", name, strings.Join(g.Functions(), " and "))
	}
	return name, nil
}
