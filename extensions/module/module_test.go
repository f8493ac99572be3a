package module_test

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"onebit/extensions/abi"
	"onebit/extensions/module"
	"onebit/extensions/wasm"
	. "onebit/extensions/wasm/wasmtest"
)

// section makes a module of raw sections: id, body, id, body, …
func sections(parts ...any) []byte {
	b := []byte(wasm.Header)
	for i := 0; i < len(parts); i += 2 {
		b = wasm.AppendSection(b, byte(parts[i].(int)), parts[i+1].([]byte))
	}
	return b
}

func raw(b ...byte) []byte { return b }

// number writes n, then bytes.
func number(n uint32, rest ...byte) []byte { return append(wasm.AppendU32(nil, n), rest...) }

// run makes a module whose only function has this body.
func run(locals string, body ...[]byte) []byte {
	m := &Module{}
	m.Memory(1, 2)
	m.Func("run", "", "", locals, body...)
	return m.Bytes()
}

// huge is a count that lies.
const huge = 0x07ffffff

var void = raw(1, 0x60, 0, 0) // a type section with () -> ()

// declared makes a module whose only function declares n locals of one type.
func declared(n uint32) []byte {
	body := append(append(raw(1), wasm.AppendU32(nil, n)...), wasm.I64, wasm.OpEnd)
	return sections(wasm.Type, void, wasm.Function, raw(1, 0), wasm.Code, append(number(1, byte(len(body))), body...))
}

// nested opens n blocks or loops in each other.
func nested(op byte, n int) []byte {
	return run("", slices.Repeat(Op(op, 0x40), n), slices.Repeat(Op(wasm.OpEnd), n))
}

