// Package meter rewrites a WebAssembly module so that it counts its own work and its own stack. The count depends on the
// module and its input alone: it is the same in every run, on every machine and in every engine.
//
// What the rewrite adds:
//   - a counter of units, from which each run of instructions subtracts its price before it begins; bulk instructions
//     subtract what they move, memory.grow what it got; the entry of a function and the head of a loop look whether
//     anything is left;
//   - a counter of stack slots, from which a call subtracts the weight of its callee and gives it back afterwards;
//   - one import, tick, called when the units are below zero: it answers with the new counter, and traps the guest by an
//     answer below zero. The guest thus visits the host regularly, which can look at the clock and at the budget;
//   - exports of both counters and of the guest's mutable globals, so that the host can set and restore them.
//
// Custom sections are dropped. Everything else keeps its meaning.
package meter

import (
	"fmt"
	"slices"

	"onebit/extensions/abi"
	"onebit/extensions/module"
	"onebit/extensions/wasm"
)

// What the rewritten module imports and exports besides the guest's own.
const (
	Module = abi.MeterModule            // the module that offers Tick
	Tick   = "tick"                     // (i64) -> (i64): the counter below zero in, the new counter out
	Units  = abi.MeterModule + "_units" // i64, mutable; 0 at the start
	Stack  = abi.MeterModule + "_stack" // i64, mutable; StackSlots at the start; the host sets it before each call
)

// StackSlots is the stack that the start function has, in weighted slots.
const StackSlots = 128 << 10

// GlobalName returns the name under which the guest's mutable global i is exported.
func GlobalName(i int) string { return fmt.Sprintf("%s_global_%d", abi.MeterModule, i) }

// Rewrite checks b against l and returns the metered module, which passes module.Parse with l.Metered(). Its memory
// cannot grow over l.Pages. An error is, or wraps, a *module.RefusalError: a body that consists of calls and loops alone
// grows twelvefold, and may then be more than a compiler should be given.
func Rewrite(b []byte, l module.Limits) ([]byte, error) {
	m, err := module.Parse(b, l)
	if err != nil {
		return nil, err
	}
	w := &writer{m: m, imports: uint32(len(m.Imports)), body: make(map[byte][]byte, len(m.Sections))}
	for _, s := range m.Sections {
		w.body[s.ID] = s.Body
	}
	w.plan()
	out := append(make([]byte, 0, len(b)+len(b)/2+1024), wasm.Header...)
	for _, s := range []struct {
		id   byte
		body []byte
	}{
		{wasm.Type, w.types()}, {wasm.Import, w.importSection()}, {wasm.Function, w.functions()}, {wasm.Table, w.body[wasm.Table]},
		{wasm.Memory, w.memory(l.Pages)}, {wasm.Global, w.globals()}, {wasm.Export, w.exports()}, {wasm.Start, w.start()},
		{wasm.Element, w.elements()}, {wasm.DataCount, w.body[wasm.DataCount]}, {wasm.Code, w.code()}, {wasm.Data, w.body[wasm.Data]},
	} {
		if s.body != nil {
			out = wasm.AppendSection(out, s.id, s.body)
		}
	}
	if _, err := module.Parse(out, l.Metered()); err != nil {
		return nil, fmt.Errorf("counting its work makes it too large: %w", err)
	}
	return out, nil
}

// writer writes the sections of one module anew.
type writer struct {
	m       *module.Module
	imports uint32 // the guest's own; tick comes after them and shifts every function of the guest by one
	body    map[byte][]byte

	units, stack   uint32 // indices of the counters
	refill         uint32 // indices of the added functions
	bulk, table    uint32
	grow           uint32
	weights        []int64          // of each function of the guest, in slots
	heaviest       map[string]int64 // of the functions of each signature
	segments       []segment        // of the function being written
	open           []int            // its open blocks: the segment in which each began
	void, one, two uint32           // added types: () -> (), (i32) -> (i32), (i64) -> (i64)
}

// plan gives every addition its index and every function its weight.
func (w *writer) plan() {
	n := uint32(len(w.m.Types))
	w.void, w.one, w.two = n, n+1, n+2
	w.units = uint32(len(w.m.Globals))
	w.stack = w.units + 1
	w.refill = w.imports + 1 + uint32(len(w.m.Functions))
	w.bulk, w.table, w.grow = w.refill+1, w.refill+2, w.refill+3
	w.heaviest = map[string]int64{}
	for i, b := range w.m.Bodies {
		s := w.m.Types[w.m.Functions[i]]
		weight := int64(frame + len(s.Params) + len(s.Results) + b.Locals + b.Bytes/spill)
		w.weights = append(w.weights, weight)
		w.heaviest[s.String()] = max(w.heaviest[s.String()], weight)
	}
}

