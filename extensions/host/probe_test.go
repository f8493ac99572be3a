package host_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"onebit/extensions/abi"
	"onebit/extensions/host"
	. "onebit/extensions/wasm/wasmtest"
)

// A probe is a guest that calls one function of the host. Its request holds the arguments, 8 bytes each, and then bytes
// that they may point to; its answer is the function's result as 8 bytes, and the 1,000 bytes behind.
const (
	probeOut  = answerAt + 8 // where a probe lets the host write
	probeSize = 1000
	pageEnd   = 1 << 16 // the end of a probe's memory
)

// letters turns "(i32, i64)" into "il".
func letters(list string) string {
	return strings.NewReplacer("i32", "i", "i64", "l", "f64", "d", "(", "", ")", "", ",", "", " ", "").Replace(list)
}

// probe makes the guest. It calls the function times times, with the same arguments.
func probe(f abi.Function, times int) []byte {
	params, results, _ := strings.Cut(f.Type, "->")
	params, results = letters(params), letters(results)
	m := &Module{}
	callee := m.Import(f.Module, f.Name, params, results)
	guest(m)
	load := map[rune][]byte{'i': Op(0x28, 2, 0), 'l': Op(0x29, 3, 0), 'd': Op(0x2b, 3, 0)}
	var call []byte
	if results != "" {
		call = I32(answerAt)
	}
	for i, c := range params {
		call = slices.Concat(call, Get(0), I32(int32(8*i)), Op(0x6a), load[c])
	}
	call = append(call, Call(callee)...)
	switch results {
	case "i":
		call = append(call, Op(0xac, 0x37, 3, 0)...) // extended, stored
	case "l":
		call = append(call, Op(0x37, 3, 0)...)
	}
	var all []byte
	for range times {
		all = append(all, call...)
	}
	m.Func(abi.Route, "ii", "l", "", all, packed(answerAt, 8+probeSize))
	return m.Bytes()
}

// function finds a function of the contract.
func function(t testing.TB, module, name string) abi.Function {
	t.Helper()
	f, ok := abi.Import(module, name)
	if !ok {
		t.Fatalf("%s.%s is not in the contract", module, name)
	}
	return f
}

// arguments makes a probe's request; data lies at dataAt(number of arguments).
func arguments(args []uint64, data string) []byte {
	var b []byte
	for _, a := range args {
		b = binary.LittleEndian.AppendUint64(b, a)
	}
	return append(b, data...)
}

// dataAt is where the data behind n arguments lies.
func dataAt(n int) uint64 { return bufferAt + 8*uint64(n) }

// grants returns the capability that a function needs, if any.
func grants(f abi.Function) []abi.Capability {
	if f.Capability == "" {
		return nil
	}
	return []abi.Capability{f.Capability}
}

// ask runs one probe once.
func ask(t *testing.T, f abi.Function, args []uint64, data string, c host.Call) (code int64, out []byte, r host.Result) {
	t.Helper()
	i := instance(t, compile(t, config(t, probe(f, 1), grants(f)...)), host.Setup{})
	return asked(t, i, arguments(args, data), c)
}

// asked calls a probe.
func asked(t *testing.T, i *host.Instance, request []byte, c host.Call) (code int64, out []byte, r host.Result) {
	t.Helper()
	c.Function, c.Request = abi.Route, request
	r, err := i.Call(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return int64(binary.LittleEndian.Uint64(r.Answer)), r.Answer[8:], r
}

// failure asks a probe that must fail.
func failure(t *testing.T, err error, cause host.Cause) {
	t.Helper()
	var e *host.CallError
	if !errors.As(err, &e) || e.Cause != cause || e.Detail == "" {
		t.Fatalf("got %v, want the cause %q", err, cause)
	}
}

// begins tells whether out begins with want and is zero after it.
func begins(out []byte, want string) bool {
	return bytes.HasPrefix(out, []byte(want)) && len(bytes.Trim(out[len(want):], "\x00")) == 0
}

// everything is a module that imports all functions of the contract.
func everything() *Module {
	m := &Module{}
	for _, list := range []struct {
		module string
		f      []abi.Function
	}{{abi.HostModule, abi.Imports()}, {abi.WASIModule, abi.WASI()}} {
		for _, f := range list.f {
			params, results, _ := strings.Cut(f.Type, "->")
			m.Import(list.module, f.Name, letters(params), letters(results))
		}
	}
	guest(m)
	m.Func(abi.Route, "ii", "l", "", I64(0))
	return m
}

// allCapabilities lists what can be granted.
func allCapabilities() []abi.Capability {
	var all []abi.Capability
	for _, f := range abi.Imports() {
		if f.Capability != "" && !slices.Contains(all, f.Capability) {
			all = append(all, f.Capability)
		}
	}
	return all
}

// TestCompileOffersAll: every function of the contract is there with its type, and needs its grant from manifest and
// operator both.
func TestCompileOffersAll(t *testing.T) {
	b := everything().Bytes()
	all := allCapabilities()
	compile(t, config(t, b, all...))
	for i, c := range all {
		less := slices.Delete(slices.Clone(all), i, i+1)
		asks, granted := config(t, b, all...), config(t, b, all...)
		asks.Manifest.Capabilities, granted.Granted = less, less
		for who, cfg := range map[string]host.Config{"manifest": asks, "operator": granted} {
			if _, err := host.Compile(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), `"`+string(c)+`"`) {
				t.Errorf("without %s by the %s: %v", c, who, err)
			}
		}
	}
}

// TestCompileRefuses: what is not metered, or not as the contract says, is not compiled.
func TestCompileRefuses(t *testing.T) {
	good := config(t, say("{}"))
	tests := []struct {
		name    string
		metered []byte
		want    string
	}{
		{"nothing", nil, "not WebAssembly"},
		{"not metered", say("{}"), "not metered"},
		{"damaged", good.Metered[:len(good.Metered)-1], "refused"},
		{"tick under another name", bytes.Replace(good.Metered, []byte("tick"), []byte("tock"), 1), "not metered"},
		{"units not exported", bytes.Replace(good.Metered, []byte("laya_meter_units"), []byte("laya_meter_unitz"), 1), "not metered"},
		{"marker missing", bytes.Replace(good.Metered, []byte("laya_abi_v1"), []byte("laya_abi_v2"), 1), "laya_abi_v1 is missing"},
		{"global not exported", bytes.Replace(config(t, counting()).Metered, []byte("meter_global_0"), []byte("meter_global_9"), 1), "not export laya_meter_global_0"},
		{"other import", func() []byte {
			m := &Module{}
			m.Import(abi.WASIModule, "path_open", "i", "i")
			guest(m).Func(abi.Route, "ii", "l", "", I64(0))
			return config(t, m.Bytes()).Metered
		}(), `"path_open" is not offered`},
		{"invalid code", func() []byte {
			m := guest(&Module{})
			m.Func(abi.Route, "ii", "l", "", I32(0)) // of another type
			return config(t, m.Bytes()).Metered
		}(), "compiling"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := good
			c.Metered = tt.metered
			m, err := host.Compile(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, %v; want %q", m, err, tt.want)
			}
		})
	}
}