// TestRefusals holds one module for each rule, most of them attacks.
func TestRefusals(t *testing.T) {
	big := module.Default()
	tests := []struct {
		name string
		b    []byte
		want string // in the refusal
	}{
		{"empty", nil, "not WebAssembly"},
		{"short", []byte(wasm.Header)[:6], "not WebAssembly"},
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), "component"},
		{"too long", append([]byte(wasm.Header), make([]byte, big.Bytes)...), "module: 83886"},
		{"unknown section", sections(77, raw()), "section 77"},
		{"exceptions", sections(13, raw(0)), "section 13"},
		{"order", sections(wasm.Function, raw(0), wasm.Type, raw(0)), "type: the section is out of order"},
		{"twice", sections(wasm.Type, raw(0), wasm.Type, raw(0)), "twice"},
		{"section longer than the module", append([]byte(wasm.Header), number(wasm.Type, 0xff, 0xff, 0xff, 0xff, 1)...), "are announced"},
		{"rest in a section", sections(wasm.Type, raw(0, 0)), "type: 1 bytes follow"},
		{"customs", []byte(wasm.Header + strings.Repeat("\x00\x02\x01a", 65)), "custom 64: over 64"},
		{"custom name", sections(wasm.Custom, number(huge)), "custom 0:"},
		{"number over 32 bits", sections(wasm.Type, raw(0xff, 0xff, 0xff, 0xff, 0x1f)), "over 32 bits"},
		{"lying types", sections(wasm.Type, number(huge)), "type: 134217727 types, at most 2000"},
		{"types without bytes", sections(wasm.Type, number(1000)), "do not fit"},
		{"lying parameters", sections(wasm.Type, append(raw(1, 0x60), number(huge)...)), "type 0: 134217727 parameters"},
		{"form", sections(wasm.Type, raw(1, 0x5f, 0, 0)), "form 0x5f"},
		{"externref", sections(wasm.Type, raw(1, 0x60, 1, 0x6f, 0)), "value type 0x6f"},
		{"lying imports", sections(wasm.Import, number(huge)), "import: 134217727 imports"},
		{"imported memory", sections(wasm.Import, raw(1, 1, 'a', 1, 'b', 2, 0, 1)), `import 0: "a"."b" is not a function`},
		{"import of the host's own", sections(wasm.Type, void, wasm.Import, append(wasm.AppendName(wasm.AppendName(raw(1), abi.MeterModule), "tick"), 0, 0)), "may not be imported"},
		{"import's type", sections(wasm.Type, void, wasm.Import, raw(1, 1, 'a', 1, 'b', 0, 1)), "type 1 of 1"},
		{"name", sections(wasm.Import, raw(1, 1, 0xff, 1, 'b', 0, 0)), "not UTF-8"},
		{"lying functions", sections(wasm.Function, number(huge)), "functions, at most 20000"},
		{"functions without code", sections(wasm.Type, void, wasm.Function, raw(1, 0)), "without a code section"},
		{"lying tables", sections(wasm.Table, number(huge)), "tables, at most 1"},
		{"a hundred tables", sections(wasm.Table, append(number(100), bytes.Repeat(raw(0x70, 0, 0), 100)...)), "100 tables"},
		{"a large table", sections(wasm.Table, append(raw(1, 0x70, 0), number(10_000_000)...)), "10000000 elements"},
		{"table of externref", sections(wasm.Table, raw(1, 0x6f, 0, 0)), "table 0: a table of type 0x6f"},
		{"two memories", sections(wasm.Memory, raw(2, 0, 1, 0, 1)), "2 memories"},
		{"4 GiB", sections(wasm.Memory, append(raw(1, 0), number(65536)...)), "memory 0: 65536 pages of 64 KiB, at most 512"},
		{"shared memory", sections(wasm.Memory, raw(1, 3, 1, 1)), "flags 3"},
		{"memory upside down", sections(wasm.Memory, raw(1, 1, 2, 1)), "at least 2, at most 1"},
		{"lying globals", sections(wasm.Global, number(huge)), "globals, at most"},
		{"global that reads", sections(wasm.Global, raw(1, wasm.I32, 0, wasm.OpGlobalGet, 0, wasm.OpEnd)), "global 0: at byte"},
		{"mutable vector", sections(wasm.Global, append(append(raw(1, wasm.V128, 1, wasm.OpVector, 12), make([]byte, 16)...), wasm.OpEnd)), "cannot be restored"},
		{"lying exports", sections(wasm.Export, number(huge)), "exports, at most 128"},
		{"export twice", sections(wasm.Type, void, wasm.Memory, raw(1, 0, 1), wasm.Export, raw(2, 1, 'a', 2, 0, 1, 'a', 2, 0)), `export 1: "a" is exported twice`},
		{"reserved export", sections(wasm.Memory, raw(1, 0, 1), wasm.Export, append(wasm.AppendName(raw(1), "laya_meter_units"), 2, 0)), "belong to the host"},
		{"export of nothing", sections(wasm.Export, raw(1, 1, 'a', 3, 0)), "number 0 of 0"},
		{"export kind", sections(wasm.Export, raw(1, 1, 'a', 9, 0)), "kind 9"},
		{"start", sections(wasm.Start, raw(0)), "the start function is function 0 of 0"},
		{"lying elements", sections(wasm.Element, number(huge)), "element segments, at most"},
		{"lying element items", sections(wasm.Table, raw(1, 0x70, 0, 1), wasm.Element, append(raw(1, 0, wasm.OpI32Const, 0, wasm.OpEnd), number(huge)...)), "element 0: 134217727 elements"},
		{"element of no function", sections(wasm.Table, raw(1, 0x70, 0, 1), wasm.Element, raw(1, 0, wasm.OpI32Const, 0, wasm.OpEnd, 1, 7)), "function 7 of 0"},
		{"element without table", sections(wasm.Element, raw(1, 0, wasm.OpI32Const, 0, wasm.OpEnd, 0)), "table 0 of 0"},
		{"lying code", sections(wasm.Code, number(huge)), "bodies, at most 0"},
		{"fewer bodies", sections(wasm.Type, void, wasm.Function, raw(2, 0, 0), wasm.Code, raw(1, 2, 0, wasm.OpEnd)), "1 bodies for 2"},
		{"lying body", sections(wasm.Type, void, wasm.Function, raw(1, 0), wasm.Code, append(raw(1), number(100, 0, wasm.OpEnd)...)), "code 0: at byte"},
		{"a large body", run("", slices.Repeat(I32(1), 70_000), slices.Repeat(Op(wasm.OpDrop), 70_000)), "a body of 2100"},
		{"four billion locals", declared(0xfffffff0), "code 0: over 1000 locals"},
		{"50,000 locals", declared(50_000), "over 1000 locals"},
		{"lying groups of locals", sections(wasm.Type, void, wasm.Function, raw(1, 0), wasm.Code, raw(1, 5, 0xff, 0xff, 0xff, 0x3f, 0)), "groups of locals"},
		{"deep blocks", nested(wasm.OpBlock, 3000), "over 2048 deep"},
		{"deep loops", nested(wasm.OpLoop, 30), "loops nest over 24 deep"},
		{"joins", run(strings.Repeat("i", 900), slices.Repeat(Block(), 200)), "900 locals times 200 blocks"},
		{"joins of all functions", func() []byte {
			m := &Module{}
			for range 30 {
				m.Func("", "", "", strings.Repeat("i", 900), slices.Repeat(Block(), 100))
			}
			return m.Bytes()
		}(), "code 22: locals times blocks of all"},
		{"a long br_table", run("", Block(I32(0), append(With(wasm.OpBrTable, 5000), make([]byte, 5001)...))), "a br_table of 5000"},
		{"a lying br_table", run("", Block(I32(0), With(wasm.OpBrTable, huge))), "labels in"},
		{"bulk", run("", slices.Repeat(slices.Concat(I32(0), I32(0), I32(0), Fill()), 600)), "over 512 bulk"},
		{"table.grow", run("", Op(wasm.OpMisc, 15, 0)), "table.grow"},
		{"tail call", run("", Op(0x12, 0)), "tail calls"},
		{"threads", run("", Op(0xfe, 0, 0)), "threads"},
		{"try", run("", Op(0x06, 0x40)), "exceptions"},
		{"relaxed SIMD", run("", Op(wasm.OpVector, 0x80, 2)), "relaxed SIMD"},
		{"second memory", run("", I32(0), Op(0x28, 0x42, 1, 0, wasm.OpDrop)), "second memory"},
		{"memory.grow of another", run("", I32(0), Op(wasm.OpMemoryGrow, 1, wasm.OpDrop)), "memory 1"},
		{"call of nobody", run("", Call(1)), "function 1 of 1"},
		{"global of nobody", run("", With(wasm.OpGlobalGet, 0), Op(wasm.OpDrop)), "global 0 of 0"},
		{"local of nobody", run("i", Get(1), Op(wasm.OpDrop)), "local 1 of 1"},
		{"label of nobody", run("", With(wasm.OpBr, 1)), "label 1 of 1"},
		{"call_indirect without table", run("", I32(0), Op(wasm.OpCallIndirect, 0, 0)), "table 0 of 0"},
		{"else without if", run("", Block(Op(wasm.OpElse))), "an else without an if"},
		{"after the end", run("", Op(wasm.OpEnd, wasm.OpEnd)), "bytes follow the end"},
		{"without an end", run("", Op(wasm.OpBlock, 0x40)), "end early"},
		{"data without a count", run("", Op(wasm.OpMisc, wasm.MiscDataDrop, 0)), "data segment 0 of 0"},
		{"load without memory", sections(wasm.Type, void, wasm.Function, raw(1, 0), wasm.Code, raw(1, 8, 0, 0x41, 0, 0x28, 0, 0, 0x1a, wasm.OpEnd)), "without a memory"},
		{"lying data", sections(wasm.Data, number(huge)), "data segments, at most"},
		{"data out of memory", sections(wasm.Memory, raw(1, 0, 1), wasm.Data, raw(1, 0, wasm.OpI32Const, 0x7f, wasm.OpEnd, 1, 'x')), "data 0: bytes 4294967295"},
		{"data count", sections(wasm.DataCount, raw(2), wasm.Data, raw(0)), "the data count section says 2"},
		{"data count alone", sections(wasm.DataCount, raw(2)), "none is there"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := module.Parse(tt.b, module.Default())
			refusal, ok := errors.AsType[*module.RefusalError](err)
			if !ok || m != nil {
				t.Fatalf("got %v, want a refusal", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want %q in it", err, tt.want)
			}
			if refusal.Remedy == "" || refusal.Section == "" {
				t.Errorf("the refusal says too little: %+v", refusal)
			}
		})
	}
}

