package plan

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"onebit/engine/gguf"
)

// Names in tensor indexes.
const (
	expertMark     = "_exps."
	expertEnding   = "_exps.weight"
	perLayerPrefix = "per_layer_token_embd"
)

// Experts is the index of a mixture model's routed experts. All sizes are in bytes.
type Experts struct {
	Layers int    // layers that have experts
	Each   int    // experts in the layer that has most
	Mean   uint64 // one expert with all its parts, averaged over the layers
	Bytes  uint64 // all experts
	Others uint64 // what stays in memory beside them: all tensors but the experts and the per-layer embeddings
}

// Total is the number of experts over all layers.
func (e Experts) Total() int { return e.Layers * e.Each }

// ErrDense says that a model has no experts.
var ErrDense = errors.New("the model has no experts (no tensors blk.N.*_exps.weight)")

// FindExperts reads the index of all shards. It returns ErrDense for a model without experts, and an error that names
// the tensor when its size is not known.
func FindExperts(f *gguf.File) (Experts, error) {
	for _, t := range f.Unknown() {
		return Experts{}, fmt.Errorf("the size of tensor %q is not known: it is of %v", t.Name, t.Type)
	}
	var e Experts
	each := map[int]uint64{} // bytes of one expert, by layer
	most := uint64(0)
	for _, t := range f.Tensors() {
		if !strings.Contains(t.Name, expertMark) && !strings.HasPrefix(t.Name, perLayerPrefix) {
			e.Others = add(e.Others, t.Size())
		}
		layer, ok := expertLayer(t)
		if !ok {
			continue
		}
		n := t.Shape[2] // not 0: no tensor is without elements
		most = max(most, n)
		each[layer] = add(each[layer], t.Size()/n)
		e.Bytes = add(e.Bytes, t.Size())
	}
	if len(each) == 0 {
		return Experts{}, ErrDense
	}
	sum := uint64(0)
	for _, size := range each {
		sum = add(sum, size)
	}
	e.Layers, e.Mean = len(each), sum/uint64(len(each))
	if e.Mean == 0 || most > math.MaxInt32/uint64(e.Layers) {
		return Experts{}, fmt.Errorf("%d experts of %d bytes in each of %d layers make no sense", most, e.Mean, e.Layers)
	}
	e.Each = int(most)
	return e, nil
}

// expertLayer returns the layer whose experts a tensor holds parts of.
func expertLayer(t *gguf.Tensor) (int, bool) {
	rest, ok := strings.CutPrefix(t.Name, "blk.")
	if !ok || len(t.Shape) != 3 || !strings.HasSuffix(rest, expertEnding) {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}

// Slots is the answer to --moe-slots auto. All sizes are in bytes.
type Slots struct {
	N         int    // experts to hold in memory
	Total     int    // experts of the model
	Floor     int    // fewest that decoding is usable with
	Bytes     uint64 // what N experts take
	Available uint64 // free memory
	Reserve   uint64 // of it, what is left to others
	Others    uint64 // what the model needs beside its experts
	Warning   string // why N is the floor and what that means; empty when memory suffices
}

// floorPerLayer is how many experts a layer should hold at the least.
const floorPerLayer = 64

// Auto sizes the cache of experts for so many bytes of free memory: what is left of them after the model's other
// tensors and a reserve, divided by the mean size of an expert. It is never more than all experts. Below 64 a layer, or
// all where a layer has fewer, decoding would do little but read: then it is that many, with a warning.
func (e Experts) Auto(available uint64) Slots {
	s := Slots{Total: e.Total(), Available: available, Reserve: Reserve(available), Others: e.Others}
	s.Floor = min(floorPerLayer*e.Layers, s.Total)
	if need := add(s.Others, s.Reserve); need < available {
		s.N = int(min((available-need)/e.Mean, uint64(s.Total)))
	}
	if s.N < s.Floor {
		room := s.N
		s.N = s.Floor
		s.Warning = fmt.Sprintf("only %s are free: after %s of other tensors and a reserve of %s there is room for %d experts; taking %d (%s) anyway, since fewer would only read from the drive",
			size(available), size(s.Others), size(s.Reserve), room, s.Floor, size(mul(uint64(s.Floor), e.Mean)))
	}
	s.Bytes = mul(uint64(s.N), e.Mean)
	return s
}

// String says what was chosen and from what.
func (s Slots) String() string {
	return fmt.Sprintf("%d of %d experts (%s); %s free, %s of other tensors", s.N, s.Total, size(s.Bytes), size(s.Available), size(s.Others))
}

// Reserve is the part of free memory that is left to other processes and to work buffers: 15%, and 8 GiB at the least.
func Reserve(available uint64) uint64 { return max(8*GiB, available/100*15) }

// AutoSlots answers --moe-slots auto for the model in a file, any shard of a split one, with so many bytes of free
// memory.
func AutoSlots(path string, available uint64) (Slots, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return Slots{}, err
	}
	defer func() { _ = f.Close() }()
	e, err := FindExperts(f)
	if err != nil {
		return Slots{}, err
	}
	return e.Auto(available), nil
}
