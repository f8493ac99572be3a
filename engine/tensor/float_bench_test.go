package tensor_test

import (
	"fmt"
	"runtime"
	"testing"

	"onebit/engine/tensor"
)

// BenchmarkMatMulF16 is attention on one thread: scores of a page of 256 keys,
// and the same number of values weighted and summed up.
func BenchmarkMatMulF16(b *testing.B) {
	const page = 256
	for _, head := range []int{64, 128, 256} {
		for _, tokens := range []int{1, 2, 3, 4, 6, 8, 12, 96} {
			b.Run(fmt.Sprintf("scores/head=%d/tokens=%d", head, tokens), func(b *testing.B) {
				benchLevels(b, func(b *testing.B, k *tensor.Kernels) {
					benchHalf(b, k, page/k.R, head, tokens, head)
				})
			})
			b.Run(fmt.Sprintf("values/head=%d/tokens=%d", head, tokens), func(b *testing.B) {
				benchLevels(b, func(b *testing.B, k *tensor.Kernels) {
					benchHalf(b, k, head/k.R, page, tokens, page)
				})
			})
		}
	}
}

func benchHalf(b *testing.B, k *tensor.Kernels, panels, depth, tokens, lda int) {
	a := tensor.NewArena()
	defer a.Close()
	// Pages one after the other, 1 MiB in all: they come from the second-level cache.
	w := a.Halves(1 << 19)
	page := panels * depth * k.R
	ldc := panels * k.R
	x, dst := a.Floats(tokens*lda), a.Floats(tokens*ldc)
	at := 0
	for b.Loop() {
		k.MatMulF16(dst, ldc, w[at:], panels, depth, depth*k.R, x, lda, tokens)
		if at += page; at+page > len(w) {
			at = 0
		}
	}
	flops := 2 * float64(page) * float64(tokens) * float64(b.N)
	b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFloatStrides is the prefill of float weights, with rows of x
// whose distance is and is not a multiple of 4 KiB.
func BenchmarkFloatStrides(b *testing.B) {
	const rows, cols, tokens = 256, 1024, 96
	for _, typ := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16} {
		for _, stride := range []int{cols, cols + 16} {
			b.Run(fmt.Sprintf("%v/stride=%d", typ, stride), func(b *testing.B) {
				benchLevels(b, func(b *testing.B, k *tensor.Kernels) {
					a := tensor.NewArena()
					defer a.Close()
					_, elem, _ := typ.Block()
					m, err := k.Pack(a, typ, rows, cols, make([]byte, rows*cols*elem))
					if err != nil {
						b.Fatal(err)
					}
					act := tensor.Activations{X: a.Floats(tokens * stride), Stride: stride}
					dst := a.Floats(tokens * rows)
					for b.Loop() {
						k.MatMul(dst, rows, m, act, tokens, 0, m.Panels())
					}
					flops := 2 * rows * cols * tokens * float64(b.N)
					b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOP/s")
					b.ReportMetric(0, "ns/op")
				})
			})
		}
	}
}

// BenchmarkFloatOneToken streams a matrix of float weights from memory; the
// goal is the speed of BenchmarkReadSum.
func BenchmarkFloatOneToken(b *testing.B) {
	const cols = 1024
	for _, typ := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16} {
		for n := 1; n <= runtime.GOMAXPROCS(0); n *= 2 {
			b.Run(fmt.Sprintf("%v/threads=%d", typ, n), func(b *testing.B) {
				benchLevels(b, func(b *testing.B, k *tensor.Kernels) {
					a := tensor.NewArena()
					defer a.Close()
					team := tensor.NewTeam(n)
					defer team.Close()
					_, elem, _ := typ.Block()
					rows := streamBytes / (cols * elem)
					m, err := k.Pack(a, typ, rows, cols, make([]byte, rows*cols*elem))
					if err != nil {
						b.Fatal(err)
					}
					act := tensor.Activations{X: a.Floats(cols), Stride: cols}
					dst := a.Floats(m.PaddedRows())
					b.SetBytes(int64(m.Bytes()))
					for b.Loop() {
						team.Run(func(w *tensor.Worker) {
							w.Each(m.Panels(), 16, func(from, to int) { k.MatMul(dst, len(dst), m, act, 1, from, to) })
						})
					}
				})
			})
		}
	}
}
