package host_test

import (
	"slices"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	. "onebit/extensions/wasm/wasmtest"
)

// bench calls a guest over and over. Beside the mean it reports the median, which other work on the machine moves less.
func bench(b *testing.B, module []byte, copied bool, c host.Call, caps ...abi.Capability) {
	m := compile(b, config(b, module, caps...))
	if copied {
		host.CopySnapshots(m)
	}
	i := instance(b, m, host.Setup{})
	median(b, func() error {
		_, err := i.Call(b.Context(), c)
		return err
	})
}

func median(b *testing.B, call func() error) {
	b.ReportAllocs()
	times := make([]time.Duration, 0, 1<<20)
	for b.Loop() {
		from := time.Now()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		if len(times) < cap(times) {
			times = append(times, time.Since(from))
		}
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2]), "p50-ns")
}

// BenchmarkCall: one whole call, with the reset that follows it.
func BenchmarkCall(b *testing.B) {
	request := make([]byte, 2000)
	route := host.Call{Function: abi.Route, Request: request}
	b.Run("empty", func(b *testing.B) { bench(b, say(""), false, route) })
	b.Run("counter", func(b *testing.B) { bench(b, counting(), false, route) })
	b.Run("grows", func(b *testing.B) { bench(b, dirty(false), false, mode(modeReturn)) })
	b.Run("grows to the end", func(b *testing.B) { bench(b, dirty(false), false, mode(modeGrow)) })
	b.Run("volatile", func(b *testing.B) { bench(b, dirty(true), false, mode(modeReport)) })
	f := function(b, abi.HostModule, "metric")
	for name, n := range map[string]int{"1 host call": 1, "60 host calls": 60} {
		b.Run(name, func(b *testing.B) {
			bench(b, probe(f, n), false, host.Call{Function: abi.Route, Request: make([]byte, 16), Services: services()}, abi.CapMetric)
		})
	}
}

// BenchmarkReset: a guest that writes to each of n pages of its 128, with shared and copied snapshots.
func BenchmarkReset(b *testing.B) {
	for name, n := range map[string]int32{"0 pages": 0, "10 pages": 10, "100 pages": 100} {
		m := &Module{}
		m.Memory(128, 128)
		m.Func(abi.Marker, "", "", "")
		m.Func(abi.Buffer, "i", "i", "", I32(bufferAt))
		var body []byte
		if n > 0 {
			body = Times(2, n, Get(2), I32(65536), Op(0x6c), I32(1), Store())
		}
		m.Func(abi.Route, "ii", "l", "i", body, I64(0))
		call := host.Call{Function: abi.Route, Request: []byte("x")}
		b.Run(name+", shared", func(b *testing.B) { bench(b, m.Bytes(), false, call) })
		b.Run(name+", copied", func(b *testing.B) { bench(b, m.Bytes(), true, call) })
	}
}
