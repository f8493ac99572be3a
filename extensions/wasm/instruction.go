package wasm

// Instructions that others need by name. Two of them, Misc and Vector, open a second number.
const (
	OpUnreachable  = 0x00
	OpBlock        = 0x02
	OpLoop         = 0x03
	OpIf           = 0x04
	OpElse         = 0x05
	OpEnd          = 0x0b
	OpBr           = 0x0c
	OpBrIf         = 0x0d
	OpBrTable      = 0x0e
	OpReturn       = 0x0f
	OpCall         = 0x10
	OpCallIndirect = 0x11
	OpDrop         = 0x1a
	OpLocalGet     = 0x20
	OpLocalSet     = 0x21
	OpLocalTee     = 0x22
	OpGlobalGet    = 0x23
	OpGlobalSet    = 0x24
	OpMemorySize   = 0x3f
	OpMemoryGrow   = 0x40
	OpI32Const     = 0x41
	OpI64Const     = 0x42
	OpF32Const     = 0x43
	OpF64Const     = 0x44
	OpI32Ne        = 0x47
	OpI64LtS       = 0x53
	OpI32DivS      = 0x6d
	OpI32RemU      = 0x70
	OpI64Add       = 0x7c
	OpI64Sub       = 0x7d
	OpI64DivS      = 0x7f
	OpI64RemU      = 0x82
	OpI64Or        = 0x84
	OpI64Shl       = 0x86
	OpF32Sqrt      = 0x91
	OpF32Div       = 0x95
	OpF64Sqrt      = 0x9f
	OpF64Div       = 0xa3
	OpI64ExtendU   = 0xad
	OpRefNull      = 0xd0
	OpRefFunc      = 0xd2
	OpMisc         = 0xfc
	OpVector       = 0xfd
)

// The second numbers of OpMisc from which memory and tables are worked on in bulk.
const (
	MiscMemoryInit = 8
	MiscDataDrop   = 9
	MiscMemoryCopy = 10
	MiscMemoryFill = 11
	MiscTableInit  = 12
	MiscElemDrop   = 13
	MiscTableCopy  = 14
)

// Second numbers of OpVector: v128.const, and the slow ones.
const (
	VectorConst   = 12
	VectorF32Sqrt = 227
	VectorF32Div  = 231
	VectorF64Sqrt = 239
	VectorF64Div  = 243
)

// Instruction is one instruction with those operands that are indices.
type Instruction struct {
	Op  byte
	Sub uint32 // the second number of OpMisc and OpVector
	// A is the first index: label (for OpBrTable the highest one), local, global, function, type, data or element
	// segment, table. B is the second one: the table of OpCallIndirect and MiscTableInit, the source of MiscTableCopy.
	A, B uint32
	// Block is the type of a block: a type index, or below zero no result (-64) or a value type.
	Block int64
	// Targets counts the labels of OpBrTable without the last one.
	Targets uint32
}

// Instruction reads one instruction. What is not in the profile fails by name.
func (r *Reader) Instruction() Instruction {
	in := Instruction{Op: r.Byte()}
	switch op := in.Op; {
	case op <= 0x01, op == OpElse, op == OpEnd, op == OpReturn, op == OpDrop, op == 0x1b, op >= 0x45 && op <= 0xc4:
		// no operand
	case op == OpBlock, op == OpLoop, op == OpIf:
		in.Block = r.S64(33)
	case op == OpBr, op == OpBrIf, op == OpCall, op >= OpLocalGet && op <= OpGlobalSet:
		in.A = r.U32()
	case op == OpBrTable:
		r.targets(&in)
	case op == OpCallIndirect:
		in.A, in.B = r.U32(), r.U32()
	case op == 0x1c: // select with a type
		if n := r.U32(); n != 1 {
			r.Fail("a select of %d types, not one", n)
		}
		if t := r.Byte(); !IsNumber(t) {
			r.Fail("a select of type 0x%02x: reference types are not in the profile", t)
		}
	case op >= 0x28 && op <= 0x3e:
		r.address()
	case op == OpMemorySize, op == OpMemoryGrow:
		r.zero()
	case op == OpI32Const:
		r.S64(32)
	case op == OpI64Const:
		r.S64(64)
	case op == OpF32Const:
		r.Take(4)
	case op == OpF64Const:
		r.Take(8)
	case op == OpMisc:
		r.misc(&in)
	case op == OpVector:
		r.vector(&in)
	default:
		r.Fail("instruction 0x%02x (%s) is not in the profile", op, family(op))
	}
	return in
}

// IsNumber tells whether t is a type that a guest's values may have.
func IsNumber(t byte) bool { return t >= V128 && t <= I32 }

// family names what an instruction outside the profile belongs to.
func family(op byte) string {
	switch {
	case op >= 0x06 && op <= 0x0a, op == 0x18, op == 0x19, op == 0x1f:
		return "exceptions"
	case op == 0x12, op == 0x13, op == 0x15:
		return "tail calls"
	case op == 0x25, op == 0x26, op >= 0xd0 && op <= 0xd6:
		return "reference types"
	case op == 0xfb:
		return "garbage collection"
	case op == 0xfe:
		return "threads"
	}
	return "unknown"
}

// targets reads the labels of br_table.
func (r *Reader) targets(in *Instruction) {
	in.Targets = r.U32()
	if uint64(in.Targets) >= uint64(r.Left()) {
		r.Fail("a br_table of %d labels in %d bytes", in.Targets, r.Left())
	}
	for i := uint32(0); i <= in.Targets && r.err == nil; i++ {
		in.A = max(in.A, r.U32())
	}
}

// address reads alignment and offset of a load or store.
func (r *Reader) address() {
	if a := r.U32(); a > 4 {
		r.Fail("an alignment of 2^%d (a second memory?)", a)
	}
	r.U32()
}

// zero reads the index of the only memory.
func (r *Reader) zero() {
	if b := r.Byte(); b != 0 {
		r.Fail("memory %d: one memory is in the profile", b)
	}
}

func (r *Reader) misc(in *Instruction) {
	in.Sub = r.U32()
	switch in.Sub {
	case 0, 1, 2, 3, 4, 5, 6, 7: // saturating conversions
	case MiscMemoryInit:
		in.A = r.U32()
		r.zero()
	case MiscDataDrop, MiscElemDrop:
		in.A = r.U32()
	case MiscMemoryCopy:
		r.zero()
		r.zero()
	case MiscMemoryFill:
		r.zero()
	case MiscTableInit, MiscTableCopy:
		in.A, in.B = r.U32(), r.U32()
	case 15, 16, 17:
		r.Fail("table.grow, table.size and table.fill are not in the profile")
	default:
		r.Fail("instruction 0xfc %d is not in the profile", in.Sub)
	}
}

func (r *Reader) vector(in *Instruction) {
	in.Sub = r.U32()
	switch s := in.Sub; {
	case s <= 11, s == 92, s == 93:
		r.address()
	case s == VectorConst, s == 13:
		r.Take(16)
	case s >= 21 && s <= 34:
		r.Byte()
	case s >= 84 && s <= 91:
		r.address()
		r.Byte()
	case s > 255:
		r.Fail("instruction 0xfd %d (relaxed SIMD) is not in the profile", s)
	}
}
