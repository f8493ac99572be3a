package tensor_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"onebit/engine/tensor"
)

// streamBytes is more than any processor's cache: what is read comes from memory.
const streamBytes = 256 << 20

// benchLevels runs f for the SIMD levels of this machine, or Generic if it has none.
func benchLevels(b *testing.B, f func(b *testing.B, k *tensor.Kernels)) {
	levels := tensor.Levels()
	if len(levels) > 1 {
		levels = levels[1:]
	}
	for _, level := range levels {
		k, err := tensor.For(level)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(level.String(), func(b *testing.B) { f(b, k) })
	}
}

// benchMatrix packs random weights; the same few rows repeat.
func benchMatrix(b *testing.B, k *tensor.Kernels, a *tensor.Arena, typ tensor.Type, rows, cols int) *tensor.Matrix {
	b.Helper()
	elems, size, _ := typ.Block()
	row := cols / elems * size
	few := randomRaw(typ, 64*cols, rand.New(rand.NewPCG(7, 7)))
	raw := make([]byte, rows*row)
	for i := 0; i < len(raw); i += len(few) {
		copy(raw[i:], few)
	}
	m, err := k.Pack(a, typ, rows, cols, raw)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkRead reads memory with huge pages, a word of each cache line: the
// bandwidth that the products with one token are measured against.
func BenchmarkRead(b *testing.B) {
	a := tensor.NewArena()
	defer a.Close()
	buf := a.Bytes(streamBytes)
	for i := range buf {
		buf[i] = 1
	}
	b.SetBytes(streamBytes)
	sum := uint64(0)
	for b.Loop() {
		for i := 0; i < len(buf); i += 256 {
			line := (*[32]uint64)(unsafe.Pointer(&buf[i]))
			sum += line[0] + line[8] + line[16] + line[24]
		}
	}
	if sum == 0 {
		b.Fatal("nothing was read")
	}
}

// BenchmarkOneToken streams a large matrix from memory.
func BenchmarkOneToken(b *testing.B) {
	const cols = 4096
	benchLevels(b, func(b *testing.B, k *tensor.Kernels) {
		for _, typ := range quantised {
			b.Run(typ.String(), func(b *testing.B) {
				a := tensor.NewArena()
				defer a.Close()
				elems, size, _ := typ.Block()
				rows := streamBytes / (cols / elems * size) &^ 63
				m := benchMatrix(b, k, a, typ, rows, cols)
				act := pack(k, typ, randomFloats(cols, rand.New(rand.NewPCG(8, 8))), cols, 1, cols)
				dst := make([]float32, m.PaddedRows())
				b.SetBytes(int64(m.Bytes()))
				b.ReportAllocs()
				for b.Loop() {
					k.MatMul(dst, len(dst), m, act, 1, 0, m.Panels())
				}
			})
		}
	})
}

// BenchmarkBatch multiplies cached matrices by a prompt's worth of tokens.
func BenchmarkBatch(b *testing.B) {
	benchLevels(b, func(b *testing.B, k *tensor.Kernels) {
		for _, typ := range quantised {
			for _, shape := range [][2]int{{4096, 4096}, {4864, 896}, {896, 4864}} {
				rows, cols := shape[0], shape[1]
				if elems, _, _ := typ.Block(); cols%elems != 0 {
					cols = cols &^ (elems - 1)
				}
				b.Run(fmt.Sprintf("%v/%dx%d", typ, rows, cols), func(b *testing.B) {
					const tokens = 240
					a := tensor.NewArena()
					defer a.Close()
					m := benchMatrix(b, k, a, typ, rows, cols)
					act := pack(k, typ, randomFloats(tokens*cols, rand.New(rand.NewPCG(9, 9))), cols, tokens, cols)
					dst := make([]float32, tokens*m.PaddedRows())
					b.ReportAllocs()
					for b.Loop() {
						k.MatMul(dst, m.PaddedRows(), m, act, tokens, 0, m.Panels())
					}
					ops := 2 * float64(rows) * float64(cols) * tokens
					b.ReportMetric(ops*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GOPS")
				})
			}
		}
	})
}

// BenchmarkPackActivations quantises and interleaves a prompt's worth of tokens.
func BenchmarkPackActivations(b *testing.B) {
	benchLevels(b, func(b *testing.B, k *tensor.Kernels) {
		for _, tokens := range []int{1, 240} {
			b.Run(fmt.Sprint(tokens), func(b *testing.B) {
				const cols = 4096
				x := randomFloats(tokens*cols, rand.New(rand.NewPCG(9, 9)))
				dst := make([]byte, k.ActivationBytes(tensor.Q8_0, tokens, cols))
				b.ReportAllocs()
				for b.Loop() {
					for i := range k.Tiles(tokens) {
						k.PackActivations(dst, x, cols, tokens, cols, i)
					}
				}
				b.ReportMetric(float64(len(x))*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "values/ns")
			})
		}
	})
}

// BenchmarkPack packs weights: the bytes are those of the model file.
func BenchmarkPack(b *testing.B) {
	const rows, cols = 1024, 4096
	benchLevels(b, func(b *testing.B, k *tensor.Kernels) {
		for _, typ := range tensor.Types() {
			b.Run(typ.String(), func(b *testing.B) {
				a := tensor.NewArena()
				defer a.Close()
				raw := randomRaw(typ, rows*cols, rand.New(rand.NewPCG(10, 10)))
				m, err := k.NewMatrix(a, typ, rows, cols)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(raw)))
				b.ReportAllocs()
				for b.Loop() {
					if err := k.PackRows(m, raw, 0, rows); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	})
}
