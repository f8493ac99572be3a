// Package extensions keeps the modules that users upload and asks them where conversations run. A module goes from upload
// over checks, compilation and a dry run to ready; a binding takes it from there over shadow and canary to active, and back.
// Whatever a module does, Decide answers: a module that fails, is slow or says nothing leaves the decision to the
// default policy, visibly.
//
// Modules run in processes of their own (package worker), but for the built-in policy, whose source is part of the program; this
// package never sees WebAssembly run. What survives a restart
// goes through Records, and the bytes of modules lie in files named after their hash.
package extensions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/laya/scorer"
)

// Errors that callers branch on.
var (
	ErrNotFound = errors.New("there is no such module or binding")
	ErrConflict = errors.New("this is not possible at the moment")
)

// RefusedError says why a module, or what is to be done with one, is refused.
type RefusedError struct {
	Code   string // a word for programs
	Reason string
}

func (e *RefusedError) Error() string { return e.Reason }

func refused(code, format string, args ...any) error {
	return &RefusedError{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// Records is what survives a restart.
type Records interface {
	Load(ctx context.Context) ([]Module, []Binding, error)
	// Change writes what it names, with its event, or nothing.
	Change(ctx context.Context, who Who, c Change) error
	Events(ctx context.Context, after int64, limit int) ([]Event, error)
	// Values returns what modules of a name keep for a tenant, without what has expired.
	Values(ctx context.Context, module, tenant string) ([]Value, error)
	PutValues(ctx context.Context, values []Value) error
}

// Change is one step of what Records holds.
type Change struct {
	Event  Event
	Put    *Module
	Delete *Module
	Values bool // with Delete: what modules of this name keep goes too
	Bind   *Binding
	Unbind string // a binding's name
}

// Vault holds a second copy of the files of modules, where copies of the box's state are made from.
type Vault interface {
	Keep(ctx context.Context, r io.Reader) (hash string, err error)
	Fetch(ctx context.Context, hash string, w io.Writer) error
	Drop(ctx context.Context, hash string) error
}

// Value is what a module keeps under a key.
type Value struct {
	Module, Tenant, Key string
	Value               []byte    // nil deletes it
	Expires             time.Time // zero: never
}

// Runner runs modules.
type Runner interface {
	// Prepare judges a module's structure, rewrites it and compiles it, elsewhere. The error says what is wrong with it.
	Prepare(ctx context.Context, j Job) error
	// Start returns once the module can be called, or says why it cannot be set up.
	Start(ctx context.Context, j Job) (Worker, error)
	// Forget removes what Prepare has made of a module, of which none runs.
	Forget(sha256 string) error
}

// Job is one module with all that is set before its first call.
type Job struct {
	SHA256   string
	Path     string // of its file: Dir/modules/SHA256.wasm
	Manifest abi.Manifest
	Limits   abi.Limits
	Granted  []abi.Capability
	Setup    host.Setup
}

// Worker is a running module. Its methods may be called at the same time.
type Worker interface {
	// Call fails with a *host.CallError, which ErrWaited may wrap, or with ErrFull.
	Call(ctx context.Context, c host.Call) (host.Result, error)
	// Gone tells whether it will answer no call any more, though nobody closed it.
	Gone() bool
	// Close ends it. No call is running.
	Close() error
}

// ErrFull says that too many calls wait for a module.
var ErrFull = errors.New("too many calls wait for the module")

// ErrWaited says that a call never reached the module: others were before it, or its process was on the way.
var ErrWaited = errors.New("the module did not get the call in time")

// Policy is what the operator says about all modules.
type Policy struct {
	Signatures   string           // "off", "required" or "pinned"
	Trusted      []string         // minisign public keys; with "pinned", NAME=KEY
	Capabilities []abi.Capability // that may be granted
	Headers      []string         // of requests, that modules may see
	Params       []string         // of requests, that modules may set; see Bounds
}

// Config is what a Manager works with. All but Vault, Services, Scorer and Kept must be given.
type Config struct {
	Dir      string // made when missing
	Records  Records
	Runner   Runner
	Policy   func() Policy // as it is at the moment
	Vault    Vault         // nil: a file that is lost is lost
	Services Services
	Scorer   func() scorer.Scorer // classifies where no module is bound for it; nil, or a nil one: nobody does
	Kept     Conversations        // where conversations are; nil: a restart forgets
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// Services is what the box does for modules; a nil one is unavailable.
type Services struct {
	Tokens func(ctx context.Context, text string) (int, error)
	Embed  func(ctx context.Context, text string) ([]float32, error)
	Decide func(ctx context.Context, text string, criteria map[string]string) (choice string, confidence float64, scores map[string]float64, err error)
}

// Manager keeps modules and asks them. All methods may be called at the same time.
type Manager struct {
	cfg   Config
	files files

	uploading chan struct{} // one upload is judged at a time
	changing  sync.Mutex    // one change of modules and bindings at a time
	modules   map[string]Module
	bindings  map[string]Binding
	running   map[string]*generation // by key; changing guards it

	closed bool // changing guards it
	ending sync.WaitGroup

	table    atomic.Pointer[table]
	kept     *memory
	later    later
	recorded recorder
	shelves  shelves
	metrics  counters
	alarms   chan alarm
	shadows  shadows
}

// New returns a Manager. It starts nothing.
func New(cfg Config) (*Manager, error) {
	if cfg.Dir == "" || cfg.Records == nil || cfg.Runner == nil || cfg.Policy == nil || cfg.Log == nil {
		return nil, errors.New("extensions need a directory, records, a runner, a policy and a log")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Manager{
		cfg: cfg, files: files{cfg.Dir}, uploading: make(chan struct{}, 1), modules: map[string]Module{}, bindings: map[string]Binding{},
		running: map[string]*generation{}, kept: newMemory(cfg.Kept), alarms: make(chan alarm, 16),
	}
	m.shelves.records, m.shelves.now = cfg.Records, cfg.Now
	m.shadows.room = make(chan struct{}, maxShadows)
	m.table.Store(&table{})
	return m, nil
}

// Start loads what is recorded and brings up what is bound. It returns when all of it runs or is known not to: a module that
// does not come up is a problem of its binding, never an error.
func (m *Manager) Start(ctx context.Context) error {
	if err := m.files.make(); err != nil {
		return fmt.Errorf("making the directory of extensions: %w", err)
	}
	m.files.sweep()
	modules, bindings, err := m.cfg.Records.Load(ctx)
	if err != nil {
		return fmt.Errorf("reading the extensions: %w", err)
	}
	m.changing.Lock()
	defer m.changing.Unlock()
	for _, one := range modules {
		m.modules[one.SHA256] = one
	}
	for _, b := range bindings {
		m.bindings[b.Name] = b
	}
	m.rebuild(ctx, nil)
	return nil
}

// writeEvery is how long what modules keep may be in memory alone.
const writeEvery = 200 * time.Millisecond

// Run does what is due in the background: it writes what modules keep, and goes back from modules that do worse than their
// guard allows. It returns nil when ctx ends, with everything written and every module ended.
func (m *Manager) Run(ctx context.Context) error {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			m.close(context.WithoutCancel(ctx))
			return nil
		case <-tick.C:
			m.later.flush(m, false)
			if err := m.shelves.flush(ctx); err != nil && ctx.Err() == nil {
				m.cfg.Log.Error("writing what extensions keep", "error", err)
			}
		case a := <-m.alarms:
			m.back(ctx, a)
		}
	}
}

// close ends everything.
func (m *Manager) close(ctx context.Context) {
	m.changing.Lock()
	old := m.running
	m.running = map[string]*generation{}
	m.closed = true
	m.table.Store(&table{})
	m.changing.Unlock()
	m.shadows.wait()
	for _, g := range old {
		g.retire()
	}
	m.ending.Wait()
	m.later.flush(m, true)
	if err := m.shelves.flush(ctx); err != nil {
		m.cfg.Log.Error("writing what extensions keep", "error", err)
	}
}
