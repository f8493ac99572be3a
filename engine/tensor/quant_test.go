package tensor_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"onebit/engine/tensor"
)

var quantised = []tensor.Type{
	tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q8_0, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K,
}

// eachLevel runs f for every level that this machine has.
func eachLevel(t *testing.T, f func(t *testing.T, k *tensor.Kernels)) {
	t.Helper()
	for _, level := range tensor.Levels() {
		k, err := tensor.For(level)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(level.String(), func(t *testing.T) {
			t.Log("level", level)
			f(t, k)
		})
	}
}

// newArena returns memory that the end of the test frees.
func newArena(t *testing.T) *tensor.Arena {
	t.Helper()
	a := tensor.NewArena()
	t.Cleanup(a.Close)
	return a
}

// halves returns where the binary16 numbers of a block are.
func halves(t tensor.Type) []int {
	switch t {
	case tensor.Q4_1, tensor.Q5_1, tensor.Q4_K, tensor.Q5_K:
		return []int{0, 2}
	case tensor.Q6_K:
		return []int{208}
	}
	return []int{0}
}

// randomRaw returns n weights of type t: random bits with scales of a usual size.
func randomRaw(t tensor.Type, n int, r *rand.Rand) []byte {
	elems, size, _ := t.Block()
	raw := make([]byte, n/elems*size)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	for b := 0; b < len(raw); b += size {
		for _, at := range halves(t) {
			// Exponents 2^-9 to 2^-6, either sign.
			binary.LittleEndian.PutUint16(raw[b+at:], uint16(r.Uint32())&0x8fff|uint16(6+r.IntN(4))<<10&0x7c00)
		}
	}
	return raw
}

func randomFloats(n int, r *rand.Rand) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// pack packs activations for k, every tile.
func pack(k *tensor.Kernels, typ tensor.Type, x []float32, stride, tokens, cols int) tensor.Activations {
	act := tensor.Activations{X: x, Stride: stride, Packed: make([]byte, k.ActivationBytes(typ, tokens, cols))}
	if len(act.Packed) > 0 {
		for i := range k.Tiles(tokens) {
			k.PackActivations(act.Packed, x, stride, tokens, cols, i)
		}
	}
	return act
}

// roundActivations returns x as the packed format represents it.
func roundActivations(x []float32) []float64 {
	y := make([]float64, len(x))
	for b := 0; b < len(x); b += 32 {
		top := float32(0)
		for _, v := range x[b : b+32] {
			top = max(top, float32(math.Abs(float64(v))))
		}
		if top < 0x1p-100 { // such blocks become zero
			continue
		}
		for i, v := range x[b : b+32] {
			y[b+i] = float64(top/127) * math.RoundToEven(float64(v*(127/top)))
		}
	}
	return y
}

// quantProduct is a matrix, as a model file has it, and the vectors to multiply by it.
type quantProduct struct {
	typ        tensor.Type
	rows, cols int
	raw        []byte
	tokens     int
	x          []float32
}

// check compares the result with float64 arithmetic on the rounded activations.
// top is the size of the terms that a block of raw weights is made of; where it is
// nil the largest weight of each 32 stands for it.
func (p quantProduct) check(t *testing.T, k *tensor.Kernels, top func(block []byte) float64) {
	t.Helper()
	w := make([]float32, p.rows*p.cols)
	if err := tensor.Dequantize(p.typ, p.raw, w); err != nil {
		t.Fatal(err)
	}
	dst, ldc := p.run(t, k)
	elems, size, _ := p.typ.Block()
	for i := range p.tokens {
		a := roundActivations(p.x[i*p.cols:][:p.cols])
		for row := range p.rows {
			want, terms := 0.0, 0.0
			for b := 0; b < p.cols; b += 32 {
				largest, sum := 0.0, 0.0
				for c := b; c < b+32; c++ {
					v := float64(w[row*p.cols+c])
					want += v * a[c]
					largest = max(largest, math.Abs(v))
					sum += math.Abs(a[c])
				}
				if top != nil {
					largest = top(p.raw[(row*p.cols+b)/elems*size:][:size])
				}
				terms += largest * sum
			}
			got, margin := float64(dst[i*ldc+row]), 1e-6*terms+1e-37
			if math.IsNaN(got) || math.Abs(got-want) > margin {
				t.Fatalf("%v %v %dx%d, %d tokens: token %d row %d is %g, want %g +- %g",
					k.Level, p.typ, p.rows, p.cols, p.tokens, i, row, got, want, margin)
			}
		}
	}
}

