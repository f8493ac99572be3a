package tck

import (
	"encoding/binary"
	"slices"
	"strings"

	"onebit/extensions/abi"
	"onebit/extensions/wasm/wasmtest"
)

// Where the guests of the kit keep things. Memory has probePages pages.
const (
	answerAt   = 1024  // what they answer
	wordsAt    = 8192  // texts that they show to the host
	outAt      = 16384 // where the host may write
	bufferAt   = 65536 // for requests of any length
	probePages = 3
)

// probe is a small guest being written. Its route runs the body once and answers the numbers that were put.
type probe struct {
	m      wasmtest.Module
	body   [][]byte
	n      int32             // bytes of the answer so far
	index  map[string]uint32 // of imports
	caps   []abi.Capability
	data   map[int32]string
	extra  func(m *wasmtest.Module) // more functions
	locals string
}

func newProbe() *probe { return &probe{index: map[string]uint32{}, data: map[int32]string{}} }

// call is a call of a function of the host.
func (p *probe) call(module, name string, args ...[]byte) []byte {
	i, ok := p.index[module+name]
	if !ok {
		f, _ := abi.Import(module, name)
		params, results, _ := strings.Cut(f.Type, "->")
		i = p.m.Import(module, name, letters(params), letters(results))
		p.index[module+name] = i
		if f.Capability != "" && !slices.Contains(p.caps, f.Capability) {
			p.caps = append(p.caps, f.Capability)
		}
	}
	return append(slices.Concat(args...), wasmtest.Call(i)...)
}

// box is a call of a function of abi.HostModule with numbers alone.
func (p *probe) box(name string, args ...int32) []byte {
	return p.call(abi.HostModule, name, numbers(args)...)
}

// wasi is the same of abi.WASIModule.
func (p *probe) wasi(name string, args ...int32) []byte {
	return p.call(abi.WASIModule, name, numbers(args)...)
}

func numbers(list []int32) (out [][]byte) {
	for _, v := range list {
		out = append(out, wasmtest.I32(v))
	}
	return out
}

// letters turns "(i32, f64)" into "id".
func letters(list string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune("(), ", r) }) {
		b.WriteByte(map[string]byte{"i32": 'i', "i64": 'l', "f64": 'd'}[word])
	}
	return b.String()
}

func (p *probe) do(code ...[]byte) *probe { p.body = append(p.body, code...); return p }

// put adds an i32 to the answer, put64 an i64.
func (p *probe) put(code []byte) *probe {
	p.do(wasmtest.I32(answerAt+p.n), code, wasmtest.Store())
	p.n += 4
	return p
}

func (p *probe) put64(code []byte) *probe {
	p.do(wasmtest.I32(answerAt+p.n), code, wasmtest.Op(0x37, 3, 0))
	p.n += 8
	return p
}

// word puts the i32 that stands at an address.
func (p *probe) word(at int32) *probe { return p.put(append(wasmtest.I32(at), wasmtest.Load()...)) }

// text places bytes that the guest has from the beginning.
func (p *probe) text(at int32, s string) *probe { p.data[at] = s; return p }

// module writes the guest.
func (p *probe) module() Module {
	m := &p.m
	m.Memory(probePages, probePages+4)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", wasmtest.I32(bufferAt))
	m.Func(abi.Route, "ii", "l", p.locals, append(p.body, packed(answerAt, p.n))...)
	for at, s := range p.data {
		m.Data(at, []byte(s))
	}
	if p.extra != nil {
		p.extra(m)
	}
	return made(m, p.caps...)
}

// made is a module of the kit with its manifest.
func made(m *wasmtest.Module, caps ...abi.Capability) Module {
	return Module{Code: m.Bytes(), Manifest: abi.Manifest{Name: "tck", Version: "1", ABI: abi.Version, Kind: abi.Policy, Capabilities: caps, Metrics: []string{"first", "second"}}}
}

// packed pushes the answer (address, length).
func packed(at, n int32) []byte { return wasmtest.I64(int64(at)<<32 | int64(uint32(n))) }

// plain begins a guest of which route is the only unusual part.
func plain(route ...[]byte) *wasmtest.Module {
	m := &wasmtest.Module{}
	m.Memory(probePages, probePages+4)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", wasmtest.I32(bufferAt))
	m.Func(abi.Route, "ii", "l", "ii", route...)
	return m
}

// echo answers the request.
func echo() []byte {
	return slices.Concat(wasmtest.Get(0), wasmtest.Op(0xad), wasmtest.I64(32), wasmtest.Op(0x86), wasmtest.Get(1), wasmtest.Op(0xad), wasmtest.Op(0x84))
}

// words reads an answer of numbers.
func words(b []byte) (list []int64) {
	for ; len(b) >= 4; b = b[4:] {
		list = append(list, int64(int32(binary.LittleEndian.Uint32(b))))
	}
	return list
}
