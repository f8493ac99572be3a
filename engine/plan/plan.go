// Package plan tells how much memory a model takes before anything of it is loaded: its weights by group, its cache at a
// context, its experts, and what fits where. All of it is read from the file's metadata and tensor index.
package plan

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"onebit/engine/gguf"
)

// GiB is the unit in which memory is spoken of, in bytes.
const GiB = 1 << 30

// Options say how the model would be served.
type Options struct {
	Context  int // tokens over all slots; 0 takes the context that the model was trained with
	Parallel int // slots; 0 takes the four that a llama-server opens when nobody tells it, which share the context
}

// Plan is what a model takes. All sizes are in bytes.
type Plan struct {
	Name         string // general.name, empty when the file has none
	Architecture string
	Weights      Weights
	Experts      *Experts // nil for a dense model
	Trained      int      // context that the model was trained with, in tokens; 0 when the file does not say
	Context      int      // tokens over all slots
	Slots        int
	Shared       bool // the slots share one cache
	Cache        Cache

	layers layers
}

// New plans an open model. A file whose metadata cannot be made sense of is an error that names the key.
func New(f *gguf.File, o Options) (Plan, error) {
	name, _ := f.String("general.name")
	p := Plan{Name: name, Architecture: f.Architecture(), Weights: weigh(f), Slots: o.Parallel, Context: o.Context}
	switch {
	case p.Architecture == "":
		return p, fmt.Errorf("the file has no general.architecture")
	case o.Context < 0 || o.Context > maxContext:
		return p, fmt.Errorf("the context of %d tokens is not between 0 and %d", o.Context, maxContext)
	case o.Parallel < 0 || o.Parallel > maxSlots:
		return p, fmt.Errorf("the number of slots %d is not between 0 and %d", o.Parallel, maxSlots)
	}
	if e, err := FindExperts(f); err == nil {
		p.Experts = &e
	}
	var err error
	if p.layers, err = readLayers(f); err != nil {
		return p, err
	}
	if n, ok := f.Uint(p.Architecture + ".context_length"); ok && n <= maxContext {
		p.Trained = int(n)
	}
	if p.Context == 0 {
		p.Context = p.Trained
	}
	if p.Context == 0 && p.layers.positional() {
		return p, fmt.Errorf("the file does not say with which context the model was trained; give one")
	}
	if p.Slots == 0 {
		p.Slots, p.Shared = defaultSlots, true
	}
	p.Cache = p.layers.cache(p.Context, p.Slots, p.Shared)
	return p, nil
}

// Open plans the model in a file; of a split one any shard names the whole.
func Open(path string, o Options) (Plan, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return Plan{}, err
	}
	defer func() { _ = f.Close() }()
	return New(f, o)
}

// Resident is the memory that the model takes when all of it is loaded, without the server's work buffers, for which
// the reserve is.
func (p Plan) Resident() uint64 { return add(p.Weights.Total(), p.Cache.Total()) }

// Mapped is the memory that the model takes when its table of per-layer embeddings stays in the file.
func (p Plan) Mapped() uint64 { return add(p.Weights.Total()-p.Weights.PerLayer, p.Cache.Total()) }

// Weights are the bytes of a model's tensors by group.
type Weights struct {
	Dense      uint64 // all that every token uses
	Experts    uint64 // of mixture models, the parts that the router picks from
	Embeddings uint64 // the table of token embeddings
	PerLayer   uint64 // tables of per-layer embeddings
	Unknown    int    // tensors whose type, and so whose size, is not known here
}

// Total is the sum of the groups.
func (w Weights) Total() uint64 {
	return add(add(w.Dense, w.Experts), add(w.Embeddings, w.PerLayer))
}

// weigh sorts the tensors of a file.
func weigh(f *gguf.File) Weights {
	w := Weights{Unknown: len(f.Unknown())}
	for _, t := range f.Tensors() {
		group := &w.Dense
		switch {
		case strings.HasPrefix(t.Name, perLayerPrefix):
			group = &w.PerLayer
		case strings.Contains(t.Name, expertMark):
			group = &w.Experts
		case t.Name == "token_embd.weight":
			group = &w.Embeddings
		}
		*group = add(*group, t.Size())
	}
	return w
}

// add and mul stop at the largest number instead of wrapping: a hostile file is big, never small.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

func mul(a uint64, more ...uint64) uint64 {
	for _, b := range more {
		hi, lo := bits.Mul64(a, b)
		if hi != 0 {
			return math.MaxUint64
		}
		a = lo
	}
	return a
}
