package module

import "onebit/extensions/wasm"

// elements checks element segments: functions that the table holds at its start, or that table.init brings.
func (p *parser) elements(r *wasm.Reader) error {
	n, err := p.count(r, "element segments", p.l.Segments, 2)
	for i := 0; i < n && err == nil; i++ {
		p.index = i
		if err = p.segment(r); err != nil {
			return err
		}
		p.m.Segments++
	}
	return err
}

func (p *parser) segment(r *wasm.Reader) error {
	flags := r.U32()
	if flags > 7 {
		return p.refuse(damaged, "flags %d", flags)
	}
	if flags&1 == 0 { // active: a table and where in it
		table := uint32(0)
		if flags&2 != 0 {
			table = r.U32()
		}
		if uint64(table) >= uint64(p.m.Tables) {
			return p.refuse(damaged, "table %d of %d", table, p.m.Tables)
		}
		if _, err := p.constant(r); err != nil {
			return err
		}
	}
	if flags&3 != 0 {
		if k := r.Byte(); flags&4 == 0 && k != 0 || flags&4 != 0 && k != wasm.FuncRef {
			return p.refuse("build without reference types", "elements of kind 0x%02x, not functions", k)
		}
	}
	n, err := p.count(r, "elements", p.l.Elements, 1)
	for i := 0; i < n && err == nil; i++ {
		if flags&4 == 0 {
			err = p.function(r.U32(), "an element")
		} else {
			err = p.reference(r)
		}
	}
	return err
}

// reference reads a constant that gives a function, or none.
func (p *parser) reference(r *wasm.Reader) error {
	switch op := r.Byte(); op {
	case wasm.OpRefNull:
		if t := r.Byte(); t != wasm.FuncRef {
			r.Fail("a null of type 0x%02x is not in the profile", t)
		}
	case wasm.OpRefFunc:
		if err := p.function(r.U32(), "an element"); err != nil {
			return err
		}
	default:
		r.Fail("instruction 0x%02x in an element", op)
	}
	if b := r.Byte(); b != wasm.OpEnd {
		r.Fail("an element of more than one instruction")
	}
	return p.check(r)
}

func (p *parser) data(r *wasm.Reader) error {
	n, err := p.count(r, "data segments", p.l.Data, 2)
	if err != nil {
		return err
	}
	if p.m.Data >= 0 && p.m.Data != n {
		return p.refuse(damaged, "%d segments, the data count section says %d", n, p.m.Data)
	}
	p.m.Data = n
	for i := range n {
		p.index = i
		flags := r.U32()
		at := int64(-1)
		switch flags {
		case 1: // passive
		case 2:
			if m := r.U32(); m != 0 {
				return p.refuse("use one memory", "memory %d", m)
			}
			fallthrough
		case 0:
			if at, err = p.constant(r); err != nil {
				return err
			}
			if at < 0 || !p.m.HasMemory {
				return p.refuse(damaged, "data without a memory, or at a place that is no i32")
			}
		default:
			return p.refuse(damaged, "flags %d", flags)
		}
		size := int64(len(r.Take(r.U32())))
		if err := p.check(r); err != nil {
			return err
		}
		if have := int64(p.m.Pages) * wasm.PageSize; at >= 0 && at+size > have {
			return p.refuse("start with more memory", "bytes %d to %d of a memory of %d", at, at+size, have)
		}
	}
	return nil
}

func (p *parser) code(r *wasm.Reader) error {
	p.bodies = true
	if r.Left() > p.l.Code {
		return p.refuse("leave out what is not needed", "%d bytes, at most %d", r.Left(), p.l.Code)
	}
	n, err := p.count(r, "bodies", len(p.m.Functions), 3)
	if err == nil && n != len(p.m.Functions) {
		return p.refuse(damaged, "%d bodies for %d functions", n, len(p.m.Functions))
	}
	for i := 0; i < n && err == nil; i++ {
		p.index = i
		size := r.U32()
		if uint64(size) > uint64(p.l.Body) {
			return p.refuse("split the function, or lower the optimisation level", "a body of %d bytes, at most %d", size, p.l.Body)
		}
		body := r.Take(size)
		if err := p.check(r); err != nil {
			return err
		}
		err = p.body(body, len(p.m.Types[p.m.Functions[i]].Params))
	}
	return err
}

// function is what one body has shown so far.
type function struct {
	Body
	locals, loops, bulk int // locals with parameters
}

