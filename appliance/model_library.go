package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"onebit/appliance/catalog"
	"onebit/appliance/doctor"
	"onebit/appliance/egress"
	"onebit/engine/plan"
)

// library is the models of this machine: in the folders that ONEBIT_MODELS names, else in the user's cache, and in those
// of other programs.
func library() (catalog.Library, error) {
	l := catalog.Library{}
	for _, dir := range filepath.SplitList(os.Getenv("ONEBIT_MODELS")) {
		if dir != "" {
			l.Roots = append(l.Roots, dir)
		}
	}
	if l.Roots == nil {
		cache, err := catalog.UserCache()
		if err != nil {
			return l, err
		}
		l.Roots = []string{cache.Dir}
	}
	home, _ := os.UserHomeDir() // without one there is nothing to look for in it
	l.Places = catalog.PlacesFromEnv(os.Getenv, home)
	return l, nil
}

// hubToken returns the token for the hub: from a file, which may be named, or from the environment.
func hubToken(file string) (egress.Token, error) {
	if file == "" {
		file = os.Getenv("ONEBIT_HUB_TOKEN_FILE")
	}
	if file != "" {
		return egress.ReadToken(file)
	}
	return egress.NewToken(os.Getenv("HF_TOKEN")), nil
}

// pulling is what pull was asked for.
type pulling struct {
	model, fallback, include, name, to, sha256, token string
}

// pullModel obtains one model and prints its path on stdout; everything for people goes to stderr.
func pullModel(args []string, stdout, stderr io.Writer) int {
	var p pulling
	options := map[string]*string{
		"--fallback": &p.fallback, "--include": &p.include, "--name": &p.name, "--to": &p.to, "--sha256": &p.sha256, "--token-file": &p.token,
	}
	for len(args) > 0 {
		value, ok := options[args[0]]
		switch {
		case ok && len(args) > 1:
			*value, args = args[1], args[2:]
		case strings.HasPrefix(args[0], "-") || p.model != "":
			fmt.Fprintf(stderr, "1bit model pull: unexpected %q\n", args[0])
			return 2
		default:
			p.model, args = args[0], args[1:]
		}
	}
	if p.model == "" {
		fmt.Fprintf(stderr, "1bit model pull: the name of a model is needed; known are %s\n", catalog.Names())
		return 2
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	path, err := p.run(ctx, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "1bit model: %v\n", err)
		return 1
	}
	fmt.Fprintln(stdout, path)
	return 0
}

// run obtains the model, or the one to take in its place.
func (p pulling) run(ctx context.Context, stderr io.Writer) (string, error) {
	want := catalog.Want{Include: p.include, Name: p.name, SHA256: strings.ToLower(p.sha256)}
	var err error
	if want.Reference, err = catalog.ParseReference(p.model); err != nil {
		return "", err
	}
	other, ok := catalog.Find(p.fallback) // a mistake in a name is told, not covered by the other model
	if !ok && p.fallback != "" {
		return "", fmt.Errorf("no model is called %q; known are %s", p.fallback, catalog.Names())
	}
	puller, bar, err := p.puller(stderr)
	if err != nil {
		return "", err
	}
	m, err := puller.Pull(ctx, want)
	bar.end()
	if err != nil && p.fallback != "" && p.fallback != p.model && ctx.Err() == nil {
		fmt.Fprintf(stderr, "1bit model: %v\n1bit model: taking %s instead\n", err, p.fallback)
		m, err = puller.Pull(ctx, catalog.Want{Reference: catalog.Reference{Entry: &other}})
		bar.end()
	}
	if ctx.Err() != nil {
		return "", errors.New("stopped; what was downloaded is kept, run again to go on")
	}
	if err != nil {
		return "", err
	}
	if e := want.Entry; e != nil && len(e.With) > 0 {
		fmt.Fprintf(stderr, "1bit model: beside it go %s\n", strings.Join(e.With, ", "))
	}
	return m.Path(), nil
}

// puller returns what obtains models, with a bar that shows how far it is.
func (p pulling) puller(stderr io.Writer) (*catalog.Puller, *bar, error) {
	lib, err := library()
	if err != nil {
		return nil, nil, err
	}
	if p.to != "" {
		dir, err := filepath.Abs(p.to)
		if err != nil {
			return nil, nil, err
		}
		lib.Roots = append([]string{dir}, lib.Roots...)
	}
	token, err := hubToken(p.token)
	if err != nil {
		return nil, nil, err
	}
	hub, err := catalog.HubFromEnv(token)
	if err != nil {
		return nil, nil, err
	}
	bar := newBar(stderr)
	return &catalog.Puller{
		Library: lib, Hub: hub, Space: doctor.Space, Progress: bar.show,
		Note: func(s string) { bar.end(); fmt.Fprintf(stderr, "1bit model: %s\n", s) },
	}, bar, nil
}

// listed is a model for programs.
type listed struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Kind   string `json:"kind"`
	Source string `json:"source,omitempty"`
	Size   int64  `json:"size_bytes"`
	SHA256 string `json:"sha256,omitempty"`
}

