package model

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"onebit/engine/gguf"
	"onebit/engine/tensor"
)

const tokenTable = "token_embd.weight"

// embedding gathers rows of the token embedding from the model file.
type embedding struct {
	typ tensor.Type
	raw []byte
	row int // bytes per token
}

// read writes the embedding of a token to dst.
func (e *embedding) read(id int32, dst []float32) {
	// The type and the sizes were checked when the model was loaded.
	_ = tensor.Dequantize(e.typ, e.raw[int(id)*e.row:][:e.row], dst)
}

// loader takes tensors from a file, checks them and remembers which it took.
// The first refusal stays in err; what is returned after it means nothing.
type loader struct {
	f     *gguf.File
	k     *tensor.Kernels
	arena *tensor.Arena
	taken map[string]bool
	parts []part
	err   error
}

// part is some rows of a matrix that are to be packed.
type part struct {
	m        *tensor.Matrix
	t        *gguf.Tensor
	from, to int
	left     *atomic.Int32 // parts of the same tensor that are not packed yet
}

func (l *loader) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// take returns the tensor of a name and checks its shape. Without one it
// returns nil, and refuses the file when the tensor is needed.
func (l *loader) take(name string, needed bool, shape ...int) *gguf.Tensor {
	t := l.f.Tensor(name)
	if t == nil {
		if needed {
			l.fail(fmt.Errorf("the file has no tensor %q", name))
		}
		return nil
	}
	l.taken[name] = true
	same := len(t.Shape) >= len(shape)
	for i, n := range t.Shape {
		want := uint64(1) // files may write trailing extents of 1
		if i < len(shape) {
			want = uint64(shape[i])
		}
		same = same && n == want
	}
	if !same {
		l.fail(fmt.Errorf("tensor %q has the shape %v, not %v", name, t.Shape, shape))
		return nil
	}
	if _, _, ok := tensor.Type(t.Type).Block(); !ok {
		l.fail(unsupported("tensor %q is stored as %v, which the built-in engine does not compute with; use --device with a llama-server", name, t.Type))
		return nil
	}
	return t
}

// vector returns n values as floats; nil when there is no such tensor.
func (l *loader) vector(name string, needed bool, n int) []float32 {
	t := l.take(name, needed, n)
	if t == nil || l.err != nil {
		return nil
	}
	v := l.arena.Floats(n)
	if err := tensor.Dequantize(tensor.Type(t.Type), t.Data(), v); err != nil {
		l.fail(fmt.Errorf("tensor %q: %w", name, err))
	}
	return v
}

// matrix makes room for a matrix and notes it for packing.
func (l *loader) matrix(name string, rows, cols int) *tensor.Matrix {
	t := l.take(name, true, cols, rows)
	if t == nil || l.err != nil {
		return nil
	}
	m, err := l.k.NewMatrix(l.arena, tensor.Type(t.Type), rows, cols)
	if err != nil {
		l.fail(fmt.Errorf("tensor %q: %w", name, err))
		return nil
	}
	const bytes = 1 << 20 // of one part, about
	step := max(1, bytes*rows/max(1, len(t.Data()))/l.k.R) * l.k.R
	left := new(atomic.Int32)
	for from := 0; from < rows; from += step {
		left.Add(1)
		l.parts = append(l.parts, part{m, t, from, min(from+step, rows), left})
	}
	return m
}

// embedding takes the table of tokens, whose width is known, and returns how
// many there are.
func (l *loader) embedding(width int) (e embedding, vocab int) {
	t := l.f.Tensor(tokenTable)
	if t == nil || len(t.Shape) != 2 || t.Shape[1] < 1 || t.Shape[1] > maxVocab {
		l.fail(fmt.Errorf("the file has no usable tensor %q", tokenTable))
		return e, 0
	}
	vocab = int(t.Shape[1])
	if l.take(tokenTable, true, width, vocab); l.err != nil {
		return e, 0
	}
	e = embedding{typ: tensor.Type(t.Type), raw: t.Data(), row: len(t.Data()) / vocab}
	if elems, _, _ := e.typ.Block(); width%elems != 0 {
		l.fail(fmt.Errorf("tensor %q: rows of %d weights are no whole blocks of %v", tokenTable, width, t.Type))
	}
	return e, vocab
}

// load takes all weights from the file.
func (m *Model) load(f *gguf.File) error {
	l := &loader{f: f, k: m.k, arena: m.weights, taken: map[string]bool{}}
	m.takeEnds(l)
	m.layers = make([]layer, m.p.layers)
	l.layers(m.p.layers, m.takeLayer)
	if err := l.pack(m.cfg.Progress); err != nil {
		return err
	}
	for _, p := range l.parts {
		if p.from == 0 {
			m.resident += int64(p.m.Bytes())
		}
	}
	return nil
}

