package meter_test

import (
	"slices"
	"testing"

	"onebit/extensions/meter"
	"onebit/extensions/module"
	"onebit/extensions/wasm"
	. "onebit/extensions/wasm/wasmtest"
)

// workload is a guest that works: its function "run" takes nothing and returns an i32.
func workloads() map[string][]byte {
	out := map[string][]byte{}
	add := func(name string, build func(m *Module)) {
		m := &Module{}
		m.Memory(2, 2)
		build(m)
		out[name] = m.Bytes()
	}
	// fib(20) by recursion: calls and little else
	add("recursion", func(m *Module) {
		less := func(n int32) []byte { return slices.Concat(Get(0), I32(n), Op(0x6b), Call(0)) }
		m.Func("", "i", "i", "", Get(0), I32(2), Op(0x48), If(Get(0), Op(wasm.OpReturn)), less(1), less(2), Op(0x6a))
		m.Func("run", "", "i", "", I32(20), Call(0))
	})
	// a hash over 16 KiB, byte by byte
	add("bytes", func(m *Module) {
		step := slices.Concat(Get(0), I32(16777619), Op(0x6c), Get(1), Op(0x2d, 0, 0), Op(0x73), Set(0))
		m.Func("run", "", "i", "ii", Times(1, 16384, step), Get(0))
	})
	// a scan with a switch in it, as parsers have: most of its body runs seldom
	add("parser", func(m *Module) {
		rare := slices.Repeat(slices.Concat(Get(0), I32(3), Op(0x6c), I32(1), Op(0x6a), Set(0)), 4)
		one := Block(Block(Block(Get(1), Op(0x2d, 0, 0), I32(1), Op(0x71), Op(wasm.OpBrTable, 2, 0, 1, 2)), Get(0), I32(1), Op(0x6a), Set(0), With(wasm.OpBr, 1)), rare)
		m.Func("run", "", "i", "ii", Times(1, 16384, one), Get(0))
	})
	// 64 x 64 float products in memory, rows by columns
	add("matrix", func(m *Module) {
		at := func(row, col uint32, base byte) []byte {
			return slices.Concat(Get(row), I32(6), Op(0x74), Get(col), Op(0x6a), I32(3), Op(0x74), Op(0x2b, 3, base))
		}
		inner := Times(2, 63, Get(3), at(0, 2, 0), at(2, 1, 8), Op(0xa2, 0xa0), Set(3))
		m.Func("run", "", "i", "iiid", Times(0, 63, Times(1, 63, inner)), Get(3), Op(wasm.OpMisc, 2))
	})
	return out
}

// BenchmarkOverhead runs each workload plain, metered with one visit to the host, and with a visit each million units.
func BenchmarkOverhead(b *testing.B) {
	loads := workloads()
	names := []string{"recursion", "bytes", "parser", "matrix"}
	for _, name := range names {
		rewritten := metered(b, loads[name])
		for _, v := range []struct {
			name  string
			b     []byte
			slice int64
		}{{"plain", loads[name], 0}, {"metered", rewritten, plenty}, {"ticking", rewritten, 1 << 20}} {
			b.Run(name+"/"+v.name, func(b *testing.B) {
				g := start(b, "compiler", v.b)
				f := g.ExportedFunction("run")
				stack := make([]uint64, 1)
				var used int64
				b.ReportAllocs()
				for b.Loop() {
					if !g.plain {
						g.budget = meter.NewBudget(plenty, v.slice)
						g.set(meter.Units, g.budget.Begin())
					}
					if err := f.CallWithStack(b.Context(), stack); err != nil {
						b.Fatal(err)
					}
				}
				if !g.plain {
					used = g.budget.Used(int64(g.ExportedGlobal(meter.Units).Get()))
					b.ReportMetric(float64(used), "units")
				}
			})
		}
	}
}

// BenchmarkRewrite rewrites a module of about 100 KB.
func BenchmarkRewrite(b *testing.B) {
	m := &Module{}
	for range 400 {
		m.Func("", "i", "i", "ii", slices.Repeat(Times(1, 3, Get(0), I32(7), Op(0x6a), Set(0)), 12), Get(0))
	}
	in := m.Bytes()
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := meter.Rewrite(in, module.Default()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestWorkloads holds that the benchmark measures equal work.
func TestWorkloads(t *testing.T) {
	for name, b := range workloads() {
		want := start(t, "compiler", b).call(t, "run", 0, 0)
		got := start(t, "compiler", metered(t, b)).call(t, "run", plenty, 1<<20)
		if want.Failure != "" || !slices.Equal(want.Results, got.Results) || got.Used < 10_000 {
			t.Errorf("%s: plain %+v, metered %+v", name, want, got)
		}
	}
}
