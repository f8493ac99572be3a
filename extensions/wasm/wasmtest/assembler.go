// Package wasmtest makes small WebAssembly modules for tests: by hand through an assembler, and at random.
package wasmtest

import (
	"math"
	"slices"

	"onebit/extensions/wasm"
)

// Module is a module being written. The zero value is an empty one. Import everything before the first Func.
type Module struct {
	types, imports, funcs, globals, exports, elements, bodies, datas [][]byte

	memory, table []byte
	start         []byte
}

// types maps the letters of signatures: i and l for i32 and i64, f and d for f32 and f64, v for v128.
func types(letters string) []byte {
	b := wasm.AppendU32(nil, uint32(len(letters)))
	for _, c := range letters {
		b = append(b, ValueType(byte(c)))
	}
	return b
}

// ValueType returns the value type that a letter stands for.
func ValueType(letter byte) byte {
	switch letter {
	case 'i':
		return wasm.I32
	case 'l':
		return wasm.I64
	case 'f':
		return wasm.F32
	case 'd':
		return wasm.F64
	case 'v':
		return wasm.V128
	}
	panic("wasmtest: no value type " + string(letter))
}

// Type returns the index of a signature.
func (m *Module) Type(params, results string) uint32 {
	t := slices.Concat([]byte{0x60}, types(params), types(results))
	if i := slices.IndexFunc(m.types, func(o []byte) bool { return slices.Equal(o, t) }); i >= 0 {
		return uint32(i)
	}
	m.types = append(m.types, t)
	return uint32(len(m.types) - 1)
}

// Import imports a function and returns its index.
func (m *Module) Import(module, name, params, results string) uint32 {
	b := append(wasm.AppendName(wasm.AppendName(nil, module), name), 0)
	m.imports = append(m.imports, wasm.AppendU32(b, m.Type(params, results)))
	return uint32(len(m.imports) - 1)
}

// Func adds a function and returns its index. A name exports it; locals has one letter for each; the body's end is
// added.
func (m *Module) Func(name, params, results, locals string, body ...[]byte) uint32 {
	m.funcs = append(m.funcs, wasm.AppendU32(nil, m.Type(params, results)))
	b := wasm.AppendU32(nil, uint32(len(locals)))
	for _, c := range locals {
		b = append(b, 1, ValueType(byte(c)))
	}
	b = append(append(b, slices.Concat(body...)...), wasm.OpEnd)
	m.bodies = append(m.bodies, append(wasm.AppendU32(nil, uint32(len(b))), b...))
	i := uint32(len(m.imports) + len(m.funcs) - 1)
	if name != "" {
		m.Export(name, 0, i)
	}
	return i
}

// Export exports a function (kind 0), table (1), memory (2) or global (3).
func (m *Module) Export(name string, kind byte, index uint32) {
	m.exports = append(m.exports, wasm.AppendU32(append(wasm.AppendName(nil, name), kind), index))
}

// Memory declares the memory, of low to high pages, and exports it as "memory".
func (m *Module) Memory(low, high uint32) {
	m.memory = wasm.AppendU32(wasm.AppendU32([]byte{1, 1}, low), high)
	m.Export("memory", 2, 0)
}

// Table declares a table that holds functions.
func (m *Module) Table(functions ...uint32) {
	m.table = wasm.AppendU32([]byte{1, wasm.FuncRef, 0}, uint32(len(functions)))
	b := wasm.AppendU32([]byte{0, wasm.OpI32Const, 0, wasm.OpEnd}, uint32(len(functions)))
	for _, f := range functions {
		b = wasm.AppendU32(b, f)
	}
	m.elements = append(m.elements, b)
}

// Global adds a mutable global and returns its index.
func (m *Module) Global(letter byte, value []byte) uint32 {
	m.globals = append(m.globals, append(append([]byte{ValueType(letter), 1}, value...), wasm.OpEnd))
	return uint32(len(m.globals) - 1)
}

