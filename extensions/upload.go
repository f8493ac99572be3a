package extensions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"onebit/extensions/abi"
	"onebit/extensions/module"
	"onebit/extensions/payload"
)

const (
	maxModules   = 256
	maxManifest  = 64 << 10
	maxSignature = 4 << 10
	maxAssets    = 64
)

// Upload is a module on its way in. Its parts may come in any order; whoever made it closes it.
type Upload struct {
	m         *Manager
	module    *staged
	assets    map[string]*staged
	left      int64 // bytes that assets may still have
	manifest  []byte
	signature string
	config    json.RawMessage
}

// Receive begins an upload.
func (m *Manager) Receive() *Upload {
	return &Upload{m: m, assets: map[string]*staged{}, left: int64(abi.Classifier.Limits().Assets)}
}

// Close takes away what was not kept.
func (u *Upload) Close() {
	if u.module != nil {
		u.module.drop()
	}
	for _, a := range u.assets {
		a.drop()
	}
}

// Module takes the module's bytes, which must have the given SHA-256.
func (u *Upload) Module(r io.Reader, sha256 string) (err error) {
	if u.module != nil {
		return refused("twice", "there are two modules in one upload")
	}
	if len(sha256) != 64 {
		return refused("hash_missing", "say the module's SHA-256 in 64 hexadecimal digits, so that nothing is lost on the way")
	}
	u.module, err = u.m.files.stage(r, int64(max(abi.Policy.Limits().Module, abi.Classifier.Limits().Module)))
	if err != nil {
		return err
	}
	if !strings.EqualFold(u.module.hash, sha256) {
		return refused("hash_wrong", "what came has the SHA-256 %s, and %s was announced", u.module.hash, strings.ToLower(sha256))
	}
	return nil
}

// Asset takes a file that a classifier reads before its snapshot.
func (u *Upload) Asset(name string, r io.Reader) error {
	if name == "" || len(name) > 128 || strings.ContainsAny(name, "/\\\x00") {
		return refused("asset_name", "an asset's name has 1 to 128 characters and no slash")
	}
	if u.assets[name] != nil {
		return refused("twice", "there are two assets %q", name)
	}
	if len(u.assets) == maxAssets {
		return refused("too_many", "at most %d assets", maxAssets)
	}
	s, err := u.m.files.stage(r, u.left)
	if err != nil {
		return err
	}
	u.assets[name] = s
	u.left -= s.size
	return nil
}

// Manifest takes the manifest; a module may bring its own instead, in a custom section.
func (u *Upload) Manifest(b []byte) { u.manifest = b }

// Signature takes a signature in minisign's form.
func (u *Upload) Signature(text string) { u.signature = text }

// Config takes the configuration that the dry run is made with.
func (u *Upload) Config(b json.RawMessage) { u.config = b }

// Add judges an upload and keeps it. Bytes that are here already are judged again, under the policy of the moment.
func (m *Manager) Add(ctx context.Context, who Who, u *Upload) (Module, error) {
	select {
	case m.uploading <- struct{}{}:
		defer func() { <-m.uploading }()
	case <-ctx.Done():
		return Module{}, context.Cause(ctx)
	}
	mod, err := m.add(ctx, who, u)
	if err == nil {
		return mod, nil
	}
	e := Event{Action: "refuse", Detail: clip([]byte(err.Error()))}
	if u.module != nil {
		e.Module = u.module.hash
	}
	if _, ok := errors.AsType[*RefusedError](err); ok {
		if lerr := m.cfg.Records.Change(context.WithoutCancel(ctx), who, Change{Event: e}); lerr != nil {
			return Module{}, errors.Join(err, lerr)
		}
	}
	return Module{}, err
}

func (m *Manager) add(ctx context.Context, who Who, u *Upload) (Module, error) {
	if u.module == nil {
		return Module{}, refused("module_missing", "there is no module in the upload")
	}
	bytes, err := readStaged(u.module)
	if err != nil {
		return Module{}, err
	}
	mod, err := m.judge(u, bytes)
	if err != nil {
		return Module{}, err
	}
	fresh, err := m.store(ctx, u)
	if err != nil {
		return Module{}, fmt.Errorf("keeping the module: %w", err)
	}
	if mod.Report, err = m.try(ctx, mod, Choice{Module: mod.SHA256, Config: mod.Config, Capabilities: granted(m.cfg.Policy(), mod.Manifest, nil)}); err == nil {
		err = m.enter(ctx, who, mod)
	}
	if err != nil {
		m.changing.Lock()
		defer m.changing.Unlock()
		m.clear(context.WithoutCancel(ctx), fresh)
		return Module{}, err
	}
	m.cfg.Log.Info("a module is ready", "module", mod.Manifest.Name, "version", mod.Manifest.Version, "sha", short(mod.SHA256), "units", mod.Report.Units)
	return mod, nil
}

func readStaged(s *staged) ([]byte, error) {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(s.file)
}