// TestAllocation: hostile bytes make Parse allocate a small multiple of their length, whatever they announce.
func TestAllocation(t *testing.T) {
	many := append(number(1_000), bytes.Repeat(raw(0x60, 0, 0), 1_000)...)
	for name, b := range map[string][]byte{
		"types":  sections(wasm.Type, number(2000)),
		"lie":    sections(wasm.Code, number(1<<31)),
		"locals": declared(0xfffffff0),
		"honest": sections(wasm.Type, many),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		module.Parse(b, module.Default())
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<10+64*len(b)); got > most {
			t.Errorf("%s: %d bytes allocated for %d", name, got, len(b))
		}
	}
}

// TestAccepts: what honest modules have.
func TestAccepts(t *testing.T) {
	for seed := range uint64(50) {
		b, params, _ := Random(seed)
		m, err := module.Parse(b, module.Default())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(m.Functions) != len(params) || !m.HasMemory || m.Pages != 1 || m.PagesMax != 3 || len(m.Globals) != 3 || m.Data != 1 {
			t.Fatalf("seed %d: parsed as %+v", seed, m)
		}
	}
	simd := run("v", Op(wasm.OpVector, 12), make([]byte, 16), Set(0))
	if m, err := module.Parse(simd, module.Default()); err != nil || m.Bodies[0].Locals != 1 {
		t.Errorf("SIMD: %v", err)
	}
}

