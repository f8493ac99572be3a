package worker_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/meter"
	"onebit/extensions/wasm/wasmtest"
	"onebit/extensions/worker"
)

// BenchmarkCall measures what the way to another process adds to a call: a guest that answers its request of 2 KB, in the
// same process and in a worker.
func BenchmarkCall(b *testing.B) {
	request := make([]byte, 2<<10)
	call := host.Call{Function: abi.Route, Request: request}
	b.Run("in process", func(b *testing.B) {
		limits := abi.Policy.Limits()
		metered, err := meter.Rewrite(polite(), host.Structure(limits))
		if err != nil {
			b.Fatal(err)
		}
		m, err := host.Compile(b.Context(), host.Config{Metered: metered, Limits: limits})
		if err != nil {
			b.Fatal(err)
		}
		defer m.Close(context.Background())
		i, err := m.Instance(b.Context(), host.Setup{Warm: request})
		if err != nil {
			b.Fatal(err)
		}
		measure(b, func() error { _, err := i.Call(b.Context(), call); return err })
	})
	for _, c := range []struct {
		name      string
		instances int
	}{{"worker", 1}, {"worker of two instances", 2}} {
		b.Run(c.name, func(b *testing.B) {
			cfg := prepared(b, b.TempDir(), polite())
			cfg.Setup.Warm, cfg.Limits.Instances, cfg.Log = request, c.instances, slog.New(slog.DiscardHandler)
			w, stop := keep(b, cfg)
			defer stop()
			measure(b, func() error { _, err := w.Call(b.Context(), call); return err })
		})
	}
}

// measure reports quantiles too: on a machine with other work the mean tells of that.
func measure(b *testing.B, call func() error) {
	var all []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		from := time.Now()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(from))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/10]), "p10-ns")
	b.ReportMetric(float64(all[len(all)/2]), "p50-ns")
	b.ReportMetric(float64(all[len(all)*99/100]), "p99-ns")
}

// polite answers with the request, whatever it is asked.
func polite() []byte {
	m := guest(&wasmtest.Module{})
	m.Func(abi.Route, "ii", "l", "", mirror)
	return m.Bytes()
}

// BenchmarkRespawn measures how long a killed process is missed, without and with a spare.
func BenchmarkRespawn(b *testing.B) {
	for _, spare := range []bool{false, true} {
		b.Run(map[bool]string{false: "new", true: "spare"}[spare], func(b *testing.B) {
			cfg := prepared(b, b.TempDir(), polite())
			cfg.Spare, cfg.Log = spare, slog.New(slog.DiscardHandler)
			w, stop := keep(b, cfg)
			defer stop()
			for b.Loop() {
				kill(b, w.Pid())
				if _, err := w.Call(b.Context(), route("{}")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPrepare measures the way of an upload through the child.
func BenchmarkPrepare(b *testing.B) {
	cfg := added(b, polite())
	for b.Loop() {
		os.RemoveAll(filepath.Join(cfg.Dir, "compiled"))
		if _, err := worker.Prepare(b.Context(), cfg); err != nil {
			b.Fatal(err)
		}
	}
}
