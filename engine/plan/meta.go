package plan

import (
	"fmt"
	"slices"

	"onebit/engine/gguf"
)

// Facts about architectures that files leave out.
var (
	// encoders read a text at once and keep nothing.
	encoders = map[string]bool{
		"bert": true, "jina-bert-v2": true, "jina-bert-v3": true, "nomic-bert": true, "nomic-bert-moe": true,
		"neo-bert": true, "eurobert": true, "modern-bert": true, "gemma-embedding": true, "t5encoder": true,
		"dream": true, "llada": true, "llada-moe": true, "rnd1": true, "clef": true, "wavtokenizer-dec": true,
	}
	// recurrent architectures have no attention at all.
	recurrent = map[string]bool{
		"mamba": true, "mamba2": true, "rwkv6": true, "rwkv6qwen2": true, "rwkv7": true, "arwkv7": true,
	}
	// intervals: every so many layers one has attention and the others are recurrent, unless the file has a list.
	intervals = map[string]uint64{"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4, "minimax-01": 8}
	// patterns: of so many layers in turn all but one look at a window.
	patterns = map[string]pattern{
		"afmoe": {4, false}, "cohere2": {4, false}, "cohere2moe": {4, true}, "exaone4": {4, false},
		"exaone-moe": {4, false}, "gemma2": {2, false}, "gemma3": {6, false}, "gemma3n": {5, false},
		"gpt-oss": {2, false}, "laguna": {4, true}, "llama4": {4, false}, "mellum": {4, false},
		"muse-glimmer": {4, false}, "olmo2": {4, false}, "plamo3": {8, false}, "smallthinker": {4, true},
	}
	// indexRows is how many rows an index of keys keeps for each position, where it is not one.
	indexRows = map[string]uint64{"qwen4exp": 2, "glm5-next": 3}
)

// pattern says which of so many layers in turn looks at the whole context: the first or the last.
type pattern struct {
	period uint64
	first  bool
}

// maxNumber is the largest extent that a file may claim.
const maxNumber = 1 << 32

// meta reads the keys of one architecture and keeps the first trouble.
type meta struct {
	file *gguf.File
	arch string
	err  error
}

// number returns an integer, or what goes without it.
func (m *meta) number(key string, otherwise uint64) uint64 {
	key = m.arch + "." + key
	n, ok := m.file.Uint(key)
	switch {
	case !ok:
		return otherwise
	case n > maxNumber:
		m.fail("%s is %d, over the limit of %d", key, n, uint64(maxNumber))
		return 0
	}
	return n
}

// numbers returns one integer for each layer: the file has one for all or a list.
func (m *meta) numbers(key string, layers int, otherwise []uint64) []uint64 {
	list, ok := m.file.Ints(m.arch + "." + key)
	if !ok {
		if _, ok := m.file.Uint(m.arch + "." + key); ok {
			return slices.Repeat([]uint64{m.number(key, 0)}, layers)
		}
		return otherwise
	}
	if len(list) < layers {
		m.fail("%s.%s has %d entries for %d layers", m.arch, key, len(list), layers)
		return otherwise
	}
	out := make([]uint64, layers)
	for i := range out {
		if list[i] < 0 || list[i] > maxNumber {
			m.fail("%s.%s[%d] is %d", m.arch, key, i, list[i])
			return otherwise
		}
		out[i] = uint64(list[i])
	}
	return out
}

// flags returns one boolean for each layer, when the file has a list of them.
func (m *meta) flags(key string, layers int) ([]bool, bool) {
	key = m.arch + "." + key
	list, ok := m.file.Bools(key)
	if !ok {
		ints, isInts := m.file.Ints(key)
		for _, n := range ints {
			list = append(list, n != 0)
		}
		ok = isInts
	}
	if ok && len(list) < layers {
		m.fail("%s has %d entries for %d layers", key, len(list), layers)
		return nil, false
	}
	return list, ok
}

func (m *meta) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}

// heads are the extents of attention.
type heads struct {
	query, keyValue        []uint64 // heads of each layer
	key, value             uint64   // elements of one head
	keyWindow, valueWindow uint64   // the same in layers that look at a window
	indexer                uint64   // elements that a layer's index of keys keeps for each position
}

