package model_test

import (
	"math"
	"strconv"
	"testing"

	"onebit/engine/gguf"
	"onebit/engine/tensor"
)

// naive computes logits in float64 from dequantised weights, one token after
// another, straight from the formulas: the reference of the fast code.
type naive struct {
	t       *testing.T
	f       *gguf.File
	arch    string
	weights map[string][]float64
}

func newNaive(t *testing.T, f *gguf.File) *naive {
	return &naive{t: t, f: f, arch: f.Architecture(), weights: map[string][]float64{}}
}

// weight returns a tensor's values, nil when there is none.
func (n *naive) weight(name string) []float64 {
	if w, ok := n.weights[name]; ok {
		return w
	}
	t := n.f.Tensor(name)
	if t == nil {
		return nil
	}
	v := make([]float32, t.Elements())
	if err := tensor.Dequantize(tensor.Type(t.Type), t.Data(), v); err != nil {
		n.t.Fatal(err)
	}
	w := make([]float64, len(v))
	for i := range v {
		w[i] = float64(v[i])
	}
	n.weights[name] = w
	return w
}

func (n *naive) number(key string, absent float64) float64 {
	if v, ok := n.f.Float(n.arch + "." + key); ok {
		return v
	}
	return absent
}

// apply multiplies the named matrix by x and adds the bias of that name.
func (n *naive) apply(name string, x []float64) []float64 {
	w := n.weight(name + ".weight")
	y := make([]float64, len(w)/len(x))
	for r := range y {
		for c, v := range x {
			y[r] += w[r*len(x)+c] * v
		}
	}
	for i, b := range n.weight(name + ".bias") {
		y[i] += b
	}
	return y
}

func (n *naive) norm(x []float64, name string) []float64 {
	w := n.weight(name)
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	s := 1 / math.Sqrt(sum/float64(len(x))+n.number("attention.layer_norm_rms_epsilon", 0))
	y := make([]float64, len(x))
	for i := range y {
		y[i] = x[i] * s * w[i]
	}
	return y
}

// logits returns a row for each token.
func (n *naive) logits(ids []int32) [][]float64 {
	width := int(n.number("embedding_length", 0))
	layers := int(n.number("block_count", 0))
	heads := int(n.number("attention.head_count", 0))
	kvHeads := int(n.number("attention.head_count_kv", float64(heads)))
	dim := int(n.number("attention.key_length", float64(width/heads)))
	gemma := n.arch == "gemma3"
	keys := make([][][]float64, layers)
	values := make([][][]float64, layers)
	var out [][]float64
	for pos, id := range ids {
		x := append([]float64(nil), n.weight("token_embd.weight")[int(id)*width:][:width]...)
		if gemma {
			for i := range x {
				x[i] *= math.Sqrt(float64(width))
			}
		}
		for l := range layers {
			p := "blk." + strconv.Itoa(l) + "."
			h := n.norm(x, p+"attn_norm.weight")
			q, k, v := n.apply(p+"attn_q", h), n.apply(p+"attn_k", h), n.apply(p+"attn_v", h)
			for i := range heads {
				n.turn(q[i*dim:][:dim], p+"attn_q_norm.weight", l, pos)
			}
			for i := range kvHeads {
				n.turn(k[i*dim:][:dim], p+"attn_k_norm.weight", l, pos)
			}
			keys[l], values[l] = append(keys[l], k), append(values[l], v)
			first := 0
			if window := int(n.number("attention.sliding_window", 0)); gemma && n.local(l) {
				first = max(0, pos-window+1)
			}
			mixed := make([]float64, heads*dim)
			for i := range heads {
				g := i / (heads / kvHeads) * dim
				attendNaive(mixed[i*dim:][:dim], q[i*dim:][:dim], keys[l][first:], values[l][first:], g)
			}
			o := n.apply(p+"attn_output", mixed)
			if gemma {
				o = n.norm(o, p+"post_attention_norm.weight")
			}
			for i := range x {
				x[i] += o[i]
			}
			h = n.norm(x, p+"ffn_norm.weight")
			gate, up := n.apply(p+"ffn_gate", h), n.apply(p+"ffn_up", h)
			for i, v := range gate {
				if gemma {
					gate[i] = 0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))) * up[i]
				} else {
					gate[i] = v / (1 + math.Exp(-v)) * up[i]
				}
			}
			d := n.apply(p+"ffn_down", gate)
			if gemma {
				d = n.norm(d, p+"post_ffw_norm.weight")
			}
			for i := range x {
				x[i] += d[i]
			}
		}
		x = n.norm(x, "output_norm.weight")
		if n.f.Tensor("output.weight") != nil {
			out = append(out, n.apply("output", x))
		} else {
			out = append(out, n.apply("token_embd", x))
		}
	}
	return out
}

// local says whether a gemma3 layer sees a window alone.
func (n *naive) local(layer int) bool {
	every := int(n.number("attention.sliding_window_pattern", 6))
	return n.number("attention.sliding_window", 0) > 0 && layer%every < every-1
}

// turn normalises and rotates one head.
func (n *naive) turn(x []float64, norm string, layer, pos int) {
	if n.weight(norm) != nil {
		copy(x, n.norm(x, norm))
	}
	base := n.number("rope.freq_base", 10000)
	factor := n.number("rope.scaling.factor", 1)
	if n.arch == "gemma3" && n.local(layer) {
		base, factor = n.number("rope.freq_base_swa", 10000), 1
	}
	half := int(n.number("rope.dimension_count", float64(len(x)))) / 2
	for i := range half {
		angle := float64(pos) / factor * math.Pow(base, -float64(i)/float64(half))
		a, b := i, i+half
		if n.arch == "llama" {
			a, b = 2*i, 2*i+1
		}
		sin, cos := math.Sincos(angle)
		x[a], x[b] = x[a]*cos-x[b]*sin, x[a]*sin+x[b]*cos
	}
}

// attendNaive mixes the values at offset g by the softmax of the scaled scores.
func attendNaive(out, q []float64, keys, values [][]float64, g int) {
	scores, top := make([]float64, len(keys)), math.Inf(-1)
	for t, k := range keys {
		for i, v := range q {
			scores[t] += v * k[g+i]
		}
		scores[t] /= math.Sqrt(float64(len(q)))
		top = max(top, scores[t])
	}
	sum := 0.0
	for t := range scores {
		scores[t] = math.Exp(scores[t] - top)
		sum += scores[t]
	}
	for t, s := range scores {
		for i := range out {
			out[i] += s / sum * values[t][g+i]
		}
	}
}
