package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"onebit/engine/gguf"
	"onebit/engine/tensor"
)

// Pooling says what an encoder makes of the vectors of a text's tokens. The numbers are those of the file format.
type Pooling int

// The kinds of pooling.
const (
	PoolNone Pooling = iota // nothing: every token keeps its own
	PoolMean                // their mean
	PoolCLS                 // that of the first token
	PoolLast                // that of the last token
	PoolRank                // scores, computed from that of the first token
)

// String returns the word that servers use.
func (p Pooling) String() string {
	if p < PoolNone || p > PoolRank {
		return fmt.Sprintf("pooling %d", int(p))
	}
	return [...]string{"none", "mean", "cls", "last", "rank"}[p]
}

// parsePooling reads what String writes.
func parsePooling(word string) (Pooling, error) {
	for p := PoolNone; p <= PoolRank; p++ {
		if p.String() == word {
			return p, nil
		}
	}
	return 0, fmt.Errorf("there is no pooling %q; take none, mean, cls, last or rank", word)
}

// EncoderConfig says how an encoder is to be run.
type EncoderConfig struct {
	Threads  int          // workers of a pass; 0 means all cores but one, or both of two
	Level    tensor.Level // instruction set of the kernels
	Rounding Rounding     // RoundAuto takes two parts for queries, keys, values and the first product of a block's second half
	Pooling  string       // the word for a Pooling; "" is as the file says
	Progress func(done, total int64)
}

// Text is what an encoder reads: tokens, with those that the model wants at the beginning and the end.
type Text struct {
	Tokens []int32 // at least one, at most the encoder's Context
	Second int     // where the second part of a pair begins; 0 is no pair
	Each   bool    // a vector of every token is wanted, not one of the text
	// Out is set by Encode, of new memory: the pooled vector of Width values, the scores of a model that ranks, or with
	// Each the vectors of all tokens one after another. Nothing is normalised.
	Out []float32
}

// Encoder is a loaded model that turns texts into vectors, or pairs of texts into scores. All tokens of a text see each
// other, and no text sees another: its result has the same bits whatever else is in the pass, and however many threads
// there are. Its methods may be called by several goroutines at once; passes run one after another. Close needs all
// Encodes to have returned.
type Encoder struct {
	p       *encoderParams
	k       *tensor.Kernels
	fine    *tensor.Kernels // for the products whose rounding shows most in the results
	coarse  *tensor.Kernels // for the others
	weights *tensor.Arena

	embed     embedding
	positions []float32 // [context][width]; nil when positions are rotated
	kinds     []float32 // [parts][width] of the parts of a pair; nil = none
	norm      layerNorm
	layers    []encoderLayer
	turns     ropeTables
	judge     head

	parameters, bytes uint64

	mu     sync.Mutex // held during Encode, and by whatever else uses the fields below
	team   *tensor.Team
	active int // workers
	pass   encoderPass
	closed bool
}

// layerNorm is the weights of one normalisation.
type layerNorm struct{ w, b []float32 }

// encoderOp is an op with the kernels that it is done with.
type encoderOp struct {
	op
	k, packer *tensor.Kernels
}

// newEncoderOp returns the op of some matrices.
func newEncoderOp(k *tensor.Kernels, mats ...*tensor.Matrix) encoderOp {
	o := encoderOp{newOp(mats...), k, k}
	if o.together <= 1 {
		o.packer = k.Plain()
	}
	return o
}

// encoderLayer holds the weights of one block.
type encoderLayer struct {
	qkv                 encoderOp // three matrices, or one of all rows
	qkvBias             []float32 // as the rows of qkv lie in memory, nil = none
	out, up, gate, down encoderOp // gate has no matrices in plain blocks
	outBias, upBias     []float32
	downBias            []float32
	attnNorm, ffnNorm   layerNorm
}

// head turns the vector of the first token into scores. Either of its two products may be missing.
type head struct {
	dense, out         encoderOp
	denseBias, outBias []float32
	scores             int
}

// encoderArchitectures lists what LoadEncoder runs.
var encoderArchitectures = [...]string{"bert", "nomic-bert"}

// EncoderArchitectures returns the values of general.architecture that LoadEncoder runs.
func EncoderArchitectures() []string { return slices.Clone(encoderArchitectures[:]) }