// judge checks what can be checked without running anything.
func (m *Manager) judge(u *Upload, bytes []byte) (Module, error) {
	mod := Module{SHA256: u.module.hash, Size: u.module.size, Signature: u.signature, Config: u.config}
	text := u.manifest
	if text == nil {
		own, ok := payload.ManifestOf(bytes)
		if !ok {
			return mod, refused("manifest_missing", "there is no manifest: send one along, or put it into the custom section %s", abi.ManifestSection)
		}
		text = own
	}
	if len(text) > maxManifest || len(u.signature) > maxSignature {
		return mod, refused("too_large", "a manifest has at most %d bytes, a signature %d", maxManifest, maxSignature)
	}
	var err error
	if mod.Manifest, err = payload.ReadManifest(text); err != nil {
		return mod, refused("manifest", "%v", err)
	}
	policy, l := m.cfg.Policy(), limits(mod.Manifest)
	for name, a := range u.assets {
		mod.Assets = append(mod.Assets, Asset{Name: name, SHA256: a.hash, Size: a.size})
		if l.Assets -= int(a.size); l.Assets < 0 {
			return mod, refused("too_large", "the assets have more than %d bytes together; this kind of module may bring no more", limits(mod.Manifest).Assets)
		}
	}
	slices.SortFunc(mod.Assets, func(a, b Asset) int { return strings.Compare(a.Name, b.Name) })
	structure := module.Default()
	structure.Bytes, structure.Code, structure.Pages = l.Module, l.Module, l.Memory
	p, err := module.Parse(bytes, structure)
	if err == nil {
		may := granted(policy, mod.Manifest, nil)
		err = p.Guest(func(c abi.Capability) bool { return slices.Contains(may, c) })
	}
	if err != nil {
		return mod, refused("module", "%v", err)
	}
	wants := functionOf(mod.Manifest.Kind)
	if !slices.ContainsFunc(p.Exports, func(e module.Exported) bool { return e.Name == wants }) {
		return mod, refused("module", "a %s exports %s, this module does not", mod.Manifest.Kind, wants)
	}
	mod.Takes = slices.ContainsFunc(p.Exports, func(e module.Exported) bool { return e.Name == abi.Configure })
	if len(mod.Config) > 0 {
		if err := mod.checkConfig(mod.Config); err != nil {
			return mod, err
		}
	}
	mod.Signer, err = verify(policy, mod.Manifest, bytes, u.signature)
	return mod, err
}

// file names a file.
type file struct{ what, hash string }

// filesOf are a module's.
func (m Module) files() []file {
	all := []file{{aModule, m.SHA256}}
	for _, a := range m.Assets {
		all = append(all, file{anAsset, a.SHA256})
	}
	return all
}

// store gives the files of an upload their names and returns those that were not there before.
func (m *Manager) store(ctx context.Context, u *Upload) (fresh []file, err error) {
	put := func(what string, s *staged) {
		if _, rerr := m.files.read(what, s.hash); err != nil || rerr == nil {
			return
		}
		if err = m.vault(ctx, s); err == nil {
			err = m.files.keep(what, s)
		}
		if err == nil {
			fresh = append(fresh, file{what, s.hash})
		}
	}
	put(aModule, u.module)
	for _, a := range u.assets {
		put(anAsset, a)
	}
	if err != nil {
		m.changing.Lock()
		defer m.changing.Unlock()
		m.clear(context.WithoutCancel(ctx), fresh)
	}
	return fresh, err
}

// vault keeps a second copy of a staged file.
func (m *Manager) vault(ctx context.Context, s *staged) error {
	if m.cfg.Vault == nil {
		return nil
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := m.cfg.Vault.Keep(ctx, s.file)
	return err
}

// read returns the bytes of a module's file. One that is lost or damaged is put back from the second copy.
func (m *Manager) read(ctx context.Context, f file) ([]byte, error) {
	b, err := m.files.read(f.what, f.hash)
	if err == nil || m.cfg.Vault == nil {
		return b, err
	}
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(m.cfg.Vault.Fetch(ctx, f.hash, w)) }()
	s, ferr := m.files.stage(r, int64(abi.Classifier.Limits().Assets))
	_ = r.Close() // nobody reads on
	if ferr != nil {
		return nil, fmt.Errorf("%w; nor is it in the store: %w", err, ferr)
	}
	defer s.drop()
	if s.hash != f.hash {
		return nil, err
	}
	if kerr := m.files.keep(f.what, s); kerr != nil {
		return nil, errors.Join(err, kerr)
	}
	m.cfg.Log.Warn("put the file of a module back from the store", "why", err)
	return m.files.read(f.what, f.hash)
}

// clear removes files that no module here has. The lock changing is held.
func (m *Manager) clear(ctx context.Context, all []file) {
	for _, f := range all {
		if m.holds(f) {
			continue
		}
		err := m.files.remove(f.what, f.hash)
		if m.cfg.Vault != nil {
			err = errors.Join(err, m.cfg.Vault.Drop(ctx, f.hash))
		}
		if f.what == aModule && err == nil {
			err = m.cfg.Runner.Forget(f.hash)
		}
		if err != nil {
			m.cfg.Log.Warn("removing the file of a module", "error", err)
		}
	}
}