// guest writes a guest of the contract; change spoils it.
func guest(change func(m *Module)) []byte {
	m := &Module{}
	log := m.Import(abi.HostModule, "log", "iii", "")
	kv := m.Import(abi.HostModule, "kv_get", "iiii", "i")
	m.Memory(2, 2)
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", I32(1024))
	if change != nil {
		change(m)
		return m.Bytes()
	}
	m.Func(abi.Route, "ii", "l", "", I32(0), I32(0), I32(0), Call(log), I32(0), I32(0), I32(0), I32(0), Call(kv), Op(wasm.OpDrop), I64(0))
	return m.Bytes()
}

func TestGuest(t *testing.T) {
	all := func(abi.Capability) bool { return true }
	none := func(abi.Capability) bool { return false }
	bare := &Module{}
	bare.Func(abi.Marker, "", "", "")
	foreign := &Module{}
	foreign.Import("env", "abort", "iiii", "")
	mistyped := &Module{}
	mistyped.Import(abi.HostModule, "log", "ii", "")
	tests := []struct {
		name    string
		b       []byte
		granted func(abi.Capability) bool
		want    string // "" when it passes
	}{
		{"whole", guest(nil), all, ""},
		{"no grant", guest(nil), none, `laya_v1.kv_get needs the capability "kv"`},
		{"decides nothing", guest(func(*Module) {}), all, "neither laya_classify nor laya_route"},
		{"wrong type", guest(func(m *Module) { m.Func(abi.Classify, "ii", "i", "", I32(0)) }), all, "laya_classify has type (i32, i32) -> (i32), not (i32, i32) -> (i64)"},
		{"no memory", bare.Bytes(), all, "memory is missing"},
		{"memory is a function", func() []byte { m := &Module{}; m.Func(abi.Memory, "", "", ""); return m.Bytes() }(), all, "is not a memory"},
		{"foreign import", foreign.Bytes(), all, `import 0: "env"."abort" is not offered`},
		{"import's type", mistyped.Bytes(), all, "laya_v1.log has type (i32, i32) -> ()"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := module.Parse(tt.b, module.Default())
			if err != nil {
				t.Fatal(err)
			}
			err = m.Guest(tt.granted)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// FuzzParse: any bytes are refused or parsed, quickly and within bounds; what passes is consistent.
func FuzzParse(f *testing.F) {
	for seed := range uint64(3) {
		b, _, _ := Random(seed)
		f.Add(b)
	}
	f.Add(guest(nil))
	f.Add(declared(0xfffffff0))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := module.Parse(b, module.Default())
		if err != nil {
			if _, ok := errors.AsType[*module.RefusalError](err); !ok {
				t.Fatalf("not a refusal: %v", err)
			}
			return
		}
		if len(m.Bodies) != len(m.Functions) {
			t.Fatalf("%d bodies, %d functions", len(m.Bodies), len(m.Functions))
		}
		for i := range m.Functions {
			_ = m.Signature(uint32(len(m.Imports) + i)).String()
		}
	})
}