// LoadEncoder packs the weights of an open model file. What the engine does not compute is refused with an
// *UnsupportedError that names it. Embedding rows are read from f while the encoder lives, so f must be closed after it.
func LoadEncoder(f *gguf.File, cfg EncoderConfig) (*Encoder, error) {
	p, err := readEncoderParams(f)
	if err != nil {
		return nil, fmt.Errorf("reading the model's metadata: %w", err)
	}
	if cfg.Pooling != "" {
		if p.pooling, err = parsePooling(cfg.Pooling); err != nil {
			return nil, err
		}
	}
	if cfg.Threads == 0 {
		cfg.Threads = defaultThreads()
	}
	if cfg.Threads < 0 || cfg.Threads > maxThreads {
		return nil, fmt.Errorf("%d threads are out of range", cfg.Threads)
	}
	k, err := tensor.For(cfg.Level)
	if err != nil {
		return nil, err
	}
	e := &Encoder{p: p, k: k, fine: k, coarse: k, weights: tensor.NewArena()}
	if cfg.Rounding != RoundOnce {
		e.fine = k.Split()
	}
	if cfg.Rounding == RoundTwice {
		e.coarse = e.fine
	}
	for _, t := range f.Tensors() {
		e.parameters += t.Elements()
		e.bytes += t.Size()
	}
	if err := e.load(f, cfg.Progress); err != nil {
		e.Close()
		return nil, fmt.Errorf("loading the weights: %w", err)
	}
	if p.rotates {
		e.turns.kinds[0] = ropeTable{rope: &p.rope, freq: p.rope.frequencies()}
	}
	e.team = tensor.NewTeam(cfg.Threads)
	e.active = cfg.Threads
	e.pass.init(e)
	return e, nil
}

// Encode computes what the texts ask for, in passes of some thousand tokens. It refuses, before it computes anything, a
// text without tokens, one longer than Context with a *ContextError, and tokens that the vocabulary does not have. A
// cancelled Encode returns the context's error between two passes.
func (e *Encoder) Encode(ctx context.Context, texts []Text) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	for i := range texts {
		if err := e.check(&texts[i]); err != nil {
			return err
		}
	}
	most := e.passTokens()
	for from := 0; from < len(texts); {
		if err := ctx.Err(); err != nil {
			return err
		}
		to, tokens := from, 0
		for to < len(texts) && (to == from || tokens+len(texts[to].Tokens) <= most) {
			tokens += len(texts[to].Tokens)
			to++
		}
		e.run(texts[from:to], tokens)
		from = to
	}
	return nil
}

// PassTokens returns about how many tokens one pass of Encode takes: more in one call cost as much time each.
func (e *Encoder) PassTokens() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.passTokens()
}

func (e *Encoder) passTokens() int { return max(1024, 2*encoderRows*e.active) }

// check refuses a text that cannot be encoded.
func (e *Encoder) check(t *Text) error {
	switch {
	case len(t.Tokens) == 0:
		return errors.New("a text has no tokens")
	case len(t.Tokens) > e.p.context:
		return &ContextError{Tokens: len(t.Tokens), Capacity: e.p.context}
	}
	if t.Second < 0 || t.Second > len(t.Tokens) {
		return fmt.Errorf("the second part of %d tokens cannot begin at %d", len(t.Tokens), t.Second)
	}
	for _, id := range t.Tokens {
		if id < 0 || int(id) >= e.p.vocab {
			return fmt.Errorf("token %d is not one of the vocabulary's %d", id, e.p.vocab)
		}
	}
	return nil
}

// SetThreads sets the number of workers, cut to what LoadEncoder was given; 0 leaves it as it is.
func (e *Encoder) SetThreads(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n > 0 && !e.closed {
		e.active = min(n, e.team.Size())
	}
}

// Threads returns the number of workers.
func (e *Encoder) Threads() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active
}

// Close ends the workers and frees all memory. Closing twice does nothing.
func (e *Encoder) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	if e.team != nil {
		e.team.Close()
	}
	e.pass.close()
	e.weights.Close()
}

// Architecture returns the name that the file gives the model's kind.
func (e *Encoder) Architecture() string { return e.p.arch }

// Pooling returns how the file says that vectors are pooled.
func (e *Encoder) Pooling() Pooling { return e.p.pooling }

// Width returns the length of a vector.
func (e *Encoder) Width() int { return e.p.width }

// Scores returns how many scores a model that ranks gives a text; 0 for one that does not rank.
func (e *Encoder) Scores() int { return e.judge.scores }

// Context returns the number of tokens that a text has at most.
func (e *Encoder) Context() int { return e.p.context }

// Vocab returns the number of tokens of the vocabulary.
func (e *Encoder) Vocab() int { return e.p.vocab }

// Parameters returns the number of weights in the file.
func (e *Encoder) Parameters() uint64 { return e.parameters }

// Bytes returns the size of the weights in the file.
func (e *Encoder) Bytes() uint64 { return e.bytes }

// Normalize divides a vector by its Euclidean length, in place. A vector of zeros stays.
func Normalize(v []float32) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return
	}
	s := 1 / math.Sqrt(sum)
	for i := range v {
		v[i] = float32(float64(v[i]) * s)
	}
}
