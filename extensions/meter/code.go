package meter

import "onebit/extensions/wasm"

// Prices in units. One is about what one simple instruction costs; a byte moved by a bulk instruction is one too.
const (
	priceCall     = 4
	priceIndirect = 6
	priceBulk     = 8
	priceGrow     = 64
	perElement    = 8  // of a table
	growShift     = 16 // a page got by memory.grow costs its bytes
)

// price is what one instruction adds to its region, without what depends on operands.
func price(in wasm.Instruction) int64 {
	switch in.Op {
	case wasm.OpCall:
		return 1 + priceCall
	case wasm.OpCallIndirect:
		return 1 + priceIndirect
	case wasm.OpMemoryGrow:
		return 1 + priceGrow
	case wasm.OpMisc:
		return 1 + priceBulk
	}
	return 1
}

func (w *writer) code() []byte {
	n := uint32(len(w.m.Functions))
	b := wasm.AppendU32(nil, n+w.added())
	if body := w.body[wasm.Code]; body != nil {
		r := wasm.NewReader(body)
		r.U32()
		var scratch []byte
		for range n {
			scratch = w.rewrite(scratch[:0], r.Take(r.U32()))
			b = append(wasm.AppendU32(b, uint32(len(scratch))), scratch...)
		}
	}
	for _, f := range w.helpers() {
		b = append(wasm.AppendU32(b, uint32(len(f))), f...)
	}
	return b
}

// prices fills costs. A region is what runs at most once between one loop head, or the entry, and the next: control
// flows backwards only to loop heads. So the entry of a function pays for all instructions outside of loops, and a
// loop head in each round for those of its loop outside of inner loops, whether they run or not.
func (w *writer) prices(r *wasm.Reader) {
	w.costs, w.open = append(w.costs[:0], 1), append(w.open[:0], 0)
	region := 0
	for len(w.open) > 0 {
		in := r.Instruction()
		w.costs[region] += price(in)
		switch in.Op {
		case wasm.OpBlock, wasm.OpIf:
			w.open = append(w.open, region)
		case wasm.OpLoop:
			w.open = append(w.open, region)
			w.costs = append(w.costs, 1)
			region = len(w.costs) - 1
		case wasm.OpEnd:
			region = w.open[len(w.open)-1]
			w.open = w.open[:len(w.open)-1]
		}
	}
}

// rewrite appends the metered form of one body.
func (w *writer) rewrite(b, body []byte) []byte {
	r := wasm.NewReader(body)
	for range r.U32() {
		r.U32()
		r.Byte()
	}
	b = append(b, r.Since(0)...)
	code := body[r.Pos():]
	w.prices(wasm.NewReader(code))
	b = w.charge(b, w.costs[0], true)
	r = wasm.NewReader(code)
	loop, copied := 0, 0
	for r.Left() > 0 {
		at := r.Pos()
		in := r.Instruction()
		switch {
		case in.Op == wasm.OpLoop:
			loop++
			b = append(b, code[copied:r.Pos()]...)
			b = w.charge(b, w.costs[loop], false)
		case in.Op == wasm.OpCall:
			b = append(b, code[copied:at]...)
			b = w.call(b, in.A)
		case in.Op == wasm.OpCallIndirect:
			weight := w.heaviest[w.m.Types[in.A].String()]
			b = w.slots(append(b, code[copied:at]...), wasm.OpI64Sub, weight)
			b = w.slots(append(b, code[at:r.Pos()]...), wasm.OpI64Add, weight)
		case in.Op == wasm.OpMemoryGrow:
			b = append(b, code[copied:at]...)
			b = wasm.AppendU32(append(b, wasm.OpCall), w.grow)
		case in.Op == wasm.OpMisc && by(in.Sub) != 0:
			helper := w.bulk
			if by(in.Sub) > 1 {
				helper = w.table
			}
			b = append(b, code[copied:at]...)
			b = wasm.AppendU32(append(b, wasm.OpCall), helper)
			b = append(b, code[at:r.Pos()]...)
		default:
			continue
		}
		copied = r.Pos()
	}
	return append(b, code[copied:]...)
}

