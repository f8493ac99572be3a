package worker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"onebit/engine/sandbox"
	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/meter"
	"onebit/extensions/module"
	"onebit/extensions/payload"
)

// child is this process when it runs a module, or prepares one.
type child struct{ link *link }

// Child is what the sub-command Command does: args are what follows it, in and out the standard streams. It returns the
// exit status when the other side is gone, or when it has said that it cannot do what it should.
func Child(args []string, in, out *os.File) int {
	c := &child{newLink(inherited(in, out), maxFromBox)}
	var err error
	switch {
	case len(args) == 2 && args[0] == modeRun:
		var links int
		if links, err = strconv.Atoi(args[1]); err == nil && links > 0 {
			closeInherited(links - 1)
			err = c.run(links)
		}
	case len(args) == 1 && args[0] == modePrepare:
		closeInherited(0)
		err = c.prepare()
	default:
		fmt.Fprintln(os.Stderr, "this command is for 1bit itself")
		return 2
	}
	if err != nil {
		text, e := json.Marshal(failureOf(err))
		if e != nil || c.link.send(kindFailed, 0, time.Time{}, func(b []byte) []byte { return append(b, text...) }) != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return 1
	}
	return 0
}

// next waits for the next frame of the spec.
func (c *child) next() (frame, error) {
	return c.link.await(context.Background(), time.Time{})
}

// run serves calls until the box is gone: each instance those of its own link.
func (c *child) run(links int) error {
	s, blobs, assets, err := receive(c.next)
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(s.Memory)
	instances, err := load(s, blobs, assets, links)
	if err != nil {
		return err
	}
	if err := c.link.send(kindReady, 0, time.Time{}, nil); err != nil {
		return err
	}
	var group sync.WaitGroup
	for n, i := range instances {
		l := c.link
		if n > 0 {
			f := os.NewFile(uintptr(2+n), "link")
			l = newLink(inherited(f, f), maxFromBox)
		}
		group.Go(func() {
			for serveCall(l, i) == nil {
			}
		})
	}
	group.Wait()
	return nil
}

