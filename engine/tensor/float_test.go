package tensor_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"onebit/engine/tensor"
)

// product is a random half-precision product and its exact result.
type product struct {
	panels, depth, stride, lda, ldc, tokens int

	w    []uint16
	x    []float32
	want []float64 // [tokens][panels*R]
	size []float64 // sum of the magnitudes
}

func newProduct(k *tensor.Kernels, r *rand.Rand, panels, depth, tokens int) *product {
	p := &product{panels: panels, depth: depth, tokens: tokens}
	p.stride = depth*k.R + 8*r.IntN(3)
	p.lda = depth + r.IntN(9)
	p.ldc = panels*k.R + r.IntN(9)
	w := randomFloats((panels-1)*p.stride+depth*k.R, r)
	p.w = make([]uint16, len(w))
	k.ToF16(p.w, w)
	k.FromF16(w, p.w)
	p.x = randomFloats((tokens-1)*p.lda+depth, r)
	p.want = make([]float64, tokens*panels*k.R)
	p.size = make([]float64, len(p.want))
	for t := range tokens {
		for row := range panels * k.R {
			at := row/k.R*p.stride + row%k.R
			for i := range depth {
				v := float64(p.x[t*p.lda+i]) * float64(w[at+i*k.R])
				p.want[t*panels*k.R+row] += v
				p.size[t*panels*k.R+row] += math.Abs(v)
			}
		}
	}
	return p
}

// run multiplies count tokens from the given one on into a fresh result whose
// gaps hold a mark.
func (p *product) run(k *tensor.Kernels, from, count int) []float32 {
	dst := make([]float32, (count-1)*p.ldc+p.panels*k.R)
	for i := range dst {
		dst[i] = mark
	}
	k.MatMulF16(dst, p.ldc, p.w, p.panels, p.depth, p.stride, p.x[from*p.lda:], p.lda, count)
	return dst
}

const mark = 12345

func TestMatMulF16(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, panels := range []int{1, 2, 3, 4, 7, 9} {
			for _, depth := range []int{1, 2, 3, 4, 5, 31} {
				for _, tokens := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17, 21} {
					p := newProduct(k, r, panels, depth, tokens)
					p.check(t, k)
				}
			}
		}
		for _, depth := range []int{1024, 5000} {
			newProduct(k, r, 9, depth, 13).check(t, k)
		}
	})
}

func (p *product) check(t *testing.T, k *tensor.Kernels) {
	t.Helper()
	name := fmt.Sprintf("panels=%d depth=%d tokens=%d", p.panels, p.depth, p.tokens)
	dst := p.run(k, 0, p.tokens)
	rows := p.panels * k.R
	for i, v := range dst {
		tok, row := i/p.ldc, i%p.ldc
		if row >= rows {
			if v != mark {
				t.Fatalf("%s: wrote into the gap after token %d", name, tok)
			}
			continue
		}
		want, size := p.want[tok*rows+row], p.size[tok*rows+row]
		if math.Abs(float64(v)-want) > 1e-7*size*math.Sqrt(float64(p.depth))+1e-30 {
			t.Fatalf("%s: token %d row %d is %g, want %g", name, tok, row, v, want)
		}
	}
	// A token by itself has the same bits.
	for tok := range p.tokens {
		alone := p.run(k, tok, 1)
		for row := range rows {
			if math.Float32bits(alone[row]) != math.Float32bits(dst[tok*p.ldc+row]) {
				t.Fatalf("%s: token %d row %d is %g alone and %g in the batch", name, tok, row, alone[row], dst[tok*p.ldc+row])
			}
		}
	}
}

// TestMatMulF32 compares the panels of single-precision numbers with those of half precision that mean the same.
func TestMatMulF32(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		r := rand.New(rand.NewPCG(5, 6))
		for _, panels := range []int{1, 2, 4, 5} {
			for _, depth := range []int{1, 7, 32} {
				for _, tokens := range []int{1, 5, 6, 13} {
					p := newProduct(k, r, panels, depth, tokens)
					wide, want := make([]float32, len(p.w)), p.run(k, 0, tokens)
					k.FromF16(wide, p.w)
					got := make([]float32, len(want))
					for i := range got {
						got[i] = mark
					}
					k.MatMulF32(got, p.ldc, wide, panels, depth, p.stride, p.x, p.lda, tokens)
					for i := range want {
						if got[i] != want[i] {
							t.Fatalf("panels=%d depth=%d tokens=%d: index %d is %g, in half precision %g", panels, depth, tokens, i, got[i], want[i])
						}
					}
				}
			}
		}
		dst := []float32{mark}
		k.MatMulF32(dst, 16, nil, 1, 4, 0, nil, 0, 0)
		if dst[0] != mark {
			t.Error("a product without tokens changed the result")
		}
	})
}

