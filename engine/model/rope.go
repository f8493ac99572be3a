package model

import (
	"fmt"
	"math"
)

// rope describes a rotary position embedding.
type rope struct {
	dims    int       // leading values of a head that are rotated, even
	base    float64   // of the frequencies
	factor  float64   // positions are divided by it, 1 = not scaled
	yarn    bool      // scale low frequencies only
	fast    float64   // yarn: turns over the trained context from which nothing is scaled
	slow    float64   // yarn: turns below which everything is scaled
	trained int       // yarn: positions before the scaling
	mscale  float64   // on cosine and sine
	divide  []float32 // per pair, from rope_freqs.weight; nil = none
}

// readRope reads the rotation of the layers that see everything.
func readRope(r *reader, p *params) rope {
	ro := rope{
		dims:    r.count("rope.dimension_count", 2, p.headDim, p.headDim),
		base:    r.number("rope.freq_base", 2, 1e12, 10000),
		fast:    r.number("rope.scaling.yarn_beta_fast", 0, 1e6, 32),
		slow:    r.number("rope.scaling.yarn_beta_slow", 0, 1e6, 1),
		trained: r.count("rope.scaling.original_context_length", 0, maxContext, p.context),
		mscale:  r.number("rope.scaling.attn_factor", 0, 1e3, 1),
	}
	if ro.dims%2 != 0 {
		r.fail(fmt.Errorf("%srope.dimension_count %d is odd", r.prefix, ro.dims))
	}
	if ro.trained == 0 {
		ro.trained = p.context
	}
	ro.factor = r.number("rope.scaling.factor", 0, 1e6, r.number("rope.scale_linear", 0, 1e6, 0))
	if ro.factor == 0 {
		ro.factor = 1
	}
	kind, ok := r.f.String(r.prefix + "rope.scaling.type")
	if !ok {
		kind = "linear"
	}
	switch kind {
	case "linear":
	case "none":
		ro.factor = 1
	case "yarn":
		ro.yarn = true
		if ro.factor > 1 {
			ro.mscale *= 1 + 0.1*math.Log(ro.factor)
		}
	default:
		r.fail(unsupported("%srope.scaling.type %.80q is not one the built-in engine computes (none, linear, yarn)", r.prefix, kind))
	}
	return ro
}

// frequencies returns the angle per position of each pair, dims/2 of them.
func (r *rope) frequencies() []float64 {
	lo, hi := r.ramp()
	freq := make([]float64, r.dims/2)
	for i := range freq {
		f := math.Pow(r.base, -2*float64(i)/float64(r.dims))
		if i < len(r.divide) {
			f /= float64(r.divide[i])
		}
		scaled := f / r.factor
		if r.yarn {
			keep := 1 - min(1, max(0, (float64(i)-lo)/max(0.001, hi-lo)))
			scaled = scaled*(1-keep) + f*keep
		}
		freq[i] = scaled
	}
	return freq
}

// ramp returns the pairs between which yarn goes over from keeping a
// frequency to scaling it.
func (r *rope) ramp() (lo, hi float64) {
	if !r.yarn {
		return 0, 0
	}
	pair := func(turns float64) float64 {
		return float64(r.dims) * math.Log(float64(r.trained)/(turns*2*math.Pi)) / (2 * math.Log(r.base))
	}
	lo = max(0, math.Floor(pair(r.fast)))
	hi = min(float64(r.dims-1), math.Ceil(pair(r.slow)))
	return lo, hi
}

// table writes cosine and sine of count positions from first on; each is
// [count][dims/2].
func (r *rope) table(freq []float64, first, count int, cos, sin []float32) {
	for p := range count {
		at := p * len(freq)
		for i, f := range freq {
			s, c := math.Sincos(float64(first+p) * f)
			cos[at+i], sin[at+i] = float32(c*r.mscale), float32(s*r.mscale)
		}
	}
}
