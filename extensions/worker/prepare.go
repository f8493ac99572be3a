package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"onebit/engine/sandbox"
	"onebit/extensions/abi"
	"onebit/extensions/module"
	"onebit/extensions/payload"
)

// The limits of a child that prepares a module.
const (
	PrepareCPU    = 20 * time.Second
	PrepareWall   = 60 * time.Second
	PrepareMemory = 1 << 30 // bytes of private memory
	prepareNice   = 5       // answers go before it
)

const maxReport = 1 << 20

// PrepareConfig says which module to prepare, and for whom. The module has been added to Dir: see Add.
type PrepareConfig struct {
	Program  []string // see Config
	Dir      string
	SHA256   string
	Manifest []byte                  // the JSON that was uploaded beside the module; nil for the module's own section
	Limits   map[abi.Kind]abi.Limits // an absent kind has its defaults
	Allowed  []abi.Capability        // by the operator

	// Zero for the constants above; for tests.
	CPU, Wall time.Duration
	Memory    uint64
}

// Report is what is known of a module that was prepared.
type Report struct {
	SHA256   string
	Bytes    int // of the module
	Metered  int // of the rewritten module
	Imports  []Import
	Exports  []string // those of the contract that it has
	Manifest abi.Manifest
	Granted  []abi.Capability // what it asks for and the operator allows
	Limits   abi.Limits       // of its kind, lowered to what it asks for
	CPU      time.Duration    // processor time of the child
	Wall     time.Duration
}

// Import is an imported function.
type Import struct{ Module, Name string }

// Exhausted is which limit of its child a preparation reached.
type Exhausted string

// The limits.
const (
	ExhaustedCPU    Exhausted = "cpu"
	ExhaustedMemory Exhausted = "memory"
	ExhaustedWall   Exhausted = "wall"
)

// ExhaustedError says that preparing a module took more than it may.
type ExhaustedError struct {
	What  Exhausted
	Limit string
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("preparing the module took more than %s of %s; make its functions smaller", e.Limit, e.What)
}

// Prepare checks a module's structure and what it imports and exports, rewrites it, and compiles it into the cache, all in
// a child with limits. Errors: *module.RefusalError (section "manifest" for the manifest), *ExhaustedError, ctx's, or what
// happened to the child. Callers run one at a time, or few.
func Prepare(ctx context.Context, cfg PrepareConfig) (Report, error) {
	r, err := prepare(ctx, cfg)
	if err != nil {
		return Report{}, fmt.Errorf("preparing a module: %w", err)
	}
	return r, nil
}

func (cfg PrepareConfig) withDefaults() PrepareConfig {
	if cfg.CPU == 0 {
		cfg.CPU = PrepareCPU
	}
	if cfg.Wall == 0 {
		cfg.Wall = PrepareWall
	}
	if cfg.Memory == 0 {
		cfg.Memory = PrepareMemory
	}
	limits := map[abi.Kind]abi.Limits{abi.Policy: abi.Policy.Limits(), abi.Classifier: abi.Classifier.Limits()}
	for kind, l := range cfg.Limits {
		limits[kind] = l
	}
	cfg.Limits = limits
	return cfg
}

func prepare(ctx context.Context, cfg PrepareConfig) (Report, error) {
	if err := checkHash(cfg.SHA256); err != nil {
		return Report{}, err
	}
	if len(cfg.Program) == 0 {
		return Report{}, errors.New("a program is needed")
	}
	cfg = cfg.withDefaults()
	if err := tidy(cfg.Dir, cfg.SHA256); err != nil {
		return Report{}, err
	}
	runtime.LockOSThread() // the kernel ends the child with the thread that started it
	defer runtime.UnlockOSThread()
	begin := time.Now()
	p, err := start(append(slices.Clone(cfg.Program), modePrepare), 1, bounds{memory: cfg.Memory, cpu: cfg.CPU, file: 1 << 30, files: 64, nice: prepareNice})
	if err != nil {
		return Report{}, fmt.Errorf("starting a child: %w", err)
	}
	report, err := cfg.converse(ctx, p, begin.Add(cfg.Wall))
	p.kill("it is done")
	<-p.ended
	p.close()
	if err != nil {
		return Report{}, cfg.judge(ctx, p, err)
	}
	report.CPU, report.Wall = p.cpu(), time.Since(begin)
	return report, nil
}

