package tensor_test

import (
	"fmt"
	"runtime"
	"testing"

	"onebit/engine/tensor"
)

// BenchmarkOps runs the element-wise operations on rows that fit the first-level cache.
func BenchmarkOps(b *testing.B) {
	const n = 2048
	x, w, dst := make([]float32, n), make([]float32, n), make([]float32, n)
	half := make([]uint16, n)
	for i := range x {
		x[i], w[i] = -float32(i%17)/4, 1
	}
	for _, op := range []struct {
		name string
		run  func(k *tensor.Kernels)
	}{
		{"RMSNorm", func(k *tensor.Kernels) { k.RMSNorm(dst, x, w, 1e-5) }},
		{"LayerNorm", func(k *tensor.Kernels) { k.LayerNorm(dst, x, w, w, 1e-5) }},
		{"Add", func(k *tensor.Kernels) { k.Add(dst, x) }},
		{"SiLUMul", func(k *tensor.Kernels) { k.SiLUMul(dst, x, w) }},
		{"GELUMul", func(k *tensor.Kernels) { k.GELUMul(dst, x, w) }},
		{"GELUErf", func(k *tensor.Kernels) { k.GELUErf(dst, x) }},
		{"Softcap", func(k *tensor.Kernels) { k.Softcap(dst, 30) }},
		{"RoPENeox", func(k *tensor.Kernels) { k.RoPENeox(dst, x[:n/2], w[:n/2]) }},
		{"RoPENorm", func(k *tensor.Kernels) { k.RoPENorm(dst, x[:n/2], w[:n/2]) }},
		{"Max", func(k *tensor.Kernels) { k.Max(x) }},
		{"ExpSum", func(k *tensor.Kernels) { copy(dst, x); k.ExpSum(dst, 0) }},
		{"Dot", func(k *tensor.Kernels) { k.Dot(x, w) }},
		{"ToF16", func(k *tensor.Kernels) { k.ToF16(half, x) }},
		{"FromF16", func(k *tensor.Kernels) { k.FromF16(dst, half) }},
		{"ScatterF16", func(k *tensor.Kernels) { k.ScatterF16(half, 16, x[:n/16]) }},
		{"ArgMax", func(k *tensor.Kernels) { k.ArgMax(x) }},
	} {
		b.Run(op.name, func(b *testing.B) {
			benchLevels(b, func(b *testing.B, k *tensor.Kernels) {
				b.ReportAllocs()
				for b.Loop() {
					op.run(k)
				}
				b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gelem/s")
			})
		})
	}
}

// BenchmarkReadSum reads a gigabyte from memory.
func BenchmarkReadSum(b *testing.B) {
	a := tensor.NewArena()
	defer a.Close()
	buf := a.Bytes(1 << 30)
	for i := 0; i < len(buf); i += 4096 {
		buf[i] = 1
	}
	for n := 1; n <= runtime.GOMAXPROCS(0); n *= 2 {
		b.Run(fmt.Sprintf("threads=%d", n), func(b *testing.B) {
			benchLevels(b, func(b *testing.B, k *tensor.Kernels) {
				team := tensor.NewTeam(n)
				defer team.Close()
				b.SetBytes(int64(len(buf)))
				for b.Loop() {
					k.ReadSum(team, buf)
				}
			})
		})
	}
}

// BenchmarkBarrier is a barrier between workers with nothing to do.
func BenchmarkBarrier(b *testing.B) {
	for n := 1; n <= runtime.GOMAXPROCS(0); n *= 2 {
		b.Run(fmt.Sprintf("threads=%d", n), func(b *testing.B) {
			team := tensor.NewTeam(n)
			defer team.Close()
			b.ReportAllocs()
			for b.Loop() {
				team.Run(func(w *tensor.Worker) {
					for range 1000 {
						w.Barrier()
					}
				})
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N), "ns/barrier")
		})
	}
}
