// Package model runs language models on the processor: a Model is the loaded
// weights, a Session one mutable timeline of tokens with its keys and values.
//
// A forward pass takes the tokens of any number of sessions at once. The
// logits of a token have the same bits whatever else is in the pass, however
// the prompt was cut into passes and however many threads there are: every
// sum runs in one fixed order.
package model

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"onebit/engine/gguf"
	"onebit/engine/tensor"
)

// Config says how a model is to be run.
type Config struct {
	// Context is the number of tokens that all sessions hold together, shared
	// out evenly; 0 means the context the model was trained for.
	Context int
	// Sessions is among how many sessions the context is shared out; 0 means 1.
	// More sessions may be made, each of the same capacity.
	Sessions int
	// Threads and BatchThreads are the workers of passes over few tokens
	// (decode) and of larger ones (prefill). 0 means all cores but one, or
	// both of two. A process whose other goroutines must not wait for a pass
	// sets GOMAXPROCS to at least one more than the larger of them.
	Threads, BatchThreads int
	// Level is the instruction set of the kernels.
	Level tensor.Level
	// Rounding says how finely vectors are quantised for products with
	// quantised weights.
	Rounding Rounding
	// Progress, when set, is called while weights are packed, from one
	// goroutine at a time, with the bytes done and the bytes in all.
	Progress func(done, total int64)
}

// Rounding says in how many parts of 8 bits vectors are quantised.
type Rounding int

// The choices. The results of a model of a hundred million parameters move by
// some tenths (natural logarithm of a probability) under the rounding of one
// part, whoever does it, and a near-tie between two words falls either way.
// Over a larger width the errors average out.
const (
	RoundAuto  Rounding = iota // two parts for models of less than 300 million parameters
	RoundOnce                  // one part: the usual precision
	RoundTwice                 // two parts: close to exact, at half the speed of prefill
)

// smallModel is the number of parameters below which RoundAuto takes two parts.
const smallModel = 300_000_000

// twice reports whether the vectors of a model with so many parameters are quantised in two parts.
func (r Rounding) twice(parameters uint64) bool {
	return r == RoundTwice || (r == RoundAuto && parameters < smallModel)
}

// Model is a loaded model. Its methods may be called by several goroutines at
// once; passes run one after another. Close needs all Evals, Saves and Restores to have returned.
type Model struct {
	p       *params
	k       *tensor.Kernels
	plain   *tensor.Kernels // pack the input of most ops, see packer
	cfg     Config
	weights *tensor.Arena // packed weights and norms
	scratch *tensor.Arena // what a pass works in
	cache   *tensor.Arena // keys and values

	layers  []layer
	outNorm []float32
	head    op // the output projection
	embed   embedding
	pages   layout // of keys and values
	ropes   ropeTables

	parameters, bytes uint64
	resident          int64 // bytes of packed weights

	identity [sha256.Size]byte // see identify

	mu      sync.Mutex // held during Eval, and by whatever else uses the fields below
	team    *tensor.Team
	decode  int // workers of a small pass
	prefill int // workers of a large pass
	work    workspace

	room   sync.Mutex // for what sessions take, also during Eval; taken after mu
	free   []page
	closed bool // set with both held
}

// layer holds the weights of one transformer block.
type layer struct {
	attnNorm, ffnNorm       []float32
	qNorm, kNorm            []float32 // per head, nil = none
	attnPost, ffnPost       []float32 // norms of what is added to the stream, nil = none
	qBias, kBias, vBias     []float32 // nil = none, like the following
	oBias, gateBias, upBias []float32
	downBias                []float32
	qkv, out, gateUp, down  op
}

// Load packs the weights of an open model file. What the engine does not
// compute is refused with an *UnsupportedError that names it. Embedding rows are
// read from f while the model lives, so f must be closed after the model.
func Load(f *gguf.File, cfg Config) (*Model, error) {
	p, err := readParams(f)
	if err != nil {
		return nil, fmt.Errorf("reading the model's metadata: %w", err)
	}
	k, err := tensor.For(cfg.Level)
	if err != nil {
		return nil, err
	}
	m := &Model{p: p, weights: tensor.NewArena(), scratch: tensor.NewArena(), cache: tensor.NewArena()}
	for _, t := range f.Tensors() {
		m.parameters += t.Elements()
		m.bytes += t.Size()
	}
	if m.k = k; cfg.Rounding.twice(m.parameters) {
		m.k = k.Split()
	}
	m.plain = m.k.Plain()
	if err := m.configure(cfg); err != nil {
		m.Close()
		return nil, err
	}
	if err := m.load(f); err != nil {
		m.Close()
		return nil, fmt.Errorf("loading the weights: %w", err)
	}
	m.prepare()
	m.identity = m.identify(f)
	return m, nil
}

