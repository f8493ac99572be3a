package tensor_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"onebit/engine/tensor"
)

// TestPackInPieces: rows packed in pieces and in any order give the same matrix.
func TestPackInPieces(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, typ := range tensor.Types() {
			r := rand.New(rand.NewPCG(4, uint64(typ)))
			const rows, cols = 53, 512
			raw := randomRaw(typ, rows*cols, r)
			whole, err := k.Pack(newArena(t), typ, rows, cols, raw)
			if err != nil {
				t.Fatal(err)
			}
			pieces, err := k.NewMatrix(newArena(t), typ, rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			for _, cut := range [][2]int{{48, 53}, {0, 16}, {16, 48}} {
				if err := k.PackRows(pieces, raw, cut[0], cut[1]); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := pieces.PackedBytes(), whole.PackedBytes(); string(got) != string(want) {
				t.Errorf("%v: the pieces differ from the whole", typ)
			}
			if whole.Rows() != rows || whole.Cols() != cols || whole.Type() != typ || whole.PaddedRows()%k.R != 0 {
				t.Errorf("%v: the matrix says %d x %d of %v, padded to %d", typ, whole.Rows(), whole.Cols(), whole.Type(), whole.PaddedRows())
			}
		}
	})
}

// TestPackRoundTrip multiplies by unit vectors: every weight comes back.
func TestPackRoundTrip(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, typ := range tensor.Types() {
			r := rand.New(rand.NewPCG(5, uint64(typ)))
			const rows, cols = 19, 256
			values := randomFloats(rows*cols, r)
			elems, size, _ := typ.Block()
			raw := make([]byte, rows*cols/elems*size)
			if err := tensor.Quantize(typ, values, raw); err != nil {
				t.Fatal(err)
			}
			if err := tensor.Dequantize(typ, raw, values); err != nil {
				t.Fatal(err)
			}
			m, err := k.Pack(newArena(t), typ, rows, cols, raw)
			if err != nil {
				t.Fatal(err)
			}
			unit := make([]float32, cols*cols)
			for i := range cols {
				unit[i*cols+i] = 127
			}
			ldc := m.PaddedRows()
			dst := make([]float32, cols*ldc)
			k.MatMul(dst, ldc, m, pack(k, typ, unit, cols, cols, cols), cols, 0, m.Panels())
			for row := range rows {
				for c := range cols {
					got, want := float64(dst[c*ldc+row]), 127*float64(values[row*cols+c])
					if math.Abs(got-want) > 1e-4*(1+math.Abs(want)) {
						t.Fatalf("%v: weight %d of row %d is %g, want %g", typ, c, row, got/127, want/127)
					}
				}
			}
		}
	})
}

func TestPackRefuses(t *testing.T) {
	k, err := tensor.For(tensor.Generic)
	if err != nil {
		t.Fatal(err)
	}
	a := newArena(t)
	for _, c := range []struct {
		name       string
		typ        tensor.Type
		rows, cols int
		bytes      int
	}{
		{"an unknown type", 77, 8, 256, 1},
		{"no rows", tensor.Q8_0, 0, 32, 0},
		{"no columns", tensor.Q8_0, 1, 0, 0},
		{"half a block", tensor.Q4_K, 1, 128, 72},
		{"too few bytes", tensor.Q8_0, 1, 32, 33},
		{"too many bytes", tensor.Q8_0, 1, 32, 35},
		{"a size that overflows", tensor.F32, 1 << 40, 1 << 40, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := k.Pack(a, c.typ, c.rows, c.cols, make([]byte, c.bytes)); err == nil {
				t.Error("it was packed")
			}
		})
	}
	m, err := k.NewMatrix(a, tensor.Q8_0, 20, 32)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]int{{-8, 8}, {4, 8}, {0, 4}, {0, 21}, {16, 28}} {
		if err := k.PackRows(m, make([]byte, 20*34), c[0], c[1]); err == nil {
			t.Errorf("rows %d to %d were packed", c[0], c[1])
		}
	}
}

// TestQuantizeError bounds the loss of each type on normal values.
func TestQuantizeError(t *testing.T) {
	limits := map[tensor.Type]float64{ // root mean square of the error over that of the values
		tensor.F32: 0, tensor.F16: 3e-4, tensor.BF16: 3e-3, tensor.Q8_0: 0.006,
		tensor.Q4_0: 0.11, tensor.Q4_1: 0.09, tensor.Q5_0: 0.055, tensor.Q5_1: 0.045,
		tensor.Q4_K: 0.09, tensor.Q5_K: 0.045, tensor.Q6_K: 0.025,
	}
	for _, typ := range tensor.Types() {
		t.Run(typ.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(6, uint64(typ)))
			want := randomFloats(64<<10, r)
			got := roundTrip(t, typ, want)
			loss, size := 0.0, 0.0
			for i, v := range want {
				e := float64(got[i]) - float64(v)
				loss += e * e
				size += float64(v) * float64(v)
			}
			if e := math.Sqrt(loss / size); e > limits[typ] || typ != tensor.F32 && e < limits[typ]/3 {
				t.Errorf("the relative error is %.5f, the limit %g", e, limits[typ])
			}
		})
	}
}

// TestQuantizeSpecial: blocks without a range, and values of one sign.
func TestQuantizeSpecial(t *testing.T) {
	for _, typ := range tensor.Types() {
		for _, v := range []float32{0, 1, -1, 0.25, -512} {
			t.Run(fmt.Sprintf("%v of %g", typ, v), func(t *testing.T) {
				x := make([]float32, 256)
				for i := range x {
					x[i] = v
				}
				for i, got := range roundTrip(t, typ, x) {
					if math.Abs(float64(got-v)) > 0.01*math.Abs(float64(v)) {
						t.Fatalf("value %d is %g", i, got)
					}
				}
			})
		}
	}
}

func roundTrip(t *testing.T, typ tensor.Type, x []float32) []float32 {
	t.Helper()
	elems, size, _ := typ.Block()
	raw := make([]byte, len(x)/elems*size)
	if err := tensor.Quantize(typ, x, raw); err != nil {
		t.Fatal(err)
	}
	y := make([]float32, len(x))
	if err := tensor.Dequantize(typ, raw, y); err != nil {
		t.Fatal(err)
	}
	return y
}

func TestQuantizeRefuses(t *testing.T) {
	if err := tensor.Quantize(tensor.Q4_K, make([]float32, 255), make([]byte, 144)); err == nil {
		t.Error("255 weights of Q4_K were written")
	}
	if err := tensor.Dequantize(tensor.Q4_K, make([]byte, 143), make([]float32, 256)); err == nil {
		t.Error("143 bytes of Q4_K were read")
	}
	if err := tensor.Dequantize(77, nil, nil); err == nil {
		t.Error("type 77 was read")
	}
}
