// Package module judges the structure of a WebAssembly module before any compiler sees a byte of it. A compiler trusts
// counts and nesting: fourteen bytes can make one allocate until the process dies. Parse reads the bytes once, allocates
// no more than a small multiple of their length, and refuses by section, index, reason and remedy. Types of
// operands are not judged here; the compiler does that, and it is safe to let it once Parse has passed.
package module

import (
	"fmt"

	"onebit/extensions/abi"
	"onebit/extensions/wasm"
)

// RefusalError says what is wrong with a module, where, and what its author can do.
type RefusalError struct {
	Section string // "code", "import", …; "module" when it is about the whole
	Index   int    // of the item in its section; -1 when it is about the whole section
	Reason  string
	Remedy  string
}

func (r *RefusalError) Error() string {
	at := r.Section
	if r.Index >= 0 {
		at = fmt.Sprintf("%s %d", r.Section, r.Index)
	}
	return fmt.Sprintf("module refused: %s: %s; %s", at, r.Reason, r.Remedy)
}

// Section is one section's body as it stands in the module.
type Section struct {
	ID   byte
	Body []byte
}

// Signature is the type of a function: one byte for each value type.
type Signature struct{ Params, Results []byte }

// String gives the notation of package abi: "(i32, i32) -> (i64)".
func (s Signature) String() string { return list(s.Params) + " -> " + list(s.Results) }

func list(types []byte) string {
	names := map[byte]string{wasm.I32: "i32", wasm.I64: "i64", wasm.F32: "f32", wasm.F64: "f64", wasm.V128: "v128"}
	out := "("
	for i, t := range types {
		if i > 0 {
			out += ", "
		}
		out += names[t]
	}
	return out + ")"
}

// Imported is one imported function.
type Imported struct {
	Module, Name string
	Type         uint32
}

// Exported is one export: Kind 0 function, 1 table, 2 memory, 3 global.
type Exported struct {
	Name  string
	Kind  byte
	Index uint32
}

// Variable is one global.
type Variable struct {
	Type    byte
	Mutable bool
}

// Body is what is known of one function's body.
type Body struct {
	Bytes  int // with the declarations of locals
	Locals int // without parameters
	Blocks int
}

// Module is a module that passed Parse. Its slices point into the parsed bytes; nobody changes them.
type Module struct {
	Sections  []Section // in order, without custom ones
	Types     []Signature
	Imports   []Imported
	Functions []uint32 // the type of each function defined here
	Globals   []Variable
	Exports   []Exported
	Bodies    []Body
	Tables    int
	HasMemory bool
	Pages     uint32 // at the start
	PagesMax  uint32 // 65536 when the module names none
	Segments  int    // element segments
	Data      int    // data segments; -1 when there is neither a data nor a data count section

	limits Limits
}

// Signature returns the type of a function by its index, imported ones first.
func (m *Module) Signature(function uint32) Signature {
	if n := uint32(len(m.Imports)); function >= n {
		return m.Types[m.Functions[function-n]]
	}
	return m.Types[m.Imports[function].Type]
}

// Parse checks b against l. The error is a *RefusalError.
func Parse(b []byte, l Limits) (*Module, error) {
	if len(b) > l.Bytes {
		return nil, refuse("module", -1, "ask the operator for a larger limit, or leave out what is not needed", "%d bytes, at most %d", len(b), l.Bytes)
	}
	if len(b) < 8 || string(b[:4]) != wasm.Header[:4] {
		return nil, refuse("module", -1, "upload a .wasm file", "this is not WebAssembly")
	}
	if string(b[:8]) != wasm.Header {
		return nil, refuse("module", -1, "build a core module (for Rust wasm32-wasip1, not wasip2)", "this is a component or an unknown version")
	}
	p := &parser{m: &Module{PagesMax: wasm.PageSize, Data: -1, limits: l}, l: l}
	if err := p.sections(b[8:]); err != nil {
		return nil, err
	}
	if err := p.whole(); err != nil {
		return nil, err
	}
	return p.m, nil
}

func refuse(section string, index int, remedy, format string, args ...any) error {
	return &RefusalError{section, index, fmt.Sprintf(format, args...), remedy}
}

// Guest checks a parsed module against the contract laya_v1: what it imports, what it must export. granted tells which
// capabilities the operator allows.
func (m *Module) Guest(granted func(abi.Capability) bool) error {
	for i, im := range m.Imports {
		f, ok := abi.Import(im.Module, im.Name)
		if !ok {
			return refuse("import", i, "the host offers only what ABI.md lists", "%q.%q is not offered", im.Module, im.Name)
		}
		if got := m.Types[im.Type].String(); got != f.Type {
			return refuse("import", i, "declare it as ABI.md does", "%s.%s has type %s, not %s", im.Module, im.Name, got, f.Type)
		}
		if f.Capability != "" && !granted(f.Capability) {
			return refuse("import", i, "ask the operator to grant it, or build without it", "%s.%s needs the capability %q", im.Module, im.Name, f.Capability)
		}
	}
	decides := false
	for _, f := range abi.Exports() {
		has, err := m.exports(f)
		if err != nil {
			return err
		}
		decides = decides || has && f.Decides
	}
	if !decides {
		return refuse("export", -1, "export one of them as ABI.md says", "neither %s nor %s is exported", abi.Classify, abi.Route)
	}
	return nil
}

// exports tells whether m exports f as it should be.
func (m *Module) exports(f abi.Function) (bool, error) {
	for i, e := range m.Exports {
		if e.Name != f.Name {
			continue
		}
		if f.Type == "" { // the memory
			if e.Kind != 2 {
				return false, refuse("export", i, "export the linear memory under this name", "%q is not a memory", f.Name)
			}
			return true, nil
		}
		if e.Kind != 0 {
			return false, refuse("export", i, "export a function under this name", "%q is not a function", f.Name)
		}
		if got := m.Signature(e.Index).String(); got != f.Type {
			return false, refuse("export", i, "declare it as ABI.md does", "%s has type %s, not %s", f.Name, got, f.Type)
		}
		return true, nil
	}
	if f.Required {
		return false, refuse("export", -1, "export it as ABI.md says", "%s is missing", f.Name)
	}
	return false, nil
}
