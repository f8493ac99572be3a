package model_test

import (
	"fmt"
	"math"
	"slices"
)

// encode computes the vectors of all tokens of a text in float64, straight from the formulas.
func (n *naive) encode(ids []int32, second int) [][]float64 {
	layers, _ := n.f.Uint(n.arch + ".block_count")
	width, _ := n.f.Uint(n.arch + ".embedding_length")
	heads, _ := n.f.Uint(n.arch + ".attention.head_count")
	w, dim := int(width), int(width/heads)
	x := make([][]float64, len(ids))
	for i, id := range ids {
		x[i] = slices.Clone(n.weight("token_embd.weight")[int(id)*w:][:w])
		side := 0
		if second > 0 && i >= second {
			side = 1
		}
		addTo(x[i], n.weight("token_types.weight")[side*w:][:w])
		if pos := n.weight("position_embd.weight"); pos != nil {
			addTo(x[i], pos[i*w:][:w])
		}
		n.layerNorm("token_embd_norm", x[i])
	}
	for l := range int(layers) {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s", l, s) }
		q, k, v := make([][]float64, len(ids)), make([][]float64, len(ids)), make([][]float64, len(ids))
		for i := range ids {
			if n.weight(name("attn_qkv.weight")) != nil {
				all := n.linear(name("attn_qkv"), x[i])
				q[i], k[i], v[i] = all[:w], all[w:2*w], all[2*w:]
			} else {
				q[i], k[i], v[i] = n.linear(name("attn_q"), x[i]), n.linear(name("attn_k"), x[i]), n.linear(name("attn_v"), x[i])
			}
			if n.arch == "nomic-bert" {
				rotateHeads(q[i], dim, i)
				rotateHeads(k[i], dim, i)
			}
		}
		for i := range ids {
			mixed := make([]float64, w)
			for h := 0; h < w; h += dim {
				look(mixed[h:h+dim], q[i][h:h+dim], k, v, h)
			}
			addTo(x[i], n.linear(name("attn_output"), mixed))
		}
		for i := range ids {
			n.layerNorm(name("attn_output_norm"), x[i])
			up := n.linear(name("ffn_up"), x[i])
			if n.arch == "nomic-bert" {
				for j, g := range n.linear(name("ffn_gate"), x[i]) {
					up[j] *= g / (1 + math.Exp(-g))
				}
			} else {
				for j, g := range up {
					up[j] = g * 0.5 * (1 + math.Erf(g/math.Sqrt2))
				}
			}
			addTo(x[i], n.linear(name("ffn_down"), up))
			n.layerNorm(name("layer_output_norm"), x[i])
		}
	}
	return x
}

// look writes what one query sees of one head to dst.
func look(dst, q []float64, k, v [][]float64, head int) {
	scores, sum := make([]float64, len(k)), 0.0
	for j := range k {
		for d := range q {
			scores[j] += q[d] * k[j][head+d]
		}
		scores[j] = math.Exp(scores[j] / math.Sqrt(float64(len(q))))
		sum += scores[j]
	}
	for j := range v {
		for d := range dst {
			dst[d] += scores[j] / sum * v[j][head+d]
		}
	}
}

// rotateHeads turns the halves of each head against each other, with the base of synthetic files.
func rotateHeads(x []float64, dim, pos int) {
	for h := 0; h < len(x); h += dim {
		for i := range dim / 2 {
			s, c := math.Sincos(float64(pos) * math.Pow(1000, -2*float64(i)/float64(dim)))
			a, b := x[h+i], x[h+i+dim/2]
			x[h+i], x[h+i+dim/2] = a*c-b*s, a*s+b*c
		}
	}
}

func addTo(dst, x []float64) {
	for i := range dst {
		dst[i] += x[i]
	}
}

// linear is the product with a matrix and its bias, if it has one.
func (n *naive) linear(name string, x []float64) []float64 {
	w, b := n.weight(name+".weight"), n.weight(name+".bias")
	out := make([]float64, len(w)/len(x))
	for r := range out {
		for i, v := range x {
			out[r] += w[r*len(x)+i] * v
		}
		if b != nil {
			out[r] += b[r]
		}
	}
	return out
}

// layerNorm normalises x in place.
func (n *naive) layerNorm(name string, x []float64) {
	mean, variance := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	w, b := n.weight(name+".weight"), n.weight(name+".bias")
	for i := range x {
		x[i] = (x[i]-mean)/math.Sqrt(variance+1e-12)*w[i] + b[i]
	}
}

// pooled returns the vector of a text, or its scores.
func (n *naive) pooled(rows [][]float64, pooling uint32) []float64 {
	switch pooling {
	case 1:
		mean := make([]float64, len(rows[0]))
		for _, r := range rows {
			addTo(mean, r)
		}
		return mean // a factor changes no cosine
	case 3:
		return rows[len(rows)-1]
	case 4:
		x := n.linear("cls", rows[0])
		for i := range x {
			x[i] = math.Tanh(x[i])
		}
		return n.linear("cls.output", x)
	}
	return rows[0]
}
