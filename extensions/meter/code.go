package meter

import "onebit/extensions/wasm"

// Prices in units. One is about what one simple instruction costs; a byte moved by a bulk instruction is one too.
const (
	priceDivide   = 16 // whole numbers, also for a remainder
	priceRoot     = 8  // a division or a square root of floats
	priceCall     = 4
	priceIndirect = 6
	priceBulk     = 8
	priceGrow     = 64
	perElement    = 8  // of a table
	growShift     = 16 // a page got by memory.grow costs its bytes
)

// price is what one instruction adds to its region, without what depends on operands.
func price(in wasm.Instruction) int64 {
	switch op := in.Op; {
	case op == wasm.OpBlock, op == wasm.OpEnd:
		return 0 // they only name places
	case op == wasm.OpCall:
		return 1 + priceCall
	case op == wasm.OpCallIndirect:
		return 1 + priceIndirect
	case op == wasm.OpMemoryGrow:
		return 1 + priceGrow
	case op == wasm.OpMisc && in.Sub >= wasm.MiscMemoryInit:
		return 1 + priceBulk
	case op >= wasm.OpI32DivS && op <= wasm.OpI32RemU, op >= wasm.OpI64DivS && op <= wasm.OpI64RemU:
		return priceDivide
	case op == wasm.OpF32Sqrt, op == wasm.OpF32Div, op == wasm.OpF64Sqrt, op == wasm.OpF64Div:
		return priceRoot
	case op == wasm.OpVector && (in.Sub == wasm.VectorF32Sqrt || in.Sub == wasm.VectorF32Div || in.Sub == wasm.VectorF64Sqrt || in.Sub == wasm.VectorF64Div):
		return priceRoot
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

// segment is a run of instructions that is paid for at its head.
type segment struct {
	cost   int64
	taken  int64 // of the cost, what it pays for its children
	parent int   // the segment that runs before this one whenever this one runs
	loop   bool  // the head of a loop, which must pay in each round
	paid   bool  // has a charge of its own
}

// worth is the cost from which a segment pays for itself. A parent pays for smaller ones, up to the same sum: without this
// bound the head of a loop with a large switch in it, as Go's functions are, would pay for all of its arms in each round.
const worth = 16

// segment cuts a body into segments. Control enters a segment only at its head: at the entry, at the head of a loop, in an
// arm of an if, after a br_if that was not taken, and behind the end of a block, where branches land. Whatever
// lands behind an end came through the start of that block, and control flows backwards only to heads of loops, so
// a segment runs at most once each time its parent does.
func (w *writer) segment(r *wasm.Reader) {
	w.segments, w.open = append(w.segments[:0], segment{cost: 1, loop: true, paid: true}), append(w.open[:0], 0)
	now := 0
	begin := func(parent int, loop bool) {
		w.segments = append(w.segments, segment{parent: parent, loop: loop})
		now = len(w.segments) - 1
	}
	for len(w.open) > 0 {
		in := r.Instruction()
		w.segments[now].cost += price(in)
		switch in.Op {
		case wasm.OpBlock:
			w.open = append(w.open, now)
		case wasm.OpLoop, wasm.OpIf:
			w.open = append(w.open, now)
			begin(now, in.Op == wasm.OpLoop)
		case wasm.OpElse:
			begin(w.open[len(w.open)-1], false)
		case wasm.OpBrIf:
			begin(now, false)
		case wasm.OpEnd:
			parent := w.open[len(w.open)-1]
			w.open = w.open[:len(w.open)-1]
			if len(w.open) > 0 {
				begin(parent, false)
			}
		}
	}
	for i := len(w.segments) - 1; i > 0; i-- { // parents come before their children
		s := &w.segments[i]
		parent := &w.segments[s.parent]
		s.paid = s.loop || s.cost >= worth || parent.taken+s.cost > worth
		if !s.paid {
			parent.cost, parent.taken = parent.cost+s.cost, parent.taken+s.cost
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
	w.segment(wasm.NewReader(code))
	b = w.test(w.charge(b, w.segments[0].cost), true)
	r = wasm.NewReader(code)
	next, copied := 1, 0
	for r.Left() > 0 {
		at := r.Pos()
		in := r.Instruction()
		switch in.Op {
		case wasm.OpLoop, wasm.OpIf, wasm.OpElse, wasm.OpBrIf, wasm.OpEnd:
			if next == len(w.segments) || !w.segments[next].paid { // the last end begins none
				next++
				continue
			}
			s := w.segments[next]
			next++
			b = w.charge(append(b, code[copied:r.Pos()]...), s.cost)
			if s.loop {
				b = w.test(b, false)
			}
		case wasm.OpCall, wasm.OpCallIndirect, wasm.OpMemoryGrow, wasm.OpMisc:
			b = w.replace(append(b, code[copied:at]...), in, code[at:r.Pos()])
		default:
			continue
		}
		copied = r.Pos()
	}
	return append(b, code[copied:]...)
}

// replace appends what stands for one instruction that calls, or costs by its operands.
func (w *writer) replace(b []byte, in wasm.Instruction, old []byte) []byte {
	switch {
	case in.Op == wasm.OpCall:
		return w.call(b, in.A)
	case in.Op == wasm.OpCallIndirect:
		weight := w.heaviest[w.m.Types[in.A].String()]
		b = append(w.slots(b, wasm.OpI64Sub, weight), old...)
		return w.slots(b, wasm.OpI64Add, weight)
	case in.Op == wasm.OpMemoryGrow:
		return wasm.AppendU32(append(b, wasm.OpCall), w.grow)
	case by(in.Sub) == 1:
		b = wasm.AppendU32(append(b, wasm.OpCall), w.bulk)
	case by(in.Sub) > 1:
		b = wasm.AppendU32(append(b, wasm.OpCall), w.table)
	}
	return append(b, old...)
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

// charge subtracts cost. It leaves the operands alone.
func (w *writer) charge(b []byte, cost int64) []byte {
	b = wasm.AppendU32(append(b, wasm.OpGlobalGet), w.units)
	b = append(wasm.AppendS64(append(b, wasm.OpI64Const), cost), wasm.OpI64Sub)
	return wasm.AppendU32(append(b, wasm.OpGlobalSet), w.units)
}

// test calls refill when the units, or of both counters one, are below zero.
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