// load makes a module ready. The first seal leaves the module's own folder, the second nothing.
func load(s spec, blobs, assets map[string][]byte, count int) ([]*host.Instance, error) {
	if err := checkHash(s.SHA256); err != nil || s.Manifest == nil {
		return nil, errors.Join(err, errFrame)
	}
	folder := compiledPath(s.Dir, s.SHA256)
	if err := seal(sandbox.Seal{Read: []string{folder}}); err != nil {
		return nil, err
	}
	limits := s.Limits[s.Manifest.Kind]
	metered, err := readFile(meteredPath(s.Dir, s.SHA256), int64(host.Structure(limits).Metered().Bytes))
	if err != nil {
		return nil, fmt.Errorf("%w: reading it: %w", ErrUnprepared, err)
	}
	ctx := context.Background()
	m, err := host.Compile(ctx, host.Config{
		Metered: metered, Manifest: *s.Manifest, Limits: limits, Granted: s.Granted, Cache: filepath.Join(folder, codeDir),
	})
	if err != nil {
		return nil, fmt.Errorf("%w: loading it: %w", ErrUnprepared, err)
	}
	if err := seal(sandbox.Seal{Again: true}); err != nil {
		return nil, err
	}
	first, err := m.Instance(ctx, host.Setup{Config: blobs[blobConfig], Assets: assets, Warm: blobs[blobWarm]})
	if err != nil {
		return nil, err
	}
	all := []*host.Instance{first}
	for len(all) < count {
		i, err := first.Clone(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// serveCall serves one call, or the word that one is about to come.
func serveCall(l *link, i *host.Instance) error {
	f, err := l.await(context.Background(), time.Time{})
	if err != nil {
		return err
	}
	if f.kind == kindSoon && len(f.payload) == 0 {
		if s, ok := l.conn.(interface{ expect() }); ok {
			s.expect()
		}
		return nil
	}
	if f.kind != kindCall {
		return errFrame
	}
	w, err := readCall(f.payload)
	if err != nil {
		return err
	}
	a := &asker{link: l, id: f.id}
	call := host.Call{
		Function: abi.Classify, Request: w.request, Seed: w.seed, Services: a.services(w.now),
		Deadline: time.Now().Add(time.Duration(w.left)),
	}
	if w.route {
		call.Function = abi.Route
	}
	if w.texts {
		call.Text = a.text
	}
	i.Serve(context.Background(), call, func(result host.Result, failure error) { // the box need not wait for the reset
		o := outcome{result: result, metrics: a.metrics}
		if failed, ok := errors.AsType[*host.CallError](failure); ok {
			o.failed = failed
		} else if failure != nil {
			o.refused = failure.Error()
		}
		err = l.send(kindResult, f.id, time.Time{}, o.append)
	})
	return err
}

// prepare makes one module ready to be loaded.
func (c *child) prepare() error {
	s, blobs, _, err := receive(c.next)
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(s.Memory)
	if err := checkHash(s.SHA256); err != nil {
		return err
	}
	if err := seal(sandbox.Seal{Read: []string{ModulePath(s.Dir, s.SHA256)}, Write: []string{compiledPath(s.Dir, s.SHA256)}}); err != nil {
		return err
	}
	r, err := s.prepare(blobs[blobManifest])
	if err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err == nil && len(text) > maxReport {
		err = fmt.Errorf("a report of %d bytes", len(text))
	}
	if err != nil {
		return fmt.Errorf("writing a report: %w", err)
	}
	return c.link.send(kindReport, 0, time.Time{}, func(b []byte) []byte { return append(b, text...) })
}

// prepare checks, rewrites and compiles.
func (s *spec) prepare(beside []byte) (report, error) {
	most := 0
	for _, l := range s.Limits {
		most = max(most, l.Module)
	}
	b, err := readFile(ModulePath(s.Dir, s.SHA256), int64(most))
	if errors.Is(err, ErrTooLarge) {
		return report{}, refuse("module", err.Error(), "ask the operator for a larger limit, or leave out what is not needed")
	} else if err != nil {
		return report{}, fmt.Errorf("reading the module: %w", err)
	}
	if h := sha256.Sum256(b); hex.EncodeToString(h[:]) != s.SHA256 {
		return report{}, fmt.Errorf("the module on disk: %w", ErrHash)
	}
	text, manifest, err := manifestOf(b, beside)
	if err != nil {
		return report{}, err
	}
	r := report{SHA256: s.SHA256, Bytes: len(b), Manifest: text}
	limits, allowed := lowered(s.Limits, manifest), granted(manifest, s.Granted)
	structure := host.Structure(limits)
	m, err := module.Parse(b, structure)
	if err != nil {
		return report{}, err
	}
	if err := m.Guest(func(c abi.Capability) bool { return slices.Contains(allowed, c) }); err != nil {
		return report{}, err
	}
	metered, err := meter.Rewrite(b, structure)
	if err != nil {
		return report{}, err
	}
	r.Metered = len(metered)
	r.describe(m)
	return r, s.compile(host.Config{Metered: metered, Manifest: manifest, Limits: limits, Granted: allowed})
}

// manifestOf finds and reads a module's manifest.
func manifestOf(b, text []byte) ([]byte, abi.Manifest, error) {
	if text == nil {
		own, ok := payload.ManifestOf(b)
		if !ok {
			// a damaged module is told so, not that it lacks something
			if _, err := module.Parse(b, module.Default()); err != nil {
				return nil, abi.Manifest{}, err
			}
			return nil, abi.Manifest{}, refuse("manifest", "there is none", "upload one beside the module, or put it into the custom section "+abi.ManifestSection)
		}
		text = own
	}
	m, err := payload.ReadManifest(text)
	if e, ok := errors.AsType[*payload.Error](err); ok {
		reason := e.Reason
		if e.Path != "" {
			reason = e.Path + ": " + reason
		}
		return nil, m, refuse("manifest", reason, cmp.Or(e.Remedy, "write it as ABI.md says"))
	}
	return text, m, err
}

// describe lists what of the contract a module has.
func (r *report) describe(m *module.Module) {
	r.Imports, r.Exports = []Import{}, []string{}
	for _, i := range m.Imports {
		r.Imports = append(r.Imports, Import{i.Module, i.Name})
	}
	names := map[string]bool{}
	for _, e := range m.Exports {
		names[e.Name] = true
	}
	for _, f := range abi.Exports() {
		if names[f.Name] {
			r.Exports = append(r.Exports, f.Name)
		}
	}
}

// compile leaves the rewritten module and its code in the folder, and what other versions have left no more.
func (s *spec) compile(c host.Config) error {
	ctx := context.Background()
	c.Cache = filepath.Join(compiledPath(s.Dir, s.SHA256), codeDir)
	if err := sweep(s.Dir, s.SHA256); err != nil {
		return err
	}
	m, err := host.Compile(ctx, c)
	if err != nil {
		return err
	}
	if err := m.Close(ctx); err != nil {
		return err
	}
	path := meteredPath(s.Dir, s.SHA256)
	f, err := os.CreateTemp(filepath.Dir(path), unfinished)
	if err != nil {
		return fmt.Errorf("keeping the rewritten module: %w", err)
	}
	_, err = f.Write(c.Metered)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("keeping the rewritten module: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("keeping the rewritten module: %w", err)
	}
	return nil
}