// configure fills in the defaults of cfg and checks it.
func (m *Model) configure(cfg Config) error {
	if cfg.Context == 0 {
		cfg.Context = m.p.context
	}
	if cfg.Sessions == 0 {
		cfg.Sessions = 1
	}
	if cfg.Threads == 0 {
		cfg.Threads = defaultThreads()
	}
	if cfg.BatchThreads == 0 {
		cfg.BatchThreads = max(cfg.Threads, defaultThreads())
	}
	switch {
	case cfg.Context < 0 || cfg.Context > maxContext:
		return fmt.Errorf("a context of %d tokens is out of range", cfg.Context)
	case cfg.Sessions < 0 || cfg.Sessions > cfg.Context:
		return fmt.Errorf("%d sessions cannot share a context of %d tokens", cfg.Sessions, cfg.Context)
	case cfg.Threads < 0 || cfg.BatchThreads < 0 || cfg.Threads > maxThreads || cfg.BatchThreads > maxThreads:
		return fmt.Errorf("%d and %d threads are out of range", cfg.Threads, cfg.BatchThreads)
	}
	m.cfg = cfg
	return nil
}

// maxThreads bounds the workers of a pass.
const maxThreads = 1024

// defaultThreads leaves one core to the rest of the system: a worker that
// loses its core holds up all others.
func defaultThreads() int {
	cores := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	if cores <= 2 {
		return cores
	}
	return cores - 1
}

// prepare makes what passes need besides weights.
func (m *Model) prepare() {
	m.pages = newLayout(m.p, m.k.R)
	m.ropes = newRopeTables(m.p)
	m.team = tensor.NewTeam(max(m.cfg.Threads, m.cfg.BatchThreads))
	m.work.init(m)
	m.SetThreads(m.cfg.Threads, m.cfg.BatchThreads)
}

// SetThreads sets how many workers run small passes (decode) and large ones
// (prefill). Numbers are cut to what Load was given; 0 leaves one as it is.
func (m *Model) SetThreads(decode, prefill int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setThreads(decode, prefill)
}

func (m *Model) setThreads(decode, prefill int) {
	if m.closed {
		return
	}
	if decode > 0 {
		m.decode = min(decode, m.team.Size())
	}
	if prefill > 0 {
		m.prefill = min(prefill, m.team.Size())
	}
	m.head.share(m.decode, m.prefill)
	for i := range m.layers {
		l := &m.layers[i]
		l.qkv.share(m.decode, m.prefill)
		l.out.share(m.decode, m.prefill)
		l.gateUp.share(m.decode, m.prefill)
		l.down.share(m.decode, m.prefill)
	}
}

// Threads returns the workers of small and of large passes.
func (m *Model) Threads() (decode, prefill int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.decode, m.prefill
}

// ErrClosed is returned by uses of a closed model or session.
var ErrClosed = errors.New("the model or session is closed")

// Close ends the workers and frees all memory of the model and its sessions.
// Closing twice does nothing.
func (m *Model) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.room.Lock()
	defer m.room.Unlock()
	m.closed = true
	if m.team != nil {
		m.team.Close()
	}
	m.free = nil
	m.weights.Close()
	m.scratch.Close()
	m.cache.Close()
}

// Vocab returns the number of logits of a row.
func (m *Model) Vocab() int { return m.p.vocab }

// Context returns the number of positions the model was trained for.
func (m *Model) Context() int { return m.p.context }

// Capacity returns the number of tokens that a session holds at most.
func (m *Model) Capacity() int { return m.cfg.Context / m.cfg.Sessions }

// Width returns the length of an embedding.
func (m *Model) Width() int { return m.p.width }

// Layers returns the number of transformer blocks.
func (m *Model) Layers() int { return m.p.layers }

// Architecture returns the name that the file gives the model's kind.
func (m *Model) Architecture() string { return m.p.arch }

// Parameters returns the number of weights in the file.
func (m *Model) Parameters() uint64 { return m.parameters }

// Bytes returns the size of the weights in the file.
func (m *Model) Bytes() uint64 { return m.bytes }

// Kernels returns the kernels that the model runs on.
func (m *Model) Kernels() *tensor.Kernels { return m.k }

// NewSampler returns a sampler that uses the model's kernels.
func (m *Model) NewSampler(cfg SamplerConfig) *Sampler {
	cfg.Kernels = m.k
	return NewSampler(cfg)
}
