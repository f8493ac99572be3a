package tck_test

import (
	"slices"

	"onebit/extensions/abi"
	"onebit/extensions/tck"
	"onebit/extensions/wasm"
	"onebit/extensions/wasm/wasmtest"
)

const at = 65536 // of the buffer

// guest makes one whose buffer answers size and whose route runs body.
func guest(buffer []byte, body ...[]byte) tck.Module {
	m := &wasmtest.Module{}
	random := m.Import(abi.WASIModule, "random_get", "ii", "i")
	now := m.Import(abi.HostModule, "now_ms", "", "l")
	_, _ = random, now
	m.Memory(3, 4)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", buffer)
	m.Func(abi.Route, "ii", "l", "i", body...)
	m.Data(1024, []byte(`{"v":1,"action":"route","candidates":["elsewhere"]}`))
	return tck.Module{Code: m.Bytes(), Manifest: abi.Manifest{Name: "wrong", Version: "1", ABI: 1, Kind: abi.Policy, Capabilities: []abi.Capability{abi.CapNow},
		Samples: []abi.Sample{{Decision: abi.Decision{Action: abi.ActionAbstain}}}}}
}

// wrong is a guest with what must be said about it.
type wrong struct {
	m          tck.Module
	test, says string // part of the name of a test that fails, part of its error
}

// wrongGuests are taken by a host, and wrong.
func wrongGuests() map[string]wrong {
	fits := slices.Concat(wasmtest.Get(0), wasmtest.I32(2*at), wasmtest.Op(0x4d), wasmtest.If(wasmtest.I32(at), wasmtest.Op(wasm.OpReturn)), wasmtest.I32(0))
	small := slices.Concat(wasmtest.Get(0), wasmtest.I32(20000), wasmtest.Op(0x4d), wasmtest.If(wasmtest.I32(at), wasmtest.Op(wasm.OpReturn)), wasmtest.I32(0))
	nothing := wasmtest.I64(0)
	sample := guest(fits, nothing)
	sample.Manifest.Samples = []abi.Sample{{Request: abi.Request{Candidates: []abi.Candidate{{ID: "a"}}}, Decision: abi.Decision{Action: abi.ActionRoute}}}
	offered := guest(fits, wasmtest.I64(1024<<32|51))
	offered.Manifest.Samples = nil
	unless := func(what ...[]byte) tck.Module { // the request begins with a brace
		return guest(fits, wasmtest.Get(0), wasmtest.Op(0x2d, 0, 0), wasmtest.I32('{'), wasmtest.Op(wasm.OpI32Ne), wasmtest.If(what...), nothing)
	}
	return map[string]wrong{
		"a good one":                     {guest(fits, nothing), "", ""},
		"a buffer for any length":        {guest(wasmtest.I32(at), nothing), "laya_buffer", "from where memory has fewer"},
		"a buffer for few":               {guest(small, nothing), "", "refuse"},
		"an id that was not offered":     {offered, "laya_route", "elsewhere"},
		"a trap when it is no request":   {unless(wasmtest.Op(wasm.OpUnreachable)), "laya_route", "(trap)"},
		"a loop when it is no request":   {unless(wasmtest.Loop(wasmtest.With(wasm.OpBr, 0))), "laya_route", "(budget)"},
		"another decision than a sample": {sample, "sample 1", `it must be "route"`},
	}
}