// run multiplies, and checks that nothing but the result was written.
func (p quantProduct) run(t *testing.T, k *tensor.Kernels) (dst []float32, ldc int) {
	t.Helper()
	a := tensor.NewArena()
	defer a.Close()
	m, err := k.Pack(a, p.typ, p.rows, p.cols, p.raw)
	if err != nil {
		t.Fatal(err)
	}
	ldc = m.PaddedRows() + 5
	dst = make([]float32, p.tokens*ldc)
	for i := range dst {
		dst[i] = -77
	}
	k.MatMul(dst, ldc, m, pack(k, p.typ, p.x, p.cols, p.tokens, p.cols), p.tokens, 0, m.Panels())
	for i, v := range dst {
		if i%ldc >= m.PaddedRows() && v != -77 {
			t.Fatalf("%v %v %dx%d, %d tokens: column %d past the last panel was written", k.Level, p.typ, p.rows, p.cols, p.tokens, i%ldc)
		}
	}
	return dst, ldc
}

func TestMatMulQuantised(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, typ := range quantised {
			t.Run(typ.String(), func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, uint64(typ)))
				elems, _, _ := typ.Block()
				for _, rows := range []int{1, 7, 16, 17, 33} {
					for _, blocks := range []int{1, 2, 3, 5} {
						cols := blocks * elems
						raw := randomRaw(typ, rows*cols, r)
						for _, tokens := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 25} {
							quantProduct{typ, rows, cols, raw, tokens, randomFloats(tokens*cols, r)}.check(t, k, nil)
						}
					}
				}
			})
		}
	})
}

// TestMatMulExtremes drives the integer sums to their limits, where 16-bit sums
// would saturate if a kernel let them grow too long.
func TestMatMulExtremes(t *testing.T) {
	fill := func(typ tensor.Type, q byte, d uint16) []byte {
		elems, size, _ := typ.Block()
		raw := make([]byte, 9*256/elems*size)
		for i := range raw {
			raw[i] = q
		}
		for b := 0; b < len(raw); b += size {
			for _, at := range halves(typ) {
				binary.LittleEndian.PutUint16(raw[b+at:], d)
			}
		}
		return raw
	}
	values := map[string]func(i int) float32{
		"all 127":   func(int) float32 { return 127 },
		"all -127":  func(int) float32 { return -127 },
		"alternate": func(i int) float32 { return 127 - 254*float32(i%2) },
		"pairs":     func(i int) float32 { return 127 - 254*float32(i/2%2) },
		"zero":      func(int) float32 { return 0 },
		"tiny":      func(i int) float32 { return 1e-40 * float32(i) },
		"one large": func(i int) float32 { return float32(1 + 1e20*float64(i%32/31)) },
	}
	scales := map[string]uint16{"zero": 0, "one": 0x3c00, "largest": 0x7bff, "smallest": 0x0001, "negative": 0xbc00}
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, typ := range quantised {
			for _, q := range []byte{0x00, 0xff, 0x7f, 0x80, 0x55, 0xaa} {
				t.Run(fmt.Sprintf("%v of %#x", typ, q), func(t *testing.T) {
					for scale, d := range scales {
						raw := fill(typ, q, d)
						for name, value := range values {
							t.Logf("scale %s, values %s", scale, name)
							for _, tokens := range []int{1, 2, 3, 4, 6, 8, 12} {
								x := make([]float32, tokens*256)
								for i := range x {
									x[i] = value(i)
								}
								quantProduct{typ, 9, 256, raw, tokens, x}.check(t, k, nil)
							}
						}
					}
				})
			}
		}
	})
}

