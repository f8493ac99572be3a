package tensor

import (
	"fmt"
	"math"
	"sync/atomic"
)

// opsTable holds the element-wise operations of one level. Every function
// works on slices of equal length (cos and sin are half as long as x), which
// may be empty unless said otherwise, and reads its inputs before it writes
// the same index of dst, so dst may be one of them.
type opsTable struct {
	rmsNorm   func(dst, x, w []float32, eps float32) // w may be nil: ones
	layerNorm func(dst, x, w, b []float32, eps float32)

	add       func(dst, x []float32)
	mul       func(dst, x []float32)
	scale     func(dst []float32, s float32)
	addScaled func(dst, x []float32, s float32)
	scaleAdd  func(dst []float32, s float32, x []float32)

	siluMul func(dst, gate, up []float32)
	geluMul func(dst, gate, up []float32)
	gelu    func(dst, x []float32)
	geluErf func(dst, x []float32)
	softcap func(x []float32, limit float32)

	ropeNeox func(x, cos, sin []float32)
	ropeNorm func(x, cos, sin []float32)

	maximum func(x []float32) float32
	expSum  func(x []float32, maximum float32) float32
	dot     func(a, b []float32) float32

	toF16    func(dst []uint16, x []float32)
	fromF16  func(dst []float32, x []uint16)
	toBF16   func(dst []uint16, x []float32)
	fromBF16 func(dst []float32, x []uint16)

	scatter func(dst []uint16, stride int, x []float32)
	readSum func(b []byte) uint64 // the length is a multiple of 512
}

// RMSNorm stores x/sqrt(mean(x*x)+eps)*w in dst. All have the same length; a
// nil w stands for ones. dst may be x.
func (k *Kernels) RMSNorm(dst, x, w []float32, eps float32) {
	n := len(dst)
	if w != nil {
		w = w[:n]
	}
	k.ops.rmsNorm(dst, x[:n], w, eps)
}

// LayerNorm stores (x-mean(x))/sqrt(var(x)+eps)*w+b in dst. All have the same
// length; a nil w stands for ones and a nil b for zeros. dst may be x.
func (k *Kernels) LayerNorm(dst, x, w, b []float32, eps float32) {
	n := len(dst)
	if w != nil {
		w = w[:n]
	}
	if b != nil {
		b = b[:n]
	}
	k.ops.layerNorm(dst, x[:n], w, b, eps)
}

// Add adds x to dst.
func (k *Kernels) Add(dst, x []float32) { k.ops.add(dst, x[:len(dst)]) }

// Mul multiplies dst by x.
func (k *Kernels) Mul(dst, x []float32) { k.ops.mul(dst, x[:len(dst)]) }

// Scale multiplies dst by s.
func (k *Kernels) Scale(dst []float32, s float32) { k.ops.scale(dst, s) }

// AddScaled adds s*x to dst.
func (k *Kernels) AddScaled(dst, x []float32, s float32) { k.ops.addScaled(dst, x[:len(dst)], s) }

// ScaleAdd stores dst*s + x in dst.
func (k *Kernels) ScaleAdd(dst []float32, s float32, x []float32) {
	k.ops.scaleAdd(dst, s, x[:len(dst)])
}

// SiLUMul stores gate*sigmoid(gate)*up in dst, which may be gate or up.
func (k *Kernels) SiLUMul(dst, gate, up []float32) {
	k.ops.siluMul(dst, gate[:len(dst)], up[:len(dst)])
}

// GELUMul stores GELU(gate)*up in dst, which may be gate or up; see GELU.
func (k *Kernels) GELUMul(dst, gate, up []float32) {
	k.ops.geluMul(dst, gate[:len(dst)], up[:len(dst)])
}

// GELU stores 0.5*x*(1+tanh(sqrt(2/pi)*(x+0.044715*x^3))) in dst, which may be x.
func (k *Kernels) GELU(dst, x []float32) { k.ops.gelu(dst, x[:len(dst)]) }

// GELUErf stores 0.5*x*(1+erf(x/sqrt(2))) in dst, which may be x.
func (k *Kernels) GELUErf(dst, x []float32) { k.ops.geluErf(dst, x[:len(dst)]) }