// layers takes the weights of all layers, until something is refused.
func (l *loader) layers(n int, take func(l *loader, i int)) {
	for i := 0; i < n && l.err == nil; i++ {
		take(l, i)
	}
}

// takeEnds takes what lies before and behind the layers.
func (m *Model) takeEnds(l *loader) {
	p := m.p
	if m.embed, p.vocab = l.embedding(p.width); l.err != nil {
		return
	}
	m.outNorm = l.vector("output_norm.weight", true, p.width)
	head := "output.weight"
	if l.f.Tensor(head) == nil {
		head = tokenTable // tied
	}
	m.head = newOp(l.matrix(head, p.vocab, p.width))
	m.head.bias = l.vector("output.bias", false, p.vocab)
	if p.arch != "llama" {
		return
	}
	p.rope.divide = l.vector("rope_freqs.weight", false, p.rope.dims/2)
	for _, v := range p.rope.divide {
		if !(v > 0) || math.IsInf(float64(v), 0) {
			l.fail(fmt.Errorf("rope_freqs.weight holds %v", v))
			return
		}
	}
}

// takeLayer takes the weights of one transformer block.
func (m *Model) takeLayer(l *loader, i int) {
	p, ly := m.p, &m.layers[i]
	name := func(s string) string { return fmt.Sprintf("blk.%d.%s", i, s) }
	matrix := func(s string, rows, cols int) *tensor.Matrix { return l.matrix(name(s+".weight"), rows, cols) }
	norm := func(s string, needed bool, n int) []float32 { return l.vector(name(s+".weight"), needed, n) }
	bias := func(s string, n int) []float32 { return l.vector(name(s+".bias"), false, n) }

	gemma := p.arch == "gemma3"
	perHead := gemma || p.arch == "qwen3"
	q, kv := p.queryWidth(), p.kvWidth()
	ly.attnNorm = norm("attn_norm", true, p.width)
	ly.ffnNorm = norm("ffn_norm", true, p.width)
	if perHead {
		ly.qNorm = norm("attn_q_norm", true, p.headDim)
		ly.kNorm = norm("attn_k_norm", true, p.headDim)
	}
	if gemma {
		ly.attnPost = norm("post_attention_norm", true, p.width)
		ly.ffnPost = norm("post_ffw_norm", true, p.width)
	}
	ly.qkv = newOp(matrix("attn_q", q, p.width), matrix("attn_k", kv, p.width), matrix("attn_v", kv, p.width))
	ly.out = newOp(matrix("attn_output", p.width, q))
	ly.gateUp = newTwins(matrix("ffn_gate", p.ffn, p.width), matrix("ffn_up", p.ffn, p.width), m.k.R)
	ly.down = newOp(matrix("ffn_down", p.width, p.ffn))

	ly.qBias, ly.kBias, ly.vBias = bias("attn_q", q), bias("attn_k", kv), bias("attn_v", kv)
	if p.arch == "llama" {
		ly.oBias, ly.downBias = bias("attn_output", p.width), bias("ffn_down", p.width)
		ly.gateBias, ly.upBias = bias("ffn_gate", p.ffn), bias("ffn_up", p.ffn)
	}
}

// refuseRest refuses tensors that the architecture has no use for.
func (l *loader) refuseRest() {
	for _, t := range l.f.Tensors() {
		// Old converters wrote the rotation's angles, which follow from the metadata.
		harmless := strings.HasSuffix(t.Name, ".attn_rot_embd") || strings.HasSuffix(t.Name, ".rotary_emb.inv_freq")
		if !l.taken[t.Name] && !harmless {
			l.fail(unsupported("tensor %q is not one the built-in engine uses for this architecture; use --device with a llama-server", t.Name))
		}
	}
}

// pack packs all matrices, in as many goroutines as there are cores, and
// gives the file's pages back. It refuses a file of which something was not taken.
func (l *loader) pack(progress func(done, total int64)) error {
	if l.refuseRest(); l.err != nil {
		return l.err
	}
	var total int64
	for _, p := range l.parts {
		total += p.bytes()
	}
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		mu   sync.Mutex
		done int64
		errs error
	)
	one := func(p part) {
		err := l.k.PackRows(p.m, p.t.Data(), p.from, p.to)
		if p.left.Add(-1) == 0 {
			l.f.Drop(p.t)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil && errs == nil {
			errs = fmt.Errorf("tensor %q: %w", p.t.Name, err)
		}
		done += p.bytes()
		if progress != nil {
			progress(done, total)
		}
	}
	for range min(runtime.GOMAXPROCS(0), len(l.parts)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(l.parts)); i = next.Add(1) - 1 {
				one(l.parts[i])
			}
		})
	}
	wg.Wait()
	return errs
}

// bytes returns the size of a part in the file.
func (p part) bytes() int64 {
	return int64(len(p.t.Data())) * int64(p.to-p.from) / int64(p.m.Rows())
}
