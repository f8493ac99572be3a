package plan

import (
	"fmt"

	"onebit/engine/gguf"
)

// Limits on what a file may claim.
const (
	maxLayers  = 1 << 14
	maxContext = 1 << 30
	maxSlots   = 1 << 12
)

const (
	defaultSlots = 4   // of a llama-server that is not told
	microBatch   = 512 // tokens that are computed at once; a windowed cache holds so many more
	cacheBlock   = 256 // a cache's length is a multiple of it
)

// Cache is what a model keeps for the tokens it has seen, in bytes, with keys and values in 16 bits as servers keep
// them when not told otherwise.
type Cache struct {
	Full     uint64 // keys and values of layers that look at the whole context
	Window   uint64 // those of layers that look at the last tokens alone
	State    uint64 // state of recurrent layers, which does not grow with the context
	PerToken uint64 // what one more token of context adds to Full
}

// Total is the sum of the kinds.
func (c Cache) Total() uint64 { return add(c.Full, add(c.Window, c.State)) }

// layers says what the layers of a model keep.
type layers struct {
	full   uint64 // elements of 16 bits for each position, over the layers that keep all positions
	window uint64 // the same over the layers that keep the last positions
	width  uint64 // how many positions those keep
	state  uint64 // elements of 32 bits for each slot, over the recurrent layers
}

// positional reports whether a context costs anything.
func (l layers) positional() bool { return l.full+l.window > 0 }

// cache sizes the cache for so many tokens over so many slots, which share it or have equal parts.
func (l layers) cache(context, slots int, shared bool) Cache {
	parts, each, seen := uint64(slots), uint64(context)/uint64(slots), l.width
	if shared {
		parts, each, seen = 1, uint64(context), mul(l.width, uint64(slots))
	}
	each = pad(each)
	c := Cache{
		Full:     mul(2, l.full, parts, each),
		State:    mul(4, l.state, uint64(slots)),
		PerToken: mul(2, l.full),
	}
	if l.window > 0 {
		c.Window = mul(2, l.window, parts, pad(min(each, add(seen, microBatch))))
	}
	return c
}

// pad rounds up to a multiple of the cache's block.
func pad(n uint64) uint64 { return (n + cacheBlock - 1) / cacheBlock * cacheBlock }

// readLayers reads the metadata of all layers.
func readLayers(f *gguf.File) (layers, error) {
	m := meta{file: f, arch: f.Architecture()}
	var l layers
	if encoders[m.arch] {
		return l, nil
	}
	count := m.number("block_count", 0)
	if count == 0 || count > maxLayers {
		return l, fmt.Errorf("%s.block_count is %d, not 1 to %d", m.arch, count, maxLayers)
	}
	h := m.heads(int(count))
	count -= min(count, m.number("nextn_predict_layers", 0)) // layers that draft keep nothing for the model itself
	recurrent := m.recurrent(int(count), h)
	window := m.window(int(count))
	own := m.ownKeys(count)
	l.width = m.width()
	state := m.state(h)
	for i := range int(count) {
		if recurrent[i] {
			l.state = add(l.state, state)
		}
		if (recurrent[i] && m.arch != "falcon-h1") || i >= own {
			continue
		}
		if window[i] {
			l.window = add(l.window, mul(h.keyValue[i], add(h.keyWindow, h.valueWindow)))
		} else {
			l.full = add(l.full, add(mul(h.keyValue[i], add(h.key, h.value)), mul(h.indexer, min(h.keyValue[i], 1))))
		}
	}
	return l, m.err
}
