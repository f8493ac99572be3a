package conversion

import (
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime"
	"sync"

	"onebit/engine/gguf"
	"onebit/engine/tensor"
)

// HadamardKey marks a file whose Q4_0 weights are rotated; its value is the size of the rotated blocks, 32.
const HadamardKey = "onebit.hadamard_q4_0"

const (
	rotation = 32  // inputs that are rotated together
	maxError = 0.2 // of a rotated tensor against its source, as a share of its norm; normal weights reach 0.09
)

// rotated lists the weights that are multiplied with a vector of activations, which the backend rotates likewise.
// Embeddings are looked up, the output matrix and the router of experts want more bits: they are not among them.
var rotated = regexp.MustCompile(`^blk\.\d+\.(attn_(q|k|v|qkv|output|gate)|ffn_(gate|up|down|gate_up)(_exps|_shexp)?|ssm_(in|out))\.weight$`)

// fine lists the float matrices that are stored as Q8_0 in a rotated file.
var fine = regexp.MustCompile(`^(token_embd|output)\.weight$`)

// Hadamard says how a rotated file is made.
type Hadamard struct {
	In, Out string // GGUF files; In may be a folder with one model
	Imatrix string // importance of the inputs, a GGUF file from llama-imatrix; may be empty
	Workers int    // threads; 0 is one for each core
	Log     Log
}

// Write writes a file in which the weights of the matrix products are Q4_0 after their input dimension was turned, 32
// values at a time, by the normalised Walsh-Hadamard matrix, its own inverse. Then it reads the file back, turns
// every Q4_0 tensor back and compares it with its source; a file that differs too much is deleted.
func (h Hadamard) Write() error {
	if err := distinct(h.Out, h.In, h.Imatrix); err != nil {
		return err
	}
	in, err := open(h.In)
	if err != nil {
		return err
	}
	defer leave(in)
	weights, err := readImatrix(h.Imatrix)
	if err != nil {
		return err
	}
	w, n, err := h.plan(in)
	if err != nil {
		return fmt.Errorf("rotating %q: %w", h.In, err)
	}
	v := verifier{in: in, importance: weights, workers: h.workers()}
	if err := write(w, h.Out, v.check); err != nil {
		return err
	}
	info, err := os.Stat(h.Out)
	if err != nil {
		return err
	}
	h.Log.say("%s: %d tensors rotated, %.1f GiB; error of the weights %.4f of their norm, at most %.4f (%s)",
		h.Out, n, float64(info.Size())/(1<<30), v.all.relative(), v.worst, v.worstName)
	if h.Imatrix != "" {
		h.Log.say("weighted by the importance of the inputs: %.4f; %d tensors have none", v.weighted.relative(), v.without)
	}
	return nil
}

