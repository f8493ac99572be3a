package model

import (
	"fmt"
	"math"
	"strings"

	"onebit/engine/gguf"
)

// UnsupportedError says what in a model file the built-in engine does not
// compute. The file may be sound: a llama-server may run it.
type UnsupportedError struct{ What string }

// Error implements error.
func (e *UnsupportedError) Error() string { return e.What }

func unsupported(format string, args ...any) error {
	return &UnsupportedError{What: fmt.Sprintf(format, args...)}
}

// architectures lists what Load runs.
const architectures = "llama, qwen2, qwen3, gemma3"

// Limits of what a file may declare. They are far above any model that a
// processor can run and keep every product of two of them within an int.
const (
	maxLayers  = 1 << 10
	maxWidth   = 1 << 16
	maxHeads   = 1 << 12
	maxHeadDim = 1 << 10
	maxFFN     = 1 << 18
	maxVocab   = 1 << 23
	maxContext = 1 << 24
)

// params holds the hyperparameters of a model as its metadata declares them.
type params struct {
	arch    string
	layers  int
	width   int // of the residual stream
	heads   int // of the queries
	kvHeads int // of the keys and values; divides heads
	headDim int
	ffn     int
	vocab   int
	context int // positions the model was trained for
	eps     float32

	rope      rope // of the layers that see everything
	localRope rope // of the layers that see a window
	pairs     bool // rotation turns neighbours, not the two halves
	window    int  // positions that a local layer sees; 0 when there are none
	local     []bool

	embedScale float32 // on the embedding row, 1 = none
	attnScale  float32 // on the query
	logitCap   float32 // soft cap c*tanh(x/c) of the logits, 0 = none
	gelu       bool    // the gate is GELU, not SiLU
}

// queryWidth and kvWidth are the rows of the projections.
func (p *params) queryWidth() int { return p.heads * p.headDim }
func (p *params) kvWidth() int    { return p.kvHeads * p.headDim }

// group returns the number of query heads that share a key head.
func (p *params) group() int { return p.heads / p.kvHeads }

