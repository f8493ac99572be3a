// Package route chooses the backends of conversations for `1bit serve --laya` and says for `1bit route` what would be chosen: it
// reads policy files, finds the classifier that the command line and the environment mean, and runs the built-in modules
// without a box around them. How a decision is made is in package extensions; the same code decides in a box.
package route

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"onebit/extensions"
	"onebit/extensions/abi"
	"onebit/extensions/laya/built"
	"onebit/extensions/laya/scorer"
	"onebit/extensions/payload"
	"onebit/extensions/policy"
	"onebit/extensions/worker"
)

// Config is what a Router works with.
type Config struct {
	Program []string        // what starts this program's sub-command for modules
	Dir     string          // where modules lie, and what is compiled of them, for the next start; made when missing
	Policy  json.RawMessage // of ReadPolicy; nil for the built-in one
	Scorer  scorer.Scorer   // says the class; nil for the built-in module
	Log     *slog.Logger
}

// Router decides for conversations, once for each.
type Router struct {
	manager *extensions.Manager
	dir     string
	kept    *modules
}

// New makes a Router. It starts nothing.
func New(cfg Config) (*Router, error) {
	kept := &modules{bytes: map[string][]byte{}}
	if err := kept.add(extensions.PolicyBinding, policy.Module, policy.Manifest(), cfg.Policy); err != nil {
		return nil, err
	}
	say := func() scorer.Scorer { return cfg.Scorer }
	if cfg.Scorer == nil {
		say = nil
		if err := kept.add(extensions.ClassifierBinding, built.Module, built.Manifest(), nil); err != nil {
			return nil, err
		}
	}
	m, err := extensions.New(extensions.Config{
		Dir: cfg.Dir, Records: kept, Vault: kept, Log: cfg.Log, Scorer: say,
		Runner: extensions.Processes{Program: cfg.Program, Dir: cfg.Dir, Log: cfg.Log},
		Policy: func() extensions.Policy { return extensions.Policy{Signatures: "off"} },
	})
	return &Router{m, cfg.Dir, kept}, err
}

// Start brings the modules up. It returns an error when one does not run.
func (r *Router) Start(ctx context.Context) error {
	for hash, b := range r.kept.bytes {
		if _, err := worker.Add(r.dir, bytes.NewReader(b), int64(len(b)), hash); err != nil {
			return fmt.Errorf("writing a built-in module: %w", err)
		}
	}
	if err := r.manager.Start(ctx); err != nil {
		return err
	}
	for _, b := range r.manager.Status().Bindings {
		for _, s := range b.Seats {
			if s.Problem != "" {
				return fmt.Errorf("the built-in module for the %s does not run: %s", b.Name, s.Problem)
			}
		}
	}
	return nil
}

// Run does what is due in the background until ctx ends, and ends the modules.
func (r *Router) Run(ctx context.Context) error { return r.manager.Run(ctx) }

// Decides reports that there is always a policy.
func (r *Router) Decides() bool { return true }

// Decide chooses among the candidates; it always answers.
func (r *Router) Decide(ctx context.Context, in extensions.Input) extensions.Outcome {
	return r.manager.Decide(ctx, in)
}

// Settle notes what has served a request that was decided about.
func (r *Router) Settle(ctx context.Context, o extensions.Outcome, s extensions.Served) {
	r.manager.Settle(ctx, o, s)
}

// ModuleDir is where modules of a program without a box are compiled to: in the user's cache, or where there is none in a folder that
// clean removes.
func ModuleDir(cacheDir func() (string, error)) (dir string, clean func(), err error) {
	base, err := cacheDir()
	if err == nil {
		dir := filepath.Join(base, "1bit", "modules")
		if err = os.MkdirAll(dir, 0o700); err == nil {
			return dir, func() {}, nil
		}
	}
	if dir, err = os.MkdirTemp("", "1bit-modules-"); err != nil {
		return "", nil, fmt.Errorf("making a folder for modules: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// modules are the records of a manager that has the built-in modules alone, each bound from the beginning. Nothing is changed, and
// nothing that modules keep outlives them.
type modules struct {
	all      []extensions.Module
	bindings []extensions.Binding
	bytes    map[string][]byte
}

// add binds a module.
func (m *modules) add(binding string, module func() ([]byte, error), manifest []byte, config json.RawMessage) error {
	b, err := module()
	if err != nil {
		return err
	}
	parsed, err := payload.ReadManifest(manifest)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	hash := hex.EncodeToString(sum[:])
	m.bytes[hash] = b
	m.all = append(m.all, extensions.Module{SHA256: hash, Manifest: parsed, Size: int64(len(b)), Takes: parsed.Kind == abi.Policy, By: extensions.System().Person})
	m.bindings = append(m.bindings, extensions.Binding{
		Name: binding, Kind: parsed.Kind, OnError: extensions.FailOpen,
		Active: &extensions.Choice{Module: hash, Config: config, Capabilities: []abi.Capability{}, By: extensions.System().Person, Since: time.Now()},
	})
	return nil
}

var errFixed = errors.New("the built-in modules are not changed here")

// Load implements extensions.Records, as the others do.
func (m *modules) Load(context.Context) ([]extensions.Module, []extensions.Binding, error) {
	return m.all, m.bindings, nil
}

func (m *modules) Change(context.Context, extensions.Who, extensions.Change) error { return errFixed }

func (m *modules) Events(context.Context, int64, int) ([]extensions.Event, error) { return nil, nil }

func (m *modules) Values(context.Context, string, string) ([]extensions.Value, error) {
	return nil, nil
}

func (m *modules) PutValues(context.Context, []extensions.Value) error { return nil }

// Keep implements extensions.Vault, as the others do.
func (m *modules) Keep(context.Context, io.Reader) (string, error) { return "", errFixed }

func (m *modules) Fetch(_ context.Context, hash string, w io.Writer) error {
	b, ok := m.bytes[hash]
	if !ok {
		return extensions.ErrNotFound
	}
	_, err := w.Write(b)
	return err
}

func (m *modules) Drop(context.Context, string) error { return nil }