// holds tells whether a module here has a file. The lock changing is held.
func (m *Manager) holds(f file) bool {
	for _, mod := range m.modules {
		if slices.Contains(mod.files(), f) {
			return true
		}
	}
	return false
}

// try compiles a module and runs it dry with a configuration.
func (m *Manager) try(ctx context.Context, mod Module, c Choice) (Report, error) {
	j, err := m.job(ctx, mod, c)
	if err != nil {
		return Report{}, err
	}
	if err := m.cfg.Runner.Prepare(ctx, j); err != nil {
		return Report{}, refusal(ctx, "compile", err)
	}
	patient := j
	patient.Limits.Deadline *= patience
	w, err := m.cfg.Runner.Start(ctx, patient)
	if err != nil {
		return Report{}, refusal(ctx, "setup", err)
	}
	r, err := m.dryRun(ctx, w, j)
	if cerr := w.Close(); cerr != nil {
		m.cfg.Log.Warn("ending a module after its dry run", "error", cerr)
	}
	if err != nil {
		return r, refusal(ctx, "dry_run", err)
	}
	return r, nil
}

// refusal says that an error is a module's own doing, unless whoever asked has gone.
func refusal(ctx context.Context, code string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ok := errors.AsType[*RefusedError](err); ok {
		return err
	}
	return refused(code, "%v", err)
}

// enter records a module.
func (m *Manager) enter(ctx context.Context, who Who, mod Module) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	old, known := m.modules[mod.SHA256]
	if !known && len(m.modules) >= maxModules {
		return fmt.Errorf("%w: there are %d modules; delete one first", ErrConflict, len(m.modules))
	}
	mod.By, mod.Added = who.Person, m.cfg.Now().UTC()
	if known {
		mod.By, mod.Added = old.By, old.Added
	}
	e := Event{Action: "upload", Module: mod.SHA256, Detail: mod.Manifest.Name + " " + mod.Manifest.Version}
	if err := m.cfg.Records.Change(ctx, who, Change{Event: e, Put: &mod}); err != nil {
		return err
	}
	m.modules[mod.SHA256] = mod
	m.publish()
	return nil
}

// Delete takes a module off the box. What is bound somewhere, or what an activation would go back to, is not deleted.
func (m *Manager) Delete(ctx context.Context, who Who, ref string) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	mod, err := m.named(ref)
	if err != nil {
		return err
	}
	last := true
	for _, other := range m.modules {
		last = last && (other.SHA256 == mod.SHA256 || other.Manifest.Name != mod.Manifest.Name)
	}
	bindings := map[string]Binding{}
	for name, b := range m.bindings {
		for stage, c := range b.choices() {
			if c.Module != mod.SHA256 {
				continue
			}
			if stage != "previous" {
				return fmt.Errorf("%w: the module is %s in the binding %q; activate another there, or take the binding away", ErrConflict, stage, name)
			}
			b.Previous = nil
			bindings[name] = b
		}
	}
	for name, b := range bindings {
		e := Event{Action: "forget", Module: mod.SHA256, Binding: name, Detail: "there is nothing to go back to any more"}
		if err := m.cfg.Records.Change(ctx, who, Change{Event: e, Bind: &b}); err != nil {
			return err
		}
		m.bindings[name] = b
	}
	e := Event{Action: "delete", Module: mod.SHA256, Detail: mod.Manifest.Name + " " + mod.Manifest.Version}
	if err := m.cfg.Records.Change(ctx, who, Change{Event: e, Delete: &mod, Values: last}); err != nil {
		return err
	}
	delete(m.modules, mod.SHA256)
	if last {
		m.shelves.drop(mod.Manifest.Name)
	}
	m.rebuild(ctx, nil)
	m.clear(ctx, mod.files())
	return nil
}

// named finds a module by its SHA-256, the beginning of it, NAME@VERSION, or a name, of which the latest is meant. The lock
// changing is held.
func (m *Manager) named(ref string) (Module, error) {
	if mod, ok := m.modules[ref]; ok {
		return mod, nil
	}
	var found []Module
	var latest Module
	for _, mod := range m.modules {
		mf := mod.Manifest
		switch {
		case len(ref) >= 6 && strings.HasPrefix(mod.SHA256, strings.ToLower(ref)) || ref == mf.Name+"@"+mf.Version || ref == mf.Name+"@"+short(mod.SHA256):
			found = append(found, mod)
		case ref == mf.Name && !latest.Added.After(mod.Added):
			latest = mod
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Module{}, fmt.Errorf("%w: %d modules are called %q; give the SHA-256", ErrConflict, len(found), ref)
	case latest.SHA256 != "":
		return latest, nil
	}
	return Module{}, fmt.Errorf("%w: %q", ErrNotFound, ref)
}