// by is what a bulk instruction pays for each unit of its length; 0 when it has none.
func by(sub uint32) int {
	switch sub {
	case wasm.MiscMemoryInit, wasm.MiscMemoryCopy, wasm.MiscMemoryFill:
		return 1
	case wasm.MiscTableInit, wasm.MiscTableCopy:
		return perElement
	}
	return 0
}

// call calls function i of the guest's numbering. Functions of the host run on its own stack.
func (w *writer) call(b []byte, i uint32) []byte {
	if i < w.imports {
		return wasm.AppendU32(append(b, wasm.OpCall), i)
	}
	weight := w.weights[i-w.imports]
	b = w.slots(b, wasm.OpI64Sub, weight)
	b = wasm.AppendU32(append(b, wasm.OpCall), w.function(i))
	return w.slots(b, wasm.OpI64Add, weight)
}

// slots takes weight from the stack counter or gives it back. The callee looks at the sign.
func (w *writer) slots(b []byte, op byte, weight int64) []byte {
	b = wasm.AppendU32(append(b, wasm.OpGlobalGet), w.stack)
	b = append(wasm.AppendS64(append(b, wasm.OpI64Const), weight), op)
	return wasm.AppendU32(append(b, wasm.OpGlobalSet), w.stack)
}

// charge subtracts cost and calls refill when units, or at an entry slots, are below zero. It leaves the operands alone.
func (w *writer) charge(b []byte, cost int64, entry bool) []byte {
	b = wasm.AppendU32(append(b, wasm.OpGlobalGet), w.units)
	b = append(wasm.AppendS64(append(b, wasm.OpI64Const), cost), wasm.OpI64Sub)
	b = wasm.AppendU32(append(b, wasm.OpGlobalSet), w.units)
	return w.test(b, entry)
}

// test calls refill when a counter is below zero.
func (w *writer) test(b []byte, both bool) []byte {
	b = wasm.AppendU32(append(b, wasm.OpGlobalGet), w.units)
	if both {
		b = append(wasm.AppendU32(append(b, wasm.OpGlobalGet), w.stack), wasm.OpI64Or)
	}
	b = append(b, wasm.OpI64Const, 0, wasm.OpI64LtS, wasm.OpIf, 0x40, wasm.OpCall)
	return append(wasm.AppendU32(b, w.refill), wasm.OpEnd)
}

// helpers returns the bodies of the added functions, in the order of their indices.
func (w *writer) helpers() [][]byte {
	trap := []byte{wasm.OpI64Const, 0, wasm.OpI64LtS, wasm.OpIf, 0x40, wasm.OpUnreachable, wasm.OpEnd}
	get := func(b []byte, global uint32) []byte { return wasm.AppendU32(append(b, wasm.OpGlobalGet), global) }
	set := func(b []byte, global uint32) []byte { return wasm.AppendU32(append(b, wasm.OpGlobalSet), global) }

	refill := append(get([]byte{0}, w.stack), trap...) // no stack: trap
	refill = wasm.AppendU32(append(get(refill, w.units), wasm.OpCall), w.imports)
	refill = append(get(set(refill, w.units), w.units), trap...) // no budget: trap
	refill = append(refill, wasm.OpEnd)

	pay := func(shift byte) []byte { // subtracts the argument << shift, and returns the argument
		b := append(get([]byte{0}, w.units), wasm.OpLocalGet, 0, wasm.OpI64ExtendU)
		b = set(append(b, wasm.OpI64Const, shift, wasm.OpI64Shl, wasm.OpI64Sub), w.units)
		return append(w.test(b, false), wasm.OpLocalGet, 0, wasm.OpEnd)
	}
	all := [][]byte{refill, pay(0), pay(3)}
	if !w.m.HasMemory {
		return all
	}
	grow := []byte{1, 1, wasm.I32, wasm.OpLocalGet, 0, wasm.OpMemoryGrow, 0, wasm.OpLocalTee, 1}
	grow = append(grow, wasm.OpI32Const, 0x7f, wasm.OpI32Ne, wasm.OpIf, 0x40) // it did grow
	grow = append(get(grow, w.units), wasm.OpLocalGet, 0, wasm.OpI64ExtendU, wasm.OpI64Const, growShift, wasm.OpI64Shl, wasm.OpI64Sub)
	grow = append(w.test(set(grow, w.units), false), wasm.OpEnd, wasm.OpLocalGet, 1, wasm.OpEnd)
	return append(all, grow)
}