func TestAddMatMulF16(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		r := rand.New(rand.NewPCG(3, 4))
		for _, panels := range []int{1, 2, 3, 4, 7} {
			for tokens := 1; tokens <= 14; tokens++ {
				p := newProduct(k, r, panels, 21, tokens)
				dst := p.run(k, 0, tokens)
				// The sum cut in two is the sum in one go, bit for bit.
				cut := make([]float32, len(dst))
				k.MatMulF16(cut, p.ldc, p.w, panels, 9, p.stride, p.x, p.lda, tokens)
				k.AddMatMulF16(cut, p.ldc, p.w[9*k.R:], panels, 12, p.stride, p.x[9:], p.lda, tokens)
				for i := range dst {
					if dst[i] != cut[i] && dst[i] != mark {
						t.Fatalf("panels=%d tokens=%d: index %d is %g, in one go %g", panels, tokens, i, cut[i], dst[i])
					}
				}
			}
		}
	})
}

func TestMatMulF16OfNothing(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		dst := []float32{0: mark, 31: mark}
		k.MatMulF16(dst, 16, nil, 1, 4, 0, nil, 0, 0)
		k.MatMulF16(dst, 16, nil, 0, 4, 0, nil, 0, 1)
		k.AddMatMulF16(dst, 16, nil, 1, 0, 0, nil, 0, 2)
		if dst[0] != mark || dst[31] != mark {
			t.Error("a product without tokens, panels or new terms changed the result")
		}
		k.MatMulF16(dst, 16, nil, 1, 0, 0, nil, 0, 2)
		if dst[0] != 0 {
			t.Errorf("the empty sum is %g", dst[0])
		}
	})
}

func TestMatMulF16ChecksItsSlices(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		const panels, depth, tokens = 3, 8, 5
		w := make([]uint16, panels*depth*k.R)
		x := make([]float32, tokens*depth)
		dst := make([]float32, tokens*panels*k.R)
		for _, tt := range []struct {
			name      string
			dst, x, w int
		}{{"dst", 1, 0, 0}, {"x", 0, 1, 0}, {"w", 0, 0, 1}} {
			if catch(func() {
				k.MatMulF16(dst[tt.dst:], panels*k.R, w[tt.w:], panels, depth, depth*k.R, x[tt.x:], depth, tokens)
			}) == nil {
				t.Errorf("no panic with %s one short", tt.name)
			}
		}
	})
}

// TestMatMulFloat runs the float kernels on packed matrices, whose rows are
// not a multiple of the panel and whose batches leave every rest.
func TestMatMulFloat(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, typ := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16} {
			t.Run(typ.String(), func(t *testing.T) {
				r := rand.New(rand.NewPCG(17, 18))
				for _, rows := range []int{1, 7, 16, 33, 100} {
					for _, cols := range []int{1, 3, 32, 66} {
						checkFloatMatrix(t, k, r, typ, rows, cols)
					}
				}
			})
		}
	})
}

func checkFloatMatrix(t *testing.T, k *tensor.Kernels, r *rand.Rand, typ tensor.Type, rows, cols int) {
	t.Helper()
	const tokens = 29
	_, size, _ := typ.Block()
	raw := make([]byte, rows*cols*size)
	if err := tensor.Quantize(typ, randomFloats(rows*cols, r), raw); err != nil {
		t.Fatal(err)
	}
	w := make([]float32, rows*cols)
	if err := tensor.Dequantize(typ, raw, w); err != nil {
		t.Fatal(err)
	}
	a := tensor.NewArena()
	defer a.Close()
	m, err := k.Pack(a, typ, rows, cols, raw)
	if err != nil {
		t.Fatal(err)
	}
	stride := cols + 3
	x := randomFloats(tokens*stride, r)
	run := func(from, n int) []float32 {
		dst := make([]float32, n*m.PaddedRows())
		k.MatMul(dst, m.PaddedRows(), m, tensor.Activations{X: x[from*stride:], Stride: stride}, n, 0, m.Panels())
		return dst
	}
	one := make([][]float32, tokens)
	for tok := range tokens {
		one[tok] = run(tok, 1)
		for row := range rows {
			var want, sum float64
			for i := range cols {
				v := float64(w[row*cols+i]) * float64(x[tok*stride+i])
				want += v
				sum += math.Abs(v)
			}
			if got := float64(one[tok][row]); math.Abs(got-want) > 1e-6*sum {
				t.Fatalf("%dx%d: token %d row %d is %g, want %g", rows, cols, tok, row, got, want)
			}
		}
	}
	for n := 1; n <= tokens; n++ {
		for i, v := range run(0, n) {
			if tok, row := i/m.PaddedRows(), i%m.PaddedRows(); math.Float32bits(v) != math.Float32bits(one[tok][row]) {
				t.Fatalf("%dx%d, %d tokens: token %d row %d is %g, alone %g", rows, cols, n, tok, row, v, one[tok][row])
			}
		}
	}
}
