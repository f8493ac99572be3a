package runner

import (
	"math"

	"onebit/engine"
	"onebit/engine/gguf"
)

// Bounds and steps of slots and contexts.
const (
	maxSlots      = engine.BuiltinSlots
	defaultSlots  = 4
	contextStep   = 256 // contexts are rounded up to multiples of it, as llama-server does
	contextLeast  = 512 // the smallest context that is chosen for want of memory
	unknownMemory = math.MaxInt64
)

// needs is what of a model decides how large contexts may be.
type needs struct {
	trained  int   // tokens; 0 is unknown
	perToken int64 // bytes of keys and values
	weights  int64 // bytes
}

// needsOf reads them from a file's metadata. What is not there counts as 0: the
// model's loader refuses such files.
func needsOf(f *gguf.File) needs {
	arch := f.Architecture()
	number := func(key string) int64 {
		v, _ := f.Uint(arch + "." + key)
		return int64(min(v, math.MaxInt32))
	}
	n := needs{trained: int(number("context_length"))}
	heads, width := number("attention.head_count"), number("embedding_length")
	kv, key, value := number("attention.head_count_kv"), number("attention.key_length"), number("attention.value_length")
	if kv == 0 {
		kv = heads
	}
	if key == 0 && heads > 0 {
		key = width / heads
	}
	if value == 0 {
		value = key
	}
	n.perToken = number("block_count") * kv * (key + value) * 2 // half precision
	for _, t := range f.Tensors() {
		n.weights += int64(t.Size())
	}
	return n
}

// capacity returns the number of slots and the tokens of each. A context that
// was asked for is split across the slots that were asked for; slots that were
// not asked for have all of it each. Without either, each slot has what the
// model was trained for, unless all slots together would then take more than
// half of the memory that the weights leave: keys and values take memory only as
// they come, so this is a bound and not a cost.
func capacity(cfg Config, n needs, memory int64) (slots, context int) {
	slots = cfg.Parallel
	if slots == 0 {
		slots = defaultSlots
	}
	switch {
	case cfg.Context == 0:
		context = max(n.trained, 1)
		if room := (memory - n.weights) / 2; n.perToken > 0 && memory != unknownMemory {
			fits := max(contextLeast, room/int64(slots)/n.perToken)
			context = int(min(int64(context), fits-fits%contextStep))
		}
		return slots, context
	case cfg.Parallel == 0:
		context = cfg.Context
	default:
		context = max(1, cfg.Context/slots)
	}
	context = (context + contextStep - 1) / contextStep * contextStep
	if n.trained > 0 {
		context = min(context, n.trained)
	}
	return slots, context
}