func (h Hadamard) workers() int {
	if h.Workers > 0 {
		return h.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// plan returns a Writer of the new file and the number of rotated tensors.
func (h Hadamard) plan(in *gguf.File) (*gguf.Writer, int, error) {
	if _, ok := in.Value(HadamardKey); ok {
		return nil, 0, fmt.Errorf("it is rotated already (%s)", HadamardKey)
	}
	w := gguf.NewWriter()
	if err := copyKeys(w, in); err != nil {
		return nil, 0, err
	}
	if err := setAll(w, []pair{
		{HadamardKey, uint32(rotation)}, {"general.file_type", uint32(2)}, {"general.quantization_version", uint32(2)},
	}); err != nil {
		return nil, 0, err
	}
	n := 0
	for _, t := range in.Tensors() {
		to, turn, err := h.target(t)
		if err != nil {
			return nil, 0, err
		}
		if turn {
			n++
		}
		if err := w.AddFunc(t.Name, to, t.Shape, func(out io.Writer) error {
			defer in.Drop(t)
			if to == t.Type && !turn {
				_, err := out.Write(t.Data())
				return err
			}
			return recode(out, t, to, turn, h.workers())
		}); err != nil {
			return nil, 0, err
		}
	}
	if n == 0 {
		return nil, 0, fmt.Errorf("it has no weight to rotate")
	}
	return w, n, nil
}

// target returns the type that a tensor gets, and whether it is rotated.
func (h Hadamard) target(t *gguf.Tensor) (to gguf.Type, turn bool, err error) {
	if !t.Type.Known() {
		return 0, false, fmt.Errorf("tensor %q has the unknown %v", t.Name, t.Type)
	}
	_, _, readable := tensor.Type(t.Type).Block()
	fits := len(t.Shape) >= 2 && t.Shape[0]%rotation == 0
	switch {
	case rotated.MatchString(t.Name) && fits:
		if !readable {
			return 0, false, fmt.Errorf("tensor %q is %v, which cannot be read here: start from a file in F16, BF16 or Q8_0", t.Name, t.Type)
		}
		return gguf.Q4_0, true, nil
	case rotated.MatchString(t.Name):
		h.Log.say("%s of shape %v has no whole blocks of %d: left as %v", t.Name, t.Shape, rotation, t.Type)
	case t.Type == gguf.Q4_0: // every Q4_0 tensor of the new file must be a rotated one
		return gguf.Q8_0, false, nil
	case fine.MatchString(t.Name) && fits && (t.Type == gguf.F32 || t.Type == gguf.F16 || t.Type == gguf.BF16):
		return gguf.Q8_0, false, nil
	}
	return t.Type, false, nil
}

// piece is the number of weights that one worker takes at a time, a multiple of every block.
const piece = 1 << 16

// recode writes a tensor's weights in another type, rotated or not. Workers share the pieces; a few are in memory at a time.
func recode(out io.Writer, t *gguf.Tensor, to gguf.Type, turn bool, workers int) error {
	group := make([][]byte, workers)
	errs := make([]error, workers)
	total := int(t.Elements())
	for from := 0; from < total; from += workers * piece {
		var wg sync.WaitGroup
		for i := range workers {
			group[i] = group[i][:0]
			lo := from + i*piece
			if lo >= total {
				continue
			}
			wg.Go(func() { group[i], errs[i] = recodePiece(group[i], t, to, turn, lo, min(lo+piece, total)) })
		}
		wg.Wait()
		for i, b := range group {
			if errs[i] != nil {
				return errs[i]
			}
			if _, err := out.Write(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// recodePiece appends the weights lo to hi of a tensor to b, as blocks of another type.
func recodePiece(b []byte, t *gguf.Tensor, to gguf.Type, turn bool, lo, hi int) ([]byte, error) {
	v, err := weightsOf(t, lo, hi)
	if err != nil {
		return nil, err
	}
	elems, size, _ := to.Block()
	if need := (hi - lo) / elems * size; cap(b) < need {
		b = make([]byte, need)
	} else {
		b = b[:need]
	}
	if !turn {
		return b, tensor.Quantize(tensor.Type(to), v, b)
	}
	for i := 0; i < len(v); i += rotation {
		turnBlock(v[i:][:rotation])
	}
	bestQ40(v, b)
	return b, nil
}

// weightsOf returns the weights lo to hi of a tensor; both are multiples of the type's block.
func weightsOf(t *gguf.Tensor, lo, hi int) ([]float32, error) {
	elems, size, ok := tensor.Type(t.Type).Block()
	if !ok {
		return nil, fmt.Errorf("tensor %q is %v, which cannot be read here", t.Name, t.Type)
	}
	v := make([]float32, hi-lo)
	if err := tensor.Dequantize(tensor.Type(t.Type), t.Data()[lo/elems*size:hi/elems*size], v); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	for _, x := range v {
		if x-x != 0 {
			return nil, fmt.Errorf("tensor %q holds a weight that is no number", t.Name)
		}
	}
	return v, nil
}

// turnBlock multiplies 32 values with the normalised Walsh-Hadamard matrix in natural order. Doing so twice brings the
// values back.
func turnBlock(v []float32) {
	v = v[:rotation]
	for half := 1; half < rotation; half *= 2 {
		for i := 0; i < rotation; i += 2 * half {
			for j := i; j < i+half; j++ {
				v[j], v[j+half] = v[j]+v[j+half], v[j]-v[j+half]
			}
		}
	}
	for i := range v {
		v[i] *= float32(1 / math.Sqrt2 / 4) // 1/sqrt(32)
	}
}

// bestQ40 writes v as blocks of Q4_0. Each block's scale is the one, of a few around the extreme value over the lowest
// step, that leaves the least squared error once it is fitted to the steps that it gives.
func bestQ40(v []float32, b []byte) {
	_, size, _ := tensor.Q4_0.Block()
	for ; len(v) > 0; v, b = v[rotation:], b[size:] {
		block := v[:rotation]
		top := extreme(block)
		best, most := float32(0), float32(-1)
		for _, steps := range [...]float32{-8, -7.6, -7.2, -8.4, -8.8, -9.2, 7.6, 8} {
			if top == 0 {
				break
			}
			// With the scale dot/norm the squared error is that of a block of zeros less dot*dot/norm.
			dot, norm := fit(block, steps/top)
			if norm > 0 && dot*dot/norm > most {
				best, most = dot/norm, dot*dot/norm
			}
		}
		putQ40(block, b[:size], best)
	}
}

// extreme returns the value of the largest magnitude, with its sign.
func extreme(v []float32) (top float32) {
	for _, x := range v {
		if max(x, -x) > max(top, -top) {
			top = x
		}
	}
	return top
}

// nearest returns the step of size 1/inverse that is nearest to x, of -8 to 7.
func nearest(x, inverse float32) float32 {
	const whole = 3 << 22 // numbers of this size have no fraction: adding rounds to even
	return float32(min(max(x*inverse, -8), 7)+whole) - whole
}

// fit returns the products that say how well the steps which a scale gives go with the values.
func fit(v []float32, inverse float32) (dot, norm float32) {
	for _, x := range v {
		q := nearest(x, inverse)
		dot += q * x
		norm += q * q
	}
	return dot, norm
}

// putQ40 writes one block of Q4_0: the scale, then element i in the low and i+16 in the high half of byte i.
func putQ40(v []float32, b []byte, d float32) {
	var stored [1]float32
	_ = tensor.Quantize(tensor.F16, []float32{d}, b[:2]) // one value of F16 is two bytes
	_ = tensor.Dequantize(tensor.F16, b[:2], stored[:])
	inverse := float32(0)
	if stored[0] != 0 {
		inverse = 1 / stored[0]
	}
	for i := range rotation / 2 {
		lo, hi := nearest(v[i], inverse)+8, nearest(v[i+rotation/2], inverse)+8
		b[2+i] = byte(lo) | byte(hi)<<4
	}
}
