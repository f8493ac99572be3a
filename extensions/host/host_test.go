package host_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/meter"
	"onebit/extensions/wasm"
	"onebit/extensions/wasm/wasmtest"
)

// bufferAt is where test guests take requests. Their answers stand at answerAt.
const (
	bufferAt = 4096
	answerAt = 1024
)

// guest begins a test guest after its imports: memory of one page that may grow, marker and buffer.
func guest(m *wasmtest.Module) *wasmtest.Module {
	m.Memory(1, 16)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", wasmtest.I32(bufferAt))
	return m
}

// packed is the answer (address, length).
func packed(at, n int32) []byte { return wasmtest.I64(int64(at)<<32 | int64(n)) }

// say makes a guest answer words.
func say(words string) []byte {
	m := guest(&wasmtest.Module{})
	m.Data(answerAt, []byte(words))
	m.Func(abi.Route, "ii", "l", "", packed(answerAt, int32(len(words))))
	return m.Bytes()
}

// counting answers the byte '0' plus how often it was called, as its memory and a global of it remember.
func counting() []byte {
	m := guest(&wasmtest.Module{})
	g := m.Global('i', wasmtest.I32(0))
	m.Func(abi.Route, "ii", "l", "",
		wasmtest.With(wasm.OpGlobalGet, g), wasmtest.I32(1), wasmtest.Op(0x6a), wasmtest.With(wasm.OpGlobalSet, g),
		wasmtest.I32(answerAt), wasmtest.I32(answerAt), wasmtest.Load(), wasmtest.I32(1), wasmtest.Op(0x6a), wasmtest.Store(),
		wasmtest.I32(answerAt+1), wasmtest.With(wasm.OpGlobalGet, g), wasmtest.Op(0x3a, 0, 0),
		packed(answerAt, 2))
	return m.Bytes()
}

// config meters a module under the limits of a policy, with a deadline that a busy machine keeps.
func config(t testing.TB, b []byte, caps ...abi.Capability) host.Config {
	t.Helper()
	l := abi.Policy.Limits()
	l.Deadline = time.Minute
	out, err := meter.Rewrite(b, host.Structure(l))
	if err != nil {
		t.Fatal(err)
	}
	return host.Config{Metered: out, Limits: l, Granted: caps, Manifest: abi.Manifest{Name: "test", Capabilities: caps, Metrics: []string{"hits"}}}
}

func compile(t testing.TB, c host.Config) *host.Module {
	t.Helper()
	m, err := host.Compile(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	return m
}

func instance(t testing.TB, m *host.Module, s host.Setup) *host.Instance {
	t.Helper()
	i, err := m.Instance(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close(context.Background()) })
	return i
}

func TestCounterAnswersOne(t *testing.T) {
	i := instance(t, compile(t, config(t, counting())), host.Setup{})
	for n := range 1000 {
		r, err := i.Call(t.Context(), host.Call{Function: abi.Route, Request: []byte(`{"v":1}`)})
		if err != nil || !slices.Equal(r.Answer, []byte{1, 1}) {
			t.Fatalf("call %d answers %v, %v", n, r.Answer, err)
		}
	}
}