func (m *meta) heads(layers int) heads {
	var h heads
	h.query = m.numbers("attention.head_count", layers, make([]uint64, layers))
	h.keyValue = m.numbers("attention.head_count_kv", layers, h.query)
	width := uint64(0)
	if most := slices.Max(h.query); most > 0 {
		width = m.number("embedding_length", 0) / most
	}
	h.key = m.number("attention.key_length", width)
	h.value = m.number("attention.value_length", width)
	h.keyWindow = m.number("attention.key_length_swa", h.key)
	h.valueWindow = m.number("attention.value_length_swa", h.value)
	if m.number("attention.key_length_mla", 0) > 0 && m.number("attention.value_length_mla", 0) > 0 {
		h.value, h.valueWindow = 0, 0 // values are made from the latent that the keys hold
	}
	rows, ok := indexRows[m.arch]
	if !ok {
		rows = 1
	}
	h.indexer = m.number("attention.indexer.key_length", 0) * rows
	return h
}

// recurrent says which layers keep a state instead of keys and values; in falcon-h1 they keep both.
func (m *meta) recurrent(layers int, h heads) []bool {
	if recurrent[m.arch] || m.arch == "falcon-h1" {
		return slices.Repeat([]bool{true}, layers)
	}
	if list, ok := m.flags("attention.recurrent_layers", layers); ok {
		return list
	}
	out := make([]bool, layers)
	if interval, ok := intervals[m.arch]; ok {
		n := m.number("full_attention_interval", interval)
		if n == 0 {
			m.fail("%s.full_attention_interval is 0", m.arch)
			return out
		}
		for i := range out {
			out[i] = uint64(i+1)%n != 0
		}
		return out
	}
	if m.number("ssm.inner_size", 0)+m.number("shortconv.l_cache", 0)+m.number("kda.head_dim", 0) == 0 {
		return out
	}
	feed := make([]uint64, layers)
	if m.arch == "nemotron_h" || m.arch == "nemotron_h_moe" { // has layers that are feed-forward alone
		feed = m.numbers("feed_forward_length", layers, feed)
	}
	for i := range out {
		out[i] = h.keyValue[i] == 0 && feed[i] == 0
	}
	return out
}

// state is what a recurrent layer keeps for each slot, in elements of 32 bits.
func (m *meta) state(h heads) uint64 {
	width := m.number("embedding_length", 0)
	query := slices.Max(h.query)
	if head := m.number("wkv.head_size", 0); head > 0 {
		return add(mul(m.number("token_shift_count", 2), width), mul(width, head))
	}
	if n := m.number("shortconv.l_cache", 0); n > 0 {
		return mul(width, n-1)
	}
	kernel := m.number("ssm.conv_kernel", 0)
	if head := m.number("kda.head_dim", 0); head > 0 {
		past := kernel - 1
		if kernel == 0 {
			past = 3
		}
		return add(mul(3, past, query, head), mul(head, head, query))
	}
	if m.arch == "minimax-01" {
		return mul(h.key, h.key, query)
	}
	inner, size := m.number("ssm.inner_size", 0), m.number("ssm.state_size", 0)
	past := max(kernel, 1) - 1
	return add(mul(past, add(inner, mul(2, m.number("ssm.group_count", 0), size))), mul(size, inner))
}

// width is how many positions a layer with a window looks at.
func (m *meta) width() uint64 {
	otherwise := uint64(0)
	if m.arch == "llama4" {
		otherwise = 8192
	}
	return m.number("attention.sliding_window", otherwise)
}

// window says which layers look at a window.
func (m *meta) window(layers int) []bool {
	none := make([]bool, layers)
	if m.width() == 0 || m.arch == "exaone4" && layers != 64 {
		return none
	}
	if list, ok := m.flags("attention.sliding_window_pattern", layers); ok {
		return list
	}
	p, ok := patterns[m.arch]
	if !ok {
		return none
	}
	p.period = m.number("attention.sliding_window_pattern", p.period)
	for i := range none {
		turn := uint64(i)
		switch {
		case p.period == 0:
			none[i] = true
		case p.first:
			none[i] = turn%p.period != 0
		default:
			none[i] = turn%p.period != p.period-1
		}
	}
	return none
}

// ownKeys is how many layers, from the first, keep keys and values of their own; the others use those of an earlier one.
func (m *meta) ownKeys(layers uint64) int {
	own := layers - min(layers, m.number("attention.shared_kv_layers", 0))
	if m.arch == "gemma3n" {
		own = min(own, 20)
	}
	return int(own)
}