// listModels prints what is here, and what of the catalogue is not.
func listModels(args []string, stdout, stderr io.Writer) error {
	lib, err := library()
	if err != nil {
		return err
	}
	models, errs := lib.Models()
	for _, err := range errs {
		fmt.Fprintf(stderr, "1bit model: %v\n", err)
	}
	here := map[string]bool{}
	out := []listed{}
	for _, m := range models {
		here[m.Name] = true
		out = append(out, listed{m.Name, m.Path(), m.Kind, m.Source, m.Size(), m.Files[0].SHA256})
	}
	if len(args) == 1 && args[0] == "--json" {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return e.Encode(out)
	}
	if len(args) > 0 {
		return fmt.Errorf("unexpected %q", args[0])
	}
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, m := range out {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.Name, gigabytes(m.Size), m.Kind, m.Path)
	}
	for _, e := range catalog.Entries() {
		if !here[e.Name] {
			fmt.Fprintf(t, "%s\t%s\tnot here\t%s; %s\n", e.Name, gigabytes(e.Bytes()), e.About, fits(e))
		}
	}
	return t.Flush()
}

// fits says which boxes a model of the catalogue fits into.
func fits(e catalog.Entry) string {
	if e.Bytes() == 0 {
		return e.Role
	}
	for _, box := range plan.Boxes() {
		if e.Fits(box, contextOfFits) {
			return e.Role + ", from a " + box.Name + " on"
		}
	}
	return e.Role + ", too large for a 128 GB box"
}

// gigabytes writes a size for people.
func gigabytes(n int64) string {
	switch {
	case n == 0:
		return "?"
	case n < 1e9:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

// showModel prints all that is known of one model.
func showModel(args []string, stdout, _ io.Writer) error {
	if len(args) != 1 {
		return errors.New("the name of one model is needed")
	}
	lib, err := library()
	if err != nil {
		return err
	}
	m, err := lib.Find(args[0])
	if e, ok := catalog.Find(args[0]); ok && err != nil {
		fmt.Fprintf(stdout, "%s: %s\nnot here: `1bit model pull %s` obtains it\nsize     %s\nlicence  %s\nfits     %s\n", e.Name, e.About, e.Name, gigabytes(e.Bytes()), e.License, fits(e))
		if len(e.With) > 0 {
			fmt.Fprintf(stdout, "with     %s\n", strings.Join(e.With, ", "))
		}
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "name     %s\nkind     %s\nsource   %s\npath     %s\n", m.Name, m.Kind, m.Source, m.Path())
	for _, f := range m.Files {
		fmt.Fprintf(stdout, "file     %s  %d bytes  sha256 %s\n", filepath.Base(f.Path), f.Size, f.SHA256)
	}
	fmt.Fprintln(stdout)
	return planFile(m.Path(), plan.Options{}, boxes(), stdout)
}

// verifyModels reads models and compares their hashes.
func verifyModels(args []string, stdout, stderr io.Writer) error {
	lib, err := library()
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	var models []catalog.Model
	if len(args) == 1 && args[0] == "--all" {
		models, _ = lib.Models() // what cannot be read is told by list
	} else {
		for _, name := range args {
			m, err := lib.Find(name)
			if err != nil {
				return err
			}
			models = append(models, m)
		}
	}
	if len(models) == 0 {
		return errors.New("the name of a model is needed, or --all")
	}
	bar := newBar(stderr)
	bad := 0
	for _, m := range models {
		err := lib.Verify(ctx, m, bar.show)
		bar.end()
		switch {
		case ctx.Err() != nil:
			return errors.New("stopped")
		case err != nil:
			bad++
			fmt.Fprintf(stdout, "%s: %v\n", m.Name, err)
		case m.Files[0].SHA256 == "":
			fmt.Fprintf(stdout, "%s: its header is sound; nobody has said its hash\n", m.Name)
		default:
			fmt.Fprintf(stdout, "%s: right\n", m.Name)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d models are not what they should be", bad, len(models))
	}
	return nil
}

// removeModels takes models away.
func removeModels(args []string, stdout, _ io.Writer) error {
	if len(args) == 0 {
		return errors.New("the name of a model is needed")
	}
	lib, err := library()
	if err != nil {
		return err
	}
	for _, name := range args {
		m, err := lib.Remove(name)
		if err != nil {
			return err
		}
		if m.Kind == catalog.Added {
			fmt.Fprintf(stdout, "%s is no longer listed; its file stays: %s\n", name, m.Path())
		} else {
			fmt.Fprintf(stdout, "removed %s (%s)\n", name, gigabytes(m.Size()))
		}
	}
	return nil
}

// addModel takes in a model where it lies.
func addModel(args []string, stdout, stderr io.Writer) error {
	c := newCommandLine("add")
	name := c.String("name", "", "")
	if err := c.parse(args, 0, 1); err != nil {
		return err
	}
	if len(c.words) == 0 {
		return errors.New("the name of a GGUF file is needed")
	}
	lib, err := library()
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	bar := newBar(stderr)
	m, err := lib.Add(ctx, c.words[0], *name, bar.show)
	bar.end()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %s\n", m.Name, m.Path())
	return nil
}