// frame is what an empty function takes of the stack, in slots. spill is how many bytes of a body stand for one value
// that the compiler keeps on the stack.
const (
	frame = 8
	spill = 32
)

// function gives a function's index after the rewrite.
func (w *writer) function(i uint32) uint32 {
	if i >= w.imports {
		return i + 1
	}
	return i
}

// rest returns what follows the leading count of a section, and the count.
func rest(body []byte) ([]byte, uint32) {
	if body == nil {
		return nil, 0
	}
	r := wasm.NewReader(body)
	n := r.U32()
	return body[r.Pos():], n
}

func (w *writer) types() []byte {
	old, n := rest(w.body[wasm.Type])
	b := append(wasm.AppendU32(nil, n+3), old...)
	return append(b,
		0x60, 0, 0,
		0x60, 1, wasm.I32, 1, wasm.I32,
		0x60, 1, wasm.I64, 1, wasm.I64)
}

func (w *writer) importSection() []byte {
	old, n := rest(w.body[wasm.Import])
	b := append(wasm.AppendU32(nil, n+1), old...)
	b = wasm.AppendName(wasm.AppendName(b, Module), Tick)
	return wasm.AppendU32(append(b, 0), w.two)
}

func (w *writer) functions() []byte {
	old, n := rest(w.body[wasm.Function])
	b := append(wasm.AppendU32(nil, n+w.added()), old...)
	b = wasm.AppendU32(b, w.void)
	b = wasm.AppendU32(b, w.one)
	b = wasm.AppendU32(b, w.one)
	if w.m.HasMemory {
		b = wasm.AppendU32(b, w.one)
	}
	return b
}

// added counts the functions that the rewrite adds.
func (w *writer) added() uint32 {
	if w.m.HasMemory {
		return 4
	}
	return 3
}

// memory bounds the memory's growth, so that the answer of memory.grow does not depend on the host.
func (w *writer) memory(limit uint32) []byte {
	if !w.m.HasMemory {
		return w.body[wasm.Memory]
	}
	b := wasm.AppendU32([]byte{1, 1}, w.m.Pages)
	return wasm.AppendU32(b, min(w.m.PagesMax, limit))
}

func (w *writer) globals() []byte {
	old, n := rest(w.body[wasm.Global])
	b := append(wasm.AppendU32(nil, n+2), old...)
	b = append(b, wasm.I64, 1, wasm.OpI64Const, 0, wasm.OpEnd)
	b = append(b, wasm.I64, 1, wasm.OpI64Const)
	return append(wasm.AppendS64(b, StackSlots), wasm.OpEnd)
}

func (w *writer) exports() []byte {
	var b []byte
	n := uint32(len(w.m.Exports)) + 2
	add := func(name string, kind byte, index uint32) {
		b = wasm.AppendU32(append(wasm.AppendName(b, name), kind), index)
	}
	for _, e := range w.m.Exports {
		if e.Kind == 0 {
			e.Index = w.function(e.Index)
		}
		add(e.Name, e.Kind, e.Index)
	}
	add(Units, 3, w.units)
	add(Stack, 3, w.stack)
	for i, g := range w.m.Globals {
		if g.Mutable {
			add(GlobalName(i), 3, uint32(i))
			n++
		}
	}
	return slices.Concat(wasm.AppendU32(nil, n), b)
}

func (w *writer) start() []byte {
	body := w.body[wasm.Start]
	if body == nil {
		return nil
	}
	return wasm.AppendU32(nil, w.function(wasm.NewReader(body).U32()))
}

func (w *writer) elements() []byte {
	body := w.body[wasm.Element]
	if body == nil {
		return nil
	}
	r := wasm.NewReader(body)
	n := r.U32()
	b := wasm.AppendU32(nil, n)
	for range n {
		from := r.Pos()
		flags := r.U32()
		if flags&1 == 0 {
			if flags&2 != 0 {
				r.U32()
			}
			r.Instruction()
			r.Byte() // its end
		}
		if flags&3 != 0 {
			r.Byte()
		}
		items := r.U32()
		b = append(b, r.Since(from)...)
		for range items {
			b = w.element(b, r, flags&4 != 0)
		}
	}
	return b
}

// element copies one element: a function's index, or a constant that gives one.
func (w *writer) element(b []byte, r *wasm.Reader, constant bool) []byte {
	if !constant {
		return wasm.AppendU32(b, w.function(r.U32()))
	}
	op := r.Byte()
	if op == wasm.OpRefNull {
		b = append(b, op, r.Byte())
	} else {
		b = wasm.AppendU32(append(b, op), w.function(r.U32()))
	}
	return append(b, r.Byte())
}