// Data fills memory at an address.
func (m *Module) Data(at int32, bytes []byte) {
	m.datas = append(m.datas, slices.Concat([]byte{0}, I32(at), []byte{wasm.OpEnd}, wasm.AppendU32(nil, uint32(len(bytes))), bytes))
}

// Start names the function that runs at instantiation.
func (m *Module) Start(function uint32) { m.start = wasm.AppendU32(nil, function) }

// Bytes returns the module.
func (m *Module) Bytes() []byte {
	b := []byte(wasm.Header)
	vector := func(id byte, items [][]byte) {
		if len(items) > 0 {
			b = wasm.AppendSection(b, id, append(wasm.AppendU32(nil, uint32(len(items))), slices.Concat(items...)...))
		}
	}
	whole := func(id byte, body []byte) {
		if body != nil {
			b = wasm.AppendSection(b, id, body)
		}
	}
	vector(wasm.Type, m.types)
	vector(wasm.Import, m.imports)
	vector(wasm.Function, m.funcs)
	whole(wasm.Table, m.table)
	whole(wasm.Memory, m.memory)
	vector(wasm.Global, m.globals)
	vector(wasm.Export, m.exports)
	whole(wasm.Start, m.start)
	vector(wasm.Element, m.elements)
	vector(wasm.Code, m.bodies)
	vector(wasm.Data, m.datas)
	return b
}

// Op writes an instruction without operands, or bytes as they are.
func Op(b ...byte) []byte { return b }

// I32 pushes a constant.
func I32(v int32) []byte { return wasm.AppendS64([]byte{wasm.OpI32Const}, int64(v)) }

// I64 pushes a constant.
func I64(v int64) []byte { return wasm.AppendS64([]byte{wasm.OpI64Const}, v) }

// F64 pushes a constant.
func F64(v float64) []byte {
	b := []byte{wasm.OpF64Const}
	for u, i := math.Float64bits(v), 0; i < 8; i++ {
		b = append(b, byte(u>>(8*i)))
	}
	return b
}

// With writes an instruction with one index.
func With(op byte, index uint32) []byte { return wasm.AppendU32([]byte{op}, index) }

// Get pushes a local.
func Get(i uint32) []byte { return With(wasm.OpLocalGet, i) }

// Set pops into a local.
func Set(i uint32) []byte { return With(wasm.OpLocalSet, i) }

// Call calls a function.
func Call(i uint32) []byte { return With(wasm.OpCall, i) }

// Block, Loop and If enclose instructions that leave no result.
func Block(body ...[]byte) []byte { return enclose(wasm.OpBlock, body) }

// Loop repeats while a branch to label 0 is taken.
func Loop(body ...[]byte) []byte { return enclose(wasm.OpLoop, body) }

// If runs its body when the popped value is not zero.
func If(body ...[]byte) []byte { return enclose(wasm.OpIf, body) }

func enclose(op byte, body [][]byte) []byte {
	return append(append([]byte{op, 0x40}, slices.Concat(body...)...), wasm.OpEnd)
}

// Load and Store of an i32 at the popped address, and the bulk instructions.
func Load() []byte  { return Op(0x28, 2, 0) }
func Store() []byte { return Op(0x36, 2, 0) }

// Fill is memory.fill: address, value, length.
func Fill() []byte { return Op(wasm.OpMisc, wasm.MiscMemoryFill, 0) }

// Copy is memory.copy: target, source, length.
func Copy() []byte { return Op(wasm.OpMisc, wasm.MiscMemoryCopy, 0, 0) }

// Times writes a loop that runs body n times, counting down in an i32 local.
func Times(local uint32, n int32, body ...[]byte) []byte {
	return slices.Concat(I32(n), Set(local), Loop(slices.Concat(body...),
		Get(local), I32(1), Op(0x6b), With(wasm.OpLocalTee, local), With(wasm.OpBrIf, 0)))
}