// TestMatMulNotFinite: infinities and NaN stay with their token, and show.
func TestMatMulNotFinite(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, typ := range quantised {
			r := rand.New(rand.NewPCG(11, uint64(typ)))
			const rows, cols, tokens, bad = 16, 256, 7, 4
			m, err := k.Pack(newArena(t), typ, rows, cols, randomRaw(typ, rows*cols, r))
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				x := randomFloats(tokens*cols, r)
				x[bad*cols+77] = float32(v)
				dst := make([]float32, tokens*m.PaddedRows())
				k.MatMul(dst, m.PaddedRows(), m, pack(k, typ, x, cols, tokens, cols), tokens, 0, m.Panels())
				for i := range tokens * m.PaddedRows() {
					token, row := i/m.PaddedRows(), i%m.PaddedRows()
					if finite := dst[i]-dst[i] == 0; row < rows && finite != (token != bad) {
						t.Errorf("%v, %g in token %d: token %d row %d is %g", typ, v, bad, token, row, dst[i])
					}
				}
			}
		}
	})
}

// TestMatMulBatchInvariant: a token's row has the same bits in every batch.
func TestMatMulBatchInvariant(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, typ := range quantised {
			r := rand.New(rand.NewPCG(2, uint64(typ)))
			const rows, cols, most = 33, 768, 40
			m, err := k.Pack(newArena(t), typ, rows, cols, randomRaw(typ, rows*cols, r))
			if err != nil {
				t.Fatal(err)
			}
			x := randomFloats(most*cols, r)
			ldc := m.PaddedRows()
			want := make([]float32, most*ldc)
			for i := range most {
				one := x[i*cols:][:cols]
				k.MatMul(want[i*ldc:], ldc, m, pack(k, typ, one, cols, 1, cols), 1, 0, m.Panels())
			}
			got := make([]float32, most*ldc)
			for tokens := 1; tokens <= most; tokens++ {
				clear(got)
				act := pack(k, typ, x, cols, tokens, cols)
				for p := range m.Panels() { // by panel: a panel's result stands alone
					k.MatMul(got, ldc, m, act, tokens, p, p+1)
				}
				for i := range tokens * ldc {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%v, batch of %d: token %d row %d is %g, alone it is %g", typ, tokens, i/ldc, i%ldc, got[i], want[i])
					}
				}
				for i, v := range got[tokens*ldc:] {
					if v != 0 {
						t.Fatalf("%v, batch of %d: value %d past the batch was written", typ, tokens, i)
					}
				}
			}
		}
	})
}

// TestPackActivations: every level's quantiser makes the same bytes as the reference.
func TestPackActivations(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		r := rand.New(rand.NewPCG(3, 3))
		const cols, stride = 160, 163
		for tokens := 1; tokens <= 26; tokens++ {
			x := randomFloats(tokens*stride, r)
			for b := range tokens * stride / 32 { // blocks of many sizes, and ties
				scale := float32(math.Ldexp(1, r.IntN(240)-130))
				for i := range 32 {
					x[b*32+i] *= scale
					if b%5 == 0 {
						x[b*32+i] = scale * float32(r.IntN(509)-254) / 2
					}
				}
			}
			for _, before := range []byte{0xee, 0xdd} { // both write the same bytes, and to the same places
				got := bytes.Repeat([]byte{before}, k.ActivationBytes(tensor.Q8_0, tokens, cols))
				want := bytes.Clone(got)
				for i := range k.Tiles(tokens) {
					k.PackActivations(got, x, stride, tokens, cols, i)
					k.ReferenceActivations(want, x, stride, tokens, cols, i)
				}
				for i := range got {
					if got[i] != want[i] {
						t.Fatalf("%d tokens: byte %d is %#x, want %#x", tokens, i, got[i], want[i])
					}
				}
			}
		}
	})
}

// TestActivationExact: values that are whole steps survive the packing, which
// the product with a unit matrix shows.
func TestActivationExact(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		const n = 64
		unit := make([]float32, n*n)
		for i := range n {
			unit[i*n+i] = 127
		}
		raw := make([]byte, n*n/32*34)
		if err := tensor.Quantize(tensor.Q8_0, unit, raw); err != nil {
			t.Fatal(err)
		}
		m, err := k.Pack(newArena(t), tensor.Q8_0, n, n, raw)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, 3*n)
		for i := range x {
			x[i] = float32(i%32*8 - 127)
			if i%32 == 31 {
				x[i] = 127
			}
		}
		dst := make([]float32, 3*m.PaddedRows())
		k.MatMul(dst, m.PaddedRows(), m, pack(k, tensor.Q8_0, x, n, 3, n), 3, 0, m.Panels())
		for i, v := range x {
			if dst[i] != 127*v {
				t.Errorf("value %d is %g, want %g", i, dst[i], 127*v)
			}
		}
	})
}
