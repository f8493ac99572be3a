package model

import (
	"fmt"
	"math"
	"slices"

	"onebit/engine/gguf"
	"onebit/engine/tensor"
)

// encoderParams holds the hyperparameters of an encoder as its metadata declares them.
type encoderParams struct {
	arch    string
	layers  int
	width   int
	heads   int
	headDim int
	ffn     int
	vocab   int
	context int // tokens of a text
	eps     float32
	pooling Pooling
	gated   bool // SiLU(gate)*up, and not GELU(up)
	rotates bool // positions are rotations of queries and keys, and not vectors that are added
	rope    rope
}

// maxText is the largest number of tokens that a text may have: every token sees every other.
const maxText = 1 << 17

// readEncoderParams reads and checks the hyperparameters. Shapes are checked later, tensor by tensor.
func readEncoderParams(f *gguf.File) (*encoderParams, error) {
	p := &encoderParams{arch: f.Architecture()}
	if !slices.Contains(encoderArchitectures[:], p.arch) {
		return nil, unsupported("architecture %.80q is not one of which the built-in engine makes embeddings (bert, nomic-bert); use --device with a llama-server", p.arch)
	}
	r := &reader{f: f, prefix: p.arch + "."}
	p.layers = r.count("block_count", 1, maxLayers, -1)
	p.width = r.count("embedding_length", 1, maxWidth, -1)
	p.heads = r.count("attention.head_count", 1, maxHeads, -1)
	p.ffn = r.count("feed_forward_length", 1, maxFFN, -1)
	p.context = r.count("context_length", 1, maxText, -1)
	p.pooling = Pooling(r.count("pooling_type", int(PoolNone), int(PoolRank), int(PoolNone)))
	p.eps = float32(r.number("attention.layer_norm_epsilon", 0, 1, math.NaN()))
	if r.err != nil {
		return nil, r.err
	}
	p.headDim = p.width / p.heads
	kv := r.count("attention.head_count_kv", 1, maxHeads, p.heads)
	switch {
	case p.eps != p.eps:
		return nil, fmt.Errorf("the metadata lacks %s.attention.layer_norm_epsilon", p.arch)
	case p.width%p.heads != 0 || p.headDim > maxHeadDim:
		return nil, fmt.Errorf("%d heads do not share a width of %d", p.heads, p.width)
	case r.err == nil && kv != p.heads:
		return nil, unsupported("%d key heads for %d query heads are not something the built-in engine computes for %s", kv, p.heads, p.arch)
	}
	if p.gated, p.rotates = p.arch == "nomic-bert", p.arch == "nomic-bert"; p.rotates {
		p.rope = readRope(r, &params{headDim: p.headDim, context: p.context})
	}
	refuseKnobs(r)
	refuseCausal(r, false)
	const experts = "moe_every_n_layers"
	if n, ok := f.Uint(r.prefix + experts); ok && n != 0 {
		r.fail(unsupported("%s%s = %d is not something the built-in engine computes; use --device with a llama-server", r.prefix, experts, n))
	}
	return p, r.err
}

// load takes all weights from the file.
func (e *Encoder) load(f *gguf.File, progress func(done, total int64)) error {
	l := &loader{f: f, k: e.k, arena: e.weights, taken: map[string]bool{}}
	e.takeInput(l)
	e.layers = make([]encoderLayer, e.p.layers)
	l.layers(e.p.layers, e.takeLayer)
	e.takeHead(l)
	return l.pack(progress)
}

// norm returns the weights of a normalisation.
func (l *loader) norm(name string, n int) layerNorm {
	return layerNorm{l.vector(name+".weight", true, n), l.vector(name+".bias", false, n)}
}

// takeInput takes what makes vectors of tokens.
func (e *Encoder) takeInput(l *loader) {
	p := e.p
	if e.embed, p.vocab = l.embedding(p.width); l.err != nil {
		return
	}
	if !p.rotates {
		e.positions = l.rows("position_embd.weight", true, p.context, p.context, p.width)
	}
	const kinds = "token_types.weight"
	if t := l.f.Tensor(kinds); t != nil {
		n := 1 // a file may leave out an extent of 1
		if len(t.Shape) > 1 {
			n = int(min(t.Shape[1], maxVocab))
		}
		e.kinds = l.rows(kinds, false, min(n, 2), n, p.width)
	}
	e.norm = l.norm("token_embd_norm", p.width)
}