// Softcap stores limit*tanh(x/limit) in x.
func (k *Kernels) Softcap(x []float32, limit float32) { k.ops.softcap(x, limit) }

// RoPENeox rotates the pairs (x[i], x[i+n]) of one head by the angle whose
// cosine and sine are cos[i] and sin[i], for i < n = len(cos). Elements of x from
// 2n on stay as they are.
func (k *Kernels) RoPENeox(x, cos, sin []float32) {
	k.ops.ropeNeox(x[:2*len(cos)], cos, sin[:len(cos)])
}

// RoPENorm rotates the pairs (x[2i], x[2i+1]); otherwise it is like RoPENeox.
func (k *Kernels) RoPENorm(x, cos, sin []float32) {
	k.ops.ropeNorm(x[:2*len(cos)], cos, sin[:len(cos)])
}

// Max returns the largest element of x. NaN elements are passed over; without
// any other the result is minus infinity.
func (k *Kernels) Max(x []float32) float32 { return k.ops.maximum(x) }

// ExpSum replaces each x by exp(x-max) and returns the sum. No x may be
// greater than max; minus infinity becomes zero, as does anything that has
// no normal float32.
func (k *Kernels) ExpSum(x []float32, max float32) float32 { return k.ops.expSum(x, max) }

// Dot returns the sum of a*b over the length of a.
func (k *Kernels) Dot(a, b []float32) float32 { return k.ops.dot(a, b[:len(a)]) }

// ToF16 rounds x to half precision, to nearest and ties to even. Magnitudes
// over 65504, infinity too, become 65504; NaN stays NaN.
func (k *Kernels) ToF16(dst []uint16, x []float32) { k.ops.toF16(dst, x[:len(dst)]) }

// FromF16 widens half-precision numbers.
func (k *Kernels) FromF16(dst []float32, x []uint16) { k.ops.fromF16(dst, x[:len(dst)]) }

// ToBF16 rounds x to bfloat16, to nearest and ties to even.
func (k *Kernels) ToBF16(dst []uint16, x []float32) { k.ops.toBF16(dst, x[:len(dst)]) }

// FromBF16 widens bfloat16 numbers.
func (k *Kernels) FromBF16(dst []float32, x []uint16) { k.ops.fromBF16(dst, x[:len(dst)]) }

// ScatterF16 stores x in half precision, as ToF16 rounds it, at dst[0],
// dst[stride], dst[2*stride] and so on: one lane of a panel.
func (k *Kernels) ScatterF16(dst []uint16, stride int, x []float32) {
	if len(x) > 0 && (stride < 0 || len(dst) <= (len(x)-1)*stride) {
		panic(fmt.Sprintf("tensor: %d elements %d apart do not fit into %d", len(x), stride, len(dst)))
	}
	k.ops.scatter(dst, stride, x)
}

// ArgMax returns the index of the largest element of x, the first one among
// equals. NaN elements are passed over; it is 0 when there is no other.
func (k *Kernels) ArgMax(x []float32) int {
	const block = 1024
	largest, from := float32(math.Inf(-1)), 0
	for i := 0; i < len(x); i += block {
		if m := k.ops.maximum(x[i:min(i+block, len(x))]); m > largest {
			largest, from = m, i
		}
	}
	for i, v := range x[from:] {
		if v == largest {
			return from + i
		}
	}
	return 0
}

// ReadSum adds up the 64-bit little-endian words of b with all workers of a
// team, and leaves out what is over a multiple of 512 bytes. Its speed on a
// buffer much larger than the caches is the memory bandwidth that the product
// with one token is held against.
func (k *Kernels) ReadSum(team *Team, b []byte) uint64 {
	const unit, grain = 512, 1024 // a grain of half a MiB
	var total atomic.Uint64
	team.Run(func(w *Worker) {
		sum := uint64(0)
		w.Each(len(b)/unit, grain, func(from, to int) { sum += k.ops.readSum(b[from*unit : to*unit]) })
		total.Add(sum)
	})
	return total.Load()
}
