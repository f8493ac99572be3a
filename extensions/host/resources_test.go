package host_test

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	. "onebit/extensions/wasm/wasmtest"
)

// resident returns the memory of this process in bytes, and how many maps and files it has.
func resident(t *testing.T) (bytes, maps, files int) {
	t.Helper()
	runtime.GC()
	runtime.GC()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("this system does not tell: ", err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize(), strings.Count(string(list), "\n"), len(fds)
}

// TestManyCalls: 100,000 calls that leave memory, globals and size changed or fail give the same answers, and the process
// does not grow.
func TestManyCalls(t *testing.T) {
	c := config(t, dirty(false))
	i := instance(t, compile(t, c), host.Setup{})
	first, err := i.Call(t.Context(), mode(modeReport))
	if err != nil {
		t.Fatal(err)
	}
	modes := []byte{modeReport, modeReturn, modeTrap, modeReport}
	round := func(n int) {
		for k := range n {
			how := modes[k%len(modes)]
			if k%5000 == 2 {
				how = modeRecurse
			}
			r, err := i.Call(t.Context(), mode(how))
			if (err != nil) != (how == modeTrap || how == modeRecurse) || how == modeReport && !bytes.Equal(r.Answer, first.Answer) {
				t.Fatalf("call %d: %q, %v", k, r.Answer, err)
			}
		}
	}
	round(10_000)
	before, maps, files := resident(t)
	round(90_000)
	after, maps2, files2 := resident(t)
	t.Logf("%d KiB before, %d KiB after", before>>10, after>>10)
	if after > before+4<<20+shadow || maps2 > maps+50 || files2 > files {
		t.Errorf("%d KiB, %d maps, %d files became %d KiB, %d maps, %d files", before>>10, maps, files, after>>10, maps2, files2)
	}
}

// TestNothingIsLeft: modules and instances that were closed, or could not be made, leave no memory, file or goroutine.
func TestNothingIsLeft(t *testing.T) {
	good := config(t, dirty(false))
	bad := config(t, diary(map[string][]byte{abi.Initialize: Op(0)}), abi.CapAsset)
	round := func() {
		m, err := host.Compile(t.Context(), good)
		if err != nil {
			t.Fatal(err)
		}
		i, err := m.Instance(t.Context(), host.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		clone, err := i.Clone(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := i.Call(t.Context(), mode(modeGrow)); err != nil {
			t.Fatal(err)
		}
		for _, close := range []func() error{func() error { return i.Close(t.Context()) }, func() error { return clone.Close(t.Context()) }, func() error { return m.Close(t.Context()) }} {
			if err := close(); err != nil {
				t.Fatal(err)
			}
		}
		m, err = host.Compile(t.Context(), bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Instance(t.Context(), host.Setup{}); err == nil {
			t.Fatal("a guest that traps was set up")
		}
		m.Close(t.Context())
	}
	for range 5 {
		round()
	}
	_, maps, files := resident(t)
	goroutines := runtime.NumGoroutine()
	for range 50 {
		round()
	}
	_, maps2, files2 := resident(t)
	if n := runtime.NumGoroutine(); maps2 > maps+50 || files2 > files || n > goroutines {
		t.Errorf("%d maps, %d files, %d goroutines became %d, %d, %d", maps, files, goroutines, maps2, files2, n)
	}
}

// TestInstancesAtOnce: instances of one module serve their goroutines at once, and one instance refuses a second caller.
func TestInstancesAtOnce(t *testing.T) {
	m := compile(t, config(t, dirty(false)))
	first := instance(t, m, host.Setup{})
	want, err := first.Call(t.Context(), mode(modeReport))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range 4 {
		i, err := first.Clone(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer i.Close(t.Context())
			for k := range 500 {
				how := []byte{modeReport, modeReturn, modeTrap, modeGrow}[(n+k)%4]
				r, err := i.Call(t.Context(), mode(how))
				if (err != nil) != (how == modeTrap) || how == modeReport && !bytes.Equal(r.Answer, want.Answer) {
					t.Errorf("%q, %v", r.Answer, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestSecondCallerIsRefused(t *testing.T) {
	i := instance(t, compile(t, config(t, probe(function(t, abi.HostModule, "metric"), 1), abi.CapMetric)), host.Setup{})
	s := services()
	s.Metric = func(string, float64) { // while the call runs
		if _, err := i.Call(t.Context(), host.Call{Function: abi.Route}); !errors.Is(err, host.ErrBusy) {
			t.Errorf("a second call: %v", err)
		}
		if err := i.Close(t.Context()); !errors.Is(err, host.ErrBusy) {
			t.Errorf("closing: %v", err)
		}
	}
	asked(t, i, arguments([]uint64{0, 0}, ""), host.Call{Services: s})
}

// TestGrowingCostsNothing: a guest that takes all of its memory and touches none of it takes none of ours.
func TestGrowingCostsNothing(t *testing.T) {
	m := &Module{}
	metric := m.Import(abi.HostModule, "metric", "id", "i")
	m.Memory(1, 512)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", I32(bufferAt))
	m.Func(abi.Route, "ii", "l", "", Loop(I32(1), Op(0x40, 0), I32(-1), Op(0x47, 0x0d, 0)), I32(0), F64(1), Call(metric), Op(0x1a), I64(0))
	i := instance(t, compile(t, config(t, m.Bytes(), abi.CapMetric)), host.Setup{})
	before, _, _ := resident(t)
	during := 0
	s := host.Services{Metric: func(string, float64) { during, _, _ = resident(t) }}
	r, err := i.Call(t.Context(), host.Call{Function: abi.Route, Services: s})
	if err != nil || r.Pages != 512 || during == 0 || during > before+2<<20 {
		t.Errorf("%d KiB before, %d KiB with %d pages, %v", before>>10, during>>10, r.Pages, err)
	}
}

// TestNoMemory: a memory of no pages is a memory.
func TestNoMemory(t *testing.T) {
	for _, high := range []uint32{0, 1} {
		m := &Module{}
		m.Memory(0, high)
		m.Func(abi.Marker, "", "", "")
		m.Func(abi.Buffer, "i", "i", "", I32(8))
		m.Func(abi.Route, "ii", "l", "", I32(1), Op(0x40, 0, 0x1a), I64(0))
		i := instance(t, compile(t, config(t, m.Bytes())), host.Setup{})
		for range 2 {
			_, err := i.Call(t.Context(), host.Call{Function: abi.Route, Request: []byte("x")})
			failure(t, err, host.CausePointer)
		}
	}
}