// converse tells the child what to do and reads what it says.
func (cfg PrepareConfig) converse(ctx context.Context, p *process, until time.Time) (Report, error) {
	l := newLink(p.conns[0], maxReport)
	s := spec{Dir: cfg.Dir, SHA256: cfg.SHA256, Limits: cfg.Limits, Granted: cfg.Allowed, Memory: int64(cfg.Memory / 4 * 3)}
	var blobs [][]byte
	if cfg.Manifest != nil {
		s.Blobs, blobs = []string{blobManifest}, [][]byte{cfg.Manifest}
	}
	if err := s.send(l, blobs); err != nil {
		return Report{}, err
	}
	f, err := l.await(ctx, until)
	switch {
	case err != nil:
		return Report{}, err
	case f.kind != kindFailed && f.kind != kindReport:
		return Report{}, fmt.Errorf("%w: kind %d", errBreach, f.kind)
	case f.kind == kindFailed:
		why, err := readFailure(f.payload)
		if err != nil {
			return Report{}, err
		}
		return Report{}, &told{why.error()}
	}
	return cfg.readReport(f.payload)
}

// told is an error that the child itself reported.
type told struct{ error }

func (t *told) Unwrap() error { return t.error }

// judge says what a child died of.
func (cfg PrepareConfig) judge(ctx context.Context, p *process, err error) error {
	if t, ok := errors.AsType[*told](err); ok {
		return t.error
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errLate):
		return &ExhaustedError{ExhaustedWall, cfg.Wall.String()}
	case errors.Is(err, errBreach), errors.Is(err, errFrame):
		return err
	case outOfMemory(p.tail.String()):
		return &ExhaustedError{ExhaustedMemory, fmt.Sprintf("%d MiB", cfg.Memory>>20)}
	case p.signalled() && p.cpu() >= cfg.CPU/2: // the kernel counts more coarsely than it reports
		return &ExhaustedError{ExhaustedCPU, cfg.CPU.String()}
	}
	if line := p.tail.first(); line != "" {
		return fmt.Errorf("the child ended: %w: %s", err, line)
	}
	return fmt.Errorf("the child ended: %w", err)
}

// report is what a child says of a module.
type report struct {
	SHA256   string          `json:"sha256"`
	Bytes    int             `json:"bytes"`
	Metered  int             `json:"metered"`
	Imports  []Import        `json:"imports"`
	Exports  []string        `json:"exports"`
	Manifest json.RawMessage `json:"manifest"` // as it was found
}

// readReport reads what a child says. One that was taken over may say anything; what follows from the manifest is
// reckoned here, so it can lie about its module alone.
func (cfg PrepareConfig) readReport(b []byte) (Report, error) {
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		return Report{}, fmt.Errorf("%w: a report: %w", errFrame, err)
	}
	if r.SHA256 != cfg.SHA256 {
		return Report{}, fmt.Errorf("%w: a report of another module", errFrame)
	}
	text := []byte(r.Manifest)
	if cfg.Manifest != nil {
		text = cfg.Manifest
	}
	manifest, err := payload.ReadManifest(text)
	if err != nil {
		return Report{}, fmt.Errorf("%w: a report: %w", errFrame, err)
	}
	return Report{
		SHA256: r.SHA256, Bytes: r.Bytes, Metered: r.Metered, Imports: r.Imports, Exports: r.Exports,
		Manifest: manifest, Granted: granted(manifest, cfg.Allowed), Limits: lowered(cfg.Limits, manifest),
	}, nil
}

// granted is what a manifest asks for and the operator allows.
func granted(m abi.Manifest, allowed []abi.Capability) []abi.Capability {
	all := []abi.Capability{}
	for _, asked := range m.Capabilities {
		if slices.Contains(allowed, asked) {
			all = append(all, asked)
		}
	}
	return all
}

// lowered are the limits of a manifest's kind, lowered to what it asks for.
func lowered(limits map[abi.Kind]abi.Limits, m abi.Manifest) abi.Limits {
	l := limits[m.Kind]
	if m.Pages > 0 {
		l.Memory = min(l.Memory, m.Pages)
	}
	if m.Units > 0 {
		l.Units = min(l.Units, m.Units)
	}
	return l
}

// seal confines a child of ours. A system that has nothing for it is no error: Run says so aloud.
func seal(s sandbox.Seal) error {
	if err := s.Close(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("confining: %w", err)
	}
	return nil
}

// refuse is a refusal that has no place in a section of the module.
func refuse(section, reason, remedy string) error {
	return &module.RefusalError{Section: section, Index: -1, Reason: reason, Remedy: remedy}
}