func (p *parser) body(b []byte, params int) error {
	r := wasm.NewReader(b)
	f := function{Body: Body{Bytes: len(b)}}
	groups, err := p.count(r, "groups of locals", len(b), 2)
	for i := 0; i < groups && err == nil; i++ {
		n, t := r.U32(), r.Byte()
		if err := p.check(r); err != nil {
			return err
		}
		if !wasm.IsNumber(t) {
			return p.refuse("build without reference types", "a local of type 0x%02x", t)
		}
		if uint64(f.Locals)+uint64(n) > uint64(p.l.Locals) {
			return p.refuse("split the function, or lower the optimisation level", "over %d locals", p.l.Locals)
		}
		f.Locals += int(n)
	}
	if err != nil {
		return err
	}
	f.locals = f.Locals + params
	p.labels = append(p.labels[:0], wasm.OpBlock)
	for len(p.labels) > 0 {
		in := r.Instruction()
		if err := p.check(r); err != nil {
			return err
		}
		if err := p.instruction(in, &f); err != nil {
			return err
		}
	}
	if r.Left() > 0 {
		return p.refuse(damaged, "%d bytes follow the end of the function", r.Left())
	}
	if joins := f.Locals * f.Blocks; joins > p.l.Joins {
		return p.refuse("split the function", "%d locals times %d blocks, at most %d", f.Locals, f.Blocks, p.l.Joins)
	}
	if p.joins += f.Locals * f.Blocks; p.joins > p.l.AllJoins {
		return p.refuse("leave out what is not needed", "locals times blocks of all functions up to here are over %d", p.l.AllJoins)
	}
	p.m.Bodies = append(p.m.Bodies, f.Body)
	return nil
}

// instruction keeps the open blocks and checks indices. A wrong index must not become right by what the rewrite adds.
func (p *parser) instruction(in wasm.Instruction, f *function) error {
	have, what := -1, ""
	switch in.Op {
	case wasm.OpBlock, wasm.OpLoop, wasm.OpIf:
		return p.open(in, f)
	case wasm.OpElse:
		if p.labels[len(p.labels)-1] != wasm.OpIf {
			return p.refuse(damaged, "an else without an if")
		}
		p.labels[len(p.labels)-1] = wasm.OpElse
	case wasm.OpEnd:
		if p.labels[len(p.labels)-1] == wasm.OpLoop {
			f.loops--
		}
		p.labels = p.labels[:len(p.labels)-1]
	case wasm.OpBrTable:
		if in.Targets > uint32(p.l.BrTable) {
			return p.refuse("split the switch", "a br_table of %d labels, at most %d", in.Targets, p.l.BrTable)
		}
		have, what = len(p.labels), "label"
	case wasm.OpBr, wasm.OpBrIf:
		have, what = len(p.labels), "label"
	case wasm.OpCall:
		return p.function(in.A, "a call's target")
	case wasm.OpCallIndirect:
		if uint64(in.B) >= uint64(p.m.Tables) {
			return p.refuse(damaged, "call_indirect through table %d of %d", in.B, p.m.Tables)
		}
		return p.kind(in.A)
	case wasm.OpLocalGet, wasm.OpLocalSet, wasm.OpLocalTee:
		have, what = f.locals, "local"
	case wasm.OpGlobalGet, wasm.OpGlobalSet:
		have, what = len(p.m.Globals), "global"
	case wasm.OpMisc:
		return p.misc(in, f)
	}
	if touches(in) && !p.m.HasMemory {
		return p.refuse(damaged, "instruction 0x%02x without a memory", in.Op)
	}
	if have >= 0 && uint64(in.A) >= uint64(have) {
		return p.refuse(damaged, "%s %d of %d", what, in.A, have)
	}
	return nil
}

// touches tells whether an instruction needs a memory; the compiler finds the rest.
func touches(in wasm.Instruction) bool {
	return in.Op >= 0x28 && in.Op <= wasm.OpMemoryGrow
}

func (p *parser) open(in wasm.Instruction, f *function) error {
	f.Blocks++
	p.labels = append(p.labels, in.Op)
	if len(p.labels)-1 > p.l.Nest {
		return p.refuse("split the function", "blocks nest over %d deep", p.l.Nest)
	}
	if in.Op == wasm.OpLoop {
		if f.loops++; f.loops > p.l.Loops {
			return p.refuse("split the function", "loops nest over %d deep", p.l.Loops)
		}
	}
	switch {
	case in.Block >= 0:
		return p.kind(uint32(in.Block))
	case in.Block != -64 && !wasm.IsNumber(byte(in.Block&0x7f)) || in.Block < -64:
		return p.refuse("build without reference types", "a block of type %d", in.Block)
	}
	return nil
}

func (p *parser) misc(in wasm.Instruction, f *function) error {
	if in.Sub < wasm.MiscMemoryInit {
		return nil
	}
	if f.bulk++; f.bulk > p.l.Bulk {
		return p.refuse("split the function", "over %d bulk instructions", p.l.Bulk)
	}
	have, what := 1, "memory"
	switch in.Sub {
	case wasm.MiscMemoryInit, wasm.MiscDataDrop:
		have, what = p.m.Data, "data segment"
	case wasm.MiscElemDrop, wasm.MiscTableInit:
		have, what = p.m.Segments, "element segment"
	case wasm.MiscTableCopy:
		have, what = p.m.Tables, "table"
	}
	if int64(in.A) >= int64(have) {
		return p.refuse(damaged, "%s %d of %d", what, in.A, max(have, 0))
	}
	if (in.Sub == wasm.MiscTableInit || in.Sub == wasm.MiscTableCopy) && uint64(in.B) >= uint64(p.m.Tables) {
		return p.refuse(damaged, "table %d of %d", in.B, p.m.Tables)
	}
	if in.Sub >= wasm.MiscMemoryCopy && in.Sub <= wasm.MiscMemoryFill && !p.m.HasMemory {
		return p.refuse(damaged, "memory is copied or filled without a memory")
	}
	return nil
}