// reader fetches metadata below one prefix and remembers the first refusal.
type reader struct {
	f      *gguf.File
	prefix string
	err    error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// count returns an integer of [lo, hi]. A list is taken when all its
// elements are equal, as many as there are layers or not.
func (r *reader) count(key string, lo, hi, absent int) int {
	key = r.prefix + key
	if _, ok := r.f.Value(key); !ok {
		if absent < 0 {
			r.fail(fmt.Errorf("the metadata lacks %s", key))
			return lo
		}
		return absent
	}
	n, ok := r.f.Int(key)
	if list, isList := r.f.Ints(key); isList && len(list) > 0 {
		n, ok = list[0], true
		for _, v := range list {
			if v != n {
				r.fail(unsupported("%s differs from layer to layer, which the built-in engine does not run", key))
				return lo
			}
		}
	}
	if !ok || n < int64(lo) || n > int64(hi) {
		r.fail(fmt.Errorf("%s is no integer of %d to %d", key, lo, hi))
		return lo
	}
	return int(n)
}

// number returns a finite number of [lo, hi].
func (r *reader) number(key string, lo, hi, absent float64) float64 {
	key = r.prefix + key
	if _, ok := r.f.Value(key); !ok {
		return absent
	}
	v, ok := r.f.Float(key)
	if !ok || !(v >= lo && v <= hi) {
		r.fail(fmt.Errorf("%s is no number of %g to %g", key, lo, hi))
		return absent
	}
	return v
}

// readParams reads and checks the hyperparameters. Shapes are checked later,
// tensor by tensor.
func readParams(f *gguf.File) (*params, error) {
	p := &params{arch: f.Architecture()}
	switch p.arch {
	case "llama", "qwen2", "qwen3", "gemma3":
	default:
		return nil, unsupported("architecture %.80q is not one the built-in engine runs (%s); use --device with a llama-server", p.arch, architectures)
	}
	r := &reader{f: f, prefix: p.arch + "."}
	p.layers = r.count("block_count", 1, maxLayers, -1)
	p.width = r.count("embedding_length", 1, maxWidth, -1)
	p.heads = r.count("attention.head_count", 1, maxHeads, -1)
	p.kvHeads = r.count("attention.head_count_kv", 1, maxHeads, p.heads)
	p.ffn = r.count("feed_forward_length", 1, maxFFN, -1)
	p.context = r.count("context_length", 1, maxContext, -1)
	p.headDim = r.count("attention.key_length", 2, maxHeadDim, p.width/p.heads)
	value := r.count("attention.value_length", 2, maxHeadDim, p.headDim)
	p.eps = float32(r.number("attention.layer_norm_rms_epsilon", 1e-12, 1, math.NaN()))
	if r.err != nil {
		return nil, r.err
	}
	switch {
	case p.eps != p.eps:
		return nil, fmt.Errorf("the metadata lacks %s.attention.layer_norm_rms_epsilon", p.arch)
	case p.heads%p.kvHeads != 0:
		return nil, fmt.Errorf("%d query heads cannot share %d key heads", p.heads, p.kvHeads)
	case p.headDim%2 != 0 || p.headDim < 2 || p.headDim > maxHeadDim:
		return nil, fmt.Errorf("a head of %d values cannot be rotated", p.headDim)
	case value != p.headDim:
		return nil, unsupported("keys of %d and values of %d per head differ, which the built-in engine does not run", p.headDim, value)
	}
	p.embedScale = 1
	p.attnScale = float32(1 / math.Sqrt(float64(p.headDim)))
	p.pairs = p.arch == "llama"
	p.local = make([]bool, p.layers)
	p.rope = readRope(r, p)
	if p.arch == "gemma3" {
		readGemma(r, p)
	}
	refuseKnobs(r)
	refuseCausal(r, true)
	if r.err != nil {
		return nil, r.err
	}
	return p, nil
}

// readGemma reads what gemma3 adds: windows on most layers, scaled
// embeddings, GELU.
func readGemma(r *reader, p *params) {
	p.gelu = true
	p.embedScale = float32(math.Sqrt(float64(p.width)))
	if p.layers == 62 { // the 27B model scales by the width and not by the head
		p.attnScale = float32(1 / math.Sqrt(float64(p.width/p.heads)))
	}
	p.logitCap = float32(r.number("final_logit_softcapping", 0, 1e6, 0))
	p.window = r.count("attention.sliding_window", 0, math.MaxInt32, 0)
	if p.window == 0 {
		return
	}
	p.localRope = rope{
		dims:    p.rope.dims,
		base:    r.number("rope.freq_base_swa", 2, 1e12, 10000),
		factor:  1,
		mscale:  p.rope.mscale,
		trained: p.rope.trained,
	}
	key := "attention.sliding_window_pattern"
	if flags, ok := r.f.Bools(r.prefix + key); ok {
		if len(flags) < p.layers {
			r.fail(fmt.Errorf("%s%s has %d entries for %d layers", r.prefix, key, len(flags), p.layers))
			return
		}
		copy(p.local, flags)
		return
	}
	every := r.count(key, 0, maxLayers, 6)
	for i := range p.local {
		p.local[i] = every == 0 || i%every < every-1
	}
}

// refuseKnobs refuses metadata that would change the computation in a way
// that this engine does not implement, unless the value changes nothing.
func refuseKnobs(r *reader) {
	neutral := map[string]float64{
		"attention.scale":                  0,
		"attention.clamp_kqv":              0,
		"attention.max_alibi_bias":         0,
		"attn_logit_softcapping":           0,
		"attention.temperature_scale":      0,
		"attention.shared_kv_layers":       0,
		"residual_scale":                   1,
		"embedding_scale":                  1,
		"logit_scale":                      1,
		"expert_count":                     0,
		"rope.scaling.alpha":               0,
		"nextn_predict_layers":             0,
		"rope.scaling.yarn_ext_factor":     1,
		"rope.scaling.yarn_attn_factor":    1,
		"embedding_length_out":             0,
		"embedding_length_per_layer_input": 0,
	}
	if r.prefix != "gemma3." {
		neutral["final_logit_softcapping"] = 0
	}
	for _, key := range r.f.Keys() {
		short, ours := strings.CutPrefix(key, r.prefix)
		want, listed := neutral[short]
		if !ours || !listed {
			continue
		}
		if v, ok := r.f.Float(key); !ok || v != want && v != 0 {
			value, _ := r.f.Value(key)
			r.fail(unsupported("%s = %v is not something the built-in engine computes; use --device with a llama-server", key, value))
		}
	}
}

// refuseCausal refuses a model in which tokens see what the architecture hides from them, or the other way round.
func refuseCausal(r *reader, want bool) {
	if causal, ok := r.f.Bool(r.prefix + "attention.causal"); ok && causal != want {
		r.fail(unsupported("%sattention.causal = %v is not something the built-in engine computes; use --device with a llama-server", r.prefix, causal))
	}
}
