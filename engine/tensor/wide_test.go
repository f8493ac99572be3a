package tensor_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"onebit/engine/tensor"
)

// TestMatMulManyTokens: batches for which a level may have other kernels give the bits of single tokens, in whichever
// ranges the panels are taken, at the limits of the integer sums as well.
func TestMatMulManyTokens(t *testing.T) {
	signs := func(pattern uint) func(i int) float32 { // 127 with the signs of a group's four values
		return func(i int) float32 { return 127 - 254*float32(pattern>>(i%4)&1) }
	}
	for _, c := range []struct {
		name               string
		rows, cols, tokens int
		weight             func(i int) int8    // nil = random
		value              func(i int) float32 // nil = random
	}{
		{"random", 75, 96, 26, nil, nil},
		{"more tiles than one call takes", 35, 32, 133, nil, nil},
		{"more bytes than one call takes", 32, 4864, 69, nil, nil},
		{"lowest weights", 32, 64, 13, func(int) int8 { return -128 }, signs(0)},
		{"lowest weights, negative values", 32, 64, 13, func(int) int8 { return -128 }, signs(15)},
		{"highest weights", 32, 64, 13, func(int) int8 { return 127 }, signs(0)},
		{"weights of both signs", 32, 64, 13, func(i int) int8 { return int8(-128 + i%2*255) }, signs(5)},
		{"the same, other values", 32, 64, 13, func(i int) int8 { return int8(-128 + i%2*255) }, signs(10)},
		{"pairs of one sign", 32, 64, 13, func(i int) int8 { return int8(-128 + i/2%2*255) }, signs(12)},
		{"signs of one pair", 32, 64, 13, nil, signs(2)},
		{"signs of the other", 32, 64, 13, nil, signs(8)},
		{"zeros", 32, 64, 13, nil, func(i int) float32 { return float32(i%3 - 1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(12, uint64(c.cols)))
			raw, x := randomRaw(tensor.Q8_0, c.rows*c.cols, r), randomFloats(c.tokens*c.cols, r)
			for i := range c.rows * c.cols {
				if c.weight != nil {
					raw[i/32*34+2+i%32] = byte(c.weight(i))
				}
			}
			for i := range x {
				if c.value != nil {
					x[i] = c.value(i)
				}
			}
			eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
				quantProduct{tensor.Q8_0, c.rows, c.cols, raw, c.tokens, x}.check(t, k, nil)
				sameAsAlone(t, k, raw, x, c.rows, c.cols, c.tokens)
			})
		})
	}
}

// sameAsAlone compares a batch's product, by several ranges of panels, with those of its tokens.
func sameAsAlone(t *testing.T, k *tensor.Kernels, raw []byte, x []float32, rows, cols, tokens int) {
	t.Helper()
	m, err := k.Pack(newArena(t), tensor.Q8_0, rows, cols, raw)
	if err != nil {
		t.Fatal(err)
	}
	ldc := m.PaddedRows() + 3
	want := make([]float32, tokens*ldc)
	for i := range tokens {
		one := x[i*cols:][:cols]
		k.MatMul(want[i*ldc:], ldc, m, pack(k, tensor.Q8_0, one, cols, 1, cols), 1, 0, m.Panels())
	}
	act := pack(k, tensor.Q8_0, x, cols, tokens, cols)
	for _, step := range []int{m.Panels(), 1, 3, 5} {
		got := make([]float32, tokens*ldc)
		for p := 0; p < m.Panels(); p += step {
			k.MatMul(got, ldc, m, act, tokens, p, min(p+step, m.Panels()))
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("%d panels at once: token %d row %d is %g, alone it is %g", step, i/ldc, i%ldc, got[i], want[i])
			}
		}
	}
}

// TestManyTokensNotFinite: infinities and NaN stay with their token in large batches, too.
func TestManyTokensNotFinite(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		const rows, cols, tokens, bad = 32, 64, 14, 7
		r := rand.New(rand.NewPCG(13, 13))
		m, err := k.Pack(newArena(t), tensor.Q8_0, rows, cols, randomRaw(tensor.Q8_0, rows*cols, r))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			x := randomFloats(tokens*cols, r)
			x[bad*cols+33] = float32(v)
			for i, row := range multiplied(k, m, x, tokens) {
				for j, got := range row {
					if finite := got-got == 0; finite != (i != bad) {
						t.Errorf("%g in token %d: token %d row %d is %g", v, bad, i, j, got)
					}
				}
			}
		}
	})
}

// TestPlain: what plain kernels packed serves the matrices that need no more.
func TestPlain(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, typ := range quantised {
			const rows, cols, tokens = 33, 256, 25
			r := rand.New(rand.NewPCG(14, uint64(typ)))
			m, err := k.Pack(newArena(t), typ, rows, cols, randomRaw(typ, rows*cols, r))
			if err != nil {
				t.Fatal(err)
			}
			with := k.Plain()
			if m.Together() > 1 {
				with = k
			}
			x := randomFloats(tokens*cols, r)
			got, want := make([]float32, tokens*m.PaddedRows()), make([]float32, tokens*m.PaddedRows())
			k.MatMul(got, m.PaddedRows(), m, pack(with, typ, x, cols, tokens, cols), tokens, 0, m.Panels())
			k.Plain().MatMul(want, m.PaddedRows(), m, pack(k.Plain(), typ, x, cols, tokens, cols), tokens, 0, m.Panels())
			for i := range got {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%v: value %d is %g, with plain kernels alone it is %g", typ, i, got[i], want[i])
				}
			}
		}
	})
}
