package tensor_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"onebit/engine/tensor"
)

// multiplied multiplies the tokens in x by a packed matrix and returns [token][row].
func multiplied(k *tensor.Kernels, m *tensor.Matrix, x []float32, tokens int) [][]float32 {
	cols, ldc := m.Cols(), m.PaddedRows()
	dst := make([]float32, tokens*ldc)
	k.MatMul(dst, ldc, m, pack(k, m.Type(), x, cols, tokens, cols), tokens, 0, m.Panels())
	out := make([][]float32, tokens)
	for t := range out {
		out[t] = dst[t*ldc:][:m.Rows()]
	}
	return out
}

func TestSplit(t *testing.T) {
	const rows, cols, most = 35, 512, 41
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		split := k.Split()
		for _, typ := range quantised {
			t.Run(typ.String(), func(t *testing.T) {
				r := rand.New(rand.NewPCG(3, uint64(typ)))
				raw, x := randomRaw(typ, rows*cols, r), randomFloats(most*cols, r)
				clear(x[cols : cols+32]) // a block of zeros
				x[7] = 40                // and an outlier
				w := make([]float32, rows*cols)
				if err := tensor.Dequantize(typ, raw, w); err != nil {
					t.Fatal(err)
				}
				m, err := k.Pack(newArena(t), typ, rows, cols, raw)
				if err != nil {
					t.Fatal(err)
				}
				whole := multiplied(split, m, x, most)
				worst, plain := offBy(w, x, whole, cols), offBy(w, x, multiplied(k, m, x, most), cols)
				t.Logf("largest error in two parts %.2g, in one %.2g of the norms", worst, plain)
				if worst > 2e-5 || worst > plain/60 {
					t.Errorf("largest error %.3g, in one part %.3g", worst, plain)
				}
				for tokens := 1; tokens < most; tokens++ {
					for i, row := range multiplied(split, m, x, tokens) {
						for j, v := range row {
							if math.Float32bits(v) != math.Float32bits(whole[i][j]) {
								t.Fatalf("token %d, row %d: %v in a batch of %d, %v in one of %d", i, j, v, tokens, whole[i][j], most)
							}
						}
					}
				}
			})
		}
	})
}

// offBy returns the largest difference from float64 arithmetic, as a fraction of the vectors' norms.
func offBy(w, x []float32, got [][]float32, cols int) float64 {
	worst := 0.0
	for t, row := range got {
		for j, v := range row {
			var sum, nw, nx float64
			for c := range cols {
				a, b := float64(w[j*cols+c]), float64(x[t*cols+c])
				sum, nw, nx = sum+a*b, nw+a*a, nx+b*b
			}
			worst = max(worst, math.Abs(sum-float64(v))/math.Sqrt(nw*nx))
		}
	}
	return worst
}

func TestSplitTiles(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		split := k.Split()
		for tokens := range 60 {
			next := 0
			for i := range split.Tiles(tokens) {
				from, to := split.TileSpan(tokens, i)
				if from != next || to <= from {
					t.Fatalf("%d tokens: tile %d is %d to %d, after %d", tokens, i, from, to, next)
				}
				next = to
			}
			if next != tokens {
				t.Fatalf("%d tokens: the tiles end at %d", tokens, next)
			}
		}
	})
}

func TestSplitNotFinite(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		r := rand.New(rand.NewPCG(1, 1))
		m, err := k.Pack(newArena(t), tensor.Q8_0, 16, 64, randomRaw(tensor.Q8_0, 16*64, r))
		if err != nil {
			t.Fatal(err)
		}
		x := randomFloats(64, r)
		x[40] = float32(math.NaN())
		for _, v := range multiplied(k.Split(), m, x, 1)[0] {
			if v == v {
				t.Fatalf("%v came out of a vector with a NaN", v)
			}
		}
	})
}