// rows returns the first rows of a table as floats.
func (l *loader) rows(name string, needed bool, first, rows, width int) []float32 {
	t := l.take(name, needed, width, rows)
	if t == nil || l.err != nil {
		return nil
	}
	v := l.arena.Floats(first * width)
	raw := t.Data()[:len(t.Data())/rows*first]
	if err := tensor.Dequantize(tensor.Type(t.Type), raw, v); err != nil {
		l.fail(fmt.Errorf("tensor %q: %w", name, err))
	}
	return v
}

// takeLayer takes the weights of one block.
func (e *Encoder) takeLayer(l *loader, i int) {
	p, ly := e.p, &e.layers[i]
	name := func(s string) string { return fmt.Sprintf("blk.%d.%s", i, s) }
	matrix := func(s string, rows, cols int) *tensor.Matrix { return l.matrix(name(s+".weight"), rows, cols) }
	bias := func(s string, n int) []float32 { return l.vector(name(s+".bias"), false, n) }

	if w := p.width; l.f.Tensor(name("attn_qkv.weight")) != nil {
		ly.qkv = newEncoderOp(e.fine, matrix("attn_qkv", 3*w, w))
		ly.qkvBias = bias("attn_qkv", 3*w)
	} else {
		ly.qkv = newEncoderOp(e.fine, matrix("attn_q", w, w), matrix("attn_k", w, w), matrix("attn_v", w, w))
		ly.qkvBias = e.joined(l, bias("attn_q", w), bias("attn_k", w), bias("attn_v", w))
	}
	ly.out, ly.outBias = newEncoderOp(e.coarse, matrix("attn_output", p.width, p.width)), bias("attn_output", p.width)
	ly.attnNorm = l.norm(name("attn_output_norm"), p.width)
	ly.up, ly.upBias = newEncoderOp(e.fine, matrix("ffn_up", p.ffn, p.width)), bias("ffn_up", p.ffn)
	if p.gated {
		ly.gate = newEncoderOp(e.fine, matrix("ffn_gate", p.ffn, p.width))
	}
	ly.down, ly.downBias = newEncoderOp(e.coarse, matrix("ffn_down", p.width, p.ffn)), bias("ffn_down", p.width)
	ly.ffnNorm = l.norm(name("layer_output_norm"), p.width)
}

// joined lays the biases of queries, keys and values out as the rows of their products lie.
func (e *Encoder) joined(l *loader, parts ...[]float32) []float32 {
	pad := (e.p.width + e.k.R - 1) / e.k.R * e.k.R
	var all []float32
	for i, b := range parts {
		if b == nil {
			continue
		}
		if all == nil {
			all = l.arena.Floats(len(parts) * pad)
		}
		copy(all[i*pad:], b)
	}
	return all
}

// takeHead takes what ranks: a product with a tangent, and one with a row for each score.
func (e *Encoder) takeHead(l *loader) {
	p, h := e.p, &e.judge
	if l.err != nil {
		return
	}
	if l.f.Tensor("cls.weight") != nil {
		h.dense = newEncoderOp(e.fine, l.matrix("cls.weight", p.width, p.width))
		h.denseBias = l.vector("cls.bias", false, p.width)
	}
	if t := l.f.Tensor("cls.output.weight"); t != nil {
		rows := 1
		if len(t.Shape) > 1 {
			rows = int(min(t.Shape[1], maxWidth))
		}
		h.scores = rows
		h.out = newEncoderOp(e.fine, l.matrix("cls.output.weight", rows, p.width))
		h.outBias = l.vector("cls.output.bias", false, rows)
	}
	switch {
	case p.pooling != PoolRank:
		h.scores = 0
	case len(h.out.mats) == 0:
		// llama-server then takes the first value; nothing says that it is a score
		l.fail(unsupported("the file says that the model ranks, but has no tensor \"cls.output.weight\"; use --device with a llama-server"))
	}
}
