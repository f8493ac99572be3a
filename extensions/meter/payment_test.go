package meter_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"onebit/extensions/meter"
	"onebit/extensions/wasm"
	. "onebit/extensions/wasm/wasmtest"
)

// flow writes random control flow around work that counts itself.
type flow struct {
	*rand.Rand
	count uint32 // the global that counts executed instructions
	loops uint32 // loops that are open; each has a local
	depth int    // blocks that are open
}

// coin pushes a bit of the state in local 0, and moves the state on.
func (f *flow) coin() []byte {
	return slices.Concat(Get(0), I32(1103515245), Op(0x6c), I32(12345), Op(0x6a), With(wasm.OpLocalTee, 0), I32(int32(16+f.IntN(12))), Op(0x76), I32(1), Op(0x71))
}

// work is some instructions, and adds their number to the count.
func (f *flow) work() []byte {
	n := f.IntN(50)
	return slices.Concat(slices.Repeat(Op(0x01), n), With(wasm.OpGlobalGet, f.count), I64(int64(n+4)), Op(wasm.OpI64Add), With(wasm.OpGlobalSet, f.count))
}

func (f *flow) some(level int) []byte {
	var b []byte
	for range 1 + f.IntN(3) {
		b = append(b, f.one(level)...)
	}
	return b
}

// inside writes what stands in a block.
func (f *flow) inside(level int) []byte {
	f.depth++
	defer func() { f.depth-- }()
	return f.some(level - 1)
}

func (f *flow) one(level int) []byte {
	kind := f.IntN(8)
	if level == 0 {
		kind = 0
	}
	switch kind {
	case 1:
		return Block(f.inside(level))
	case 2:
		return slices.Concat(f.coin(), If(f.inside(level)))
	case 3:
		return slices.Concat(f.coin(), If(f.inside(level), Op(wasm.OpElse), f.inside(level)))
	case 4: // any label but a loop's: those would not end
		return Block(Block(f.inside(level), f.coin(), With(wasm.OpBrIf, uint32(f.IntN(2))), f.work()), f.work())
	case 5:
		return Block(Block(Block(f.coin(), f.coin(), Op(0x6a, wasm.OpBrTable, 2, 0, 1, 2)), f.inside(level)), f.work(), f.inside(level))
	case 6:
		if f.loops < 4 {
			f.loops++
			defer func() { f.loops-- }()
			return Times(f.loops, int32(2+f.IntN(4)), f.inside(level))
		}
	case 7:
		if f.IntN(4) == 0 {
			return slices.Concat(f.coin(), f.coin(), Op(0x71), If(f.work(), Op(wasm.OpReturn)))
		}
	}
	return f.work()
}

// TestNobodyUnderpays: whatever way control takes, the units are no less than the instructions that ran; and not
// much more.
func TestNobodyUnderpays(t *testing.T) {
	var ran, paid int64
	for seed := range uint64(120) {
		f := &flow{Rand: rand.New(rand.NewPCG(seed, 2))}
		m := &Module{}
		f.count = m.Global('l', I64(0))
		m.Func("run", "i", "", "iiii", f.some(5))
		g := start(t, "compiler", metered(t, m.Bytes()))
		counter := g.ExportedGlobal(meter.GlobalName(int(f.count))).(api.MutableGlobal)
		for arg := range uint64(10) {
			counter.Set(0)
			o := g.call(t, "run", plenty, plenty, api.EncodeU32(uint32(seed*977+arg*31337)))
			n := int64(counter.Get())
			if o.Failure != "" || o.Used < n {
				t.Fatalf("seed %d, argument %d: %d units for at least %d instructions; %s", seed, arg, o.Used, n, o.Failure)
			}
			ran, paid = ran+n, paid+o.Used
		}
	}
	t.Logf("%d instructions of work, %d units", ran, paid)
	if paid > 3*ran {
		t.Errorf("%d units for %d instructions", paid, ran)
	}
}

// TestSmallSegments: what runs in each round of a loop is paid for in each round, though it has no charge of its own.
func TestSmallSegments(t *testing.T) {
	nops := slices.Repeat(Op(0x01), 10)
	tests := []struct {
		name  string
		body  []byte
		least int64 // instructions in a round, with the five that count the rounds
	}{
		{"arm of an if", slices.Concat(I32(1), If(nops)), 17},
		{"arm of an else", slices.Concat(I32(0), If(Op(wasm.OpElse), nops)), 17},
		{"after br_if", Block(I32(0), With(wasm.OpBrIf, 0), nops), 17},
		{"after a block", slices.Concat(Block(With(wasm.OpBr, 0)), nops), 16},
		{"after an if", slices.Concat(I32(0), If(), nops), 17},
		{"after a loop", slices.Concat(Loop(), nops), 16},
		{"in nested blocks", Block(Block(I32(1), With(wasm.OpBrIf, 1)), nops), 7},
	}
	for _, tt := range tests {
		m := &Module{}
		m.Func("run", "", "", "i", Times(0, 1000, tt.body))
		used := start(t, "compiler", metered(t, m.Bytes())).call(t, "run", plenty, plenty).Used
		if used < 1000*tt.least || used > 1000*(tt.least+18)+20 {
			t.Errorf("%s: %d units for 1000 rounds of %d", tt.name, used, tt.least)
		}
	}
}

// TestPrices holds the prices that ABI.md names.
func TestPrices(t *testing.T) {
	two := func(push []byte, op ...byte) []byte { return slices.Concat(push, push, Op(op...), Op(wasm.OpDrop)) }
	vector := append(Op(wasm.OpVector, 12), make([]byte, 16)...)
	tests := []struct {
		name string
		body []byte
		want int64
	}{
		{"add", two(I32(1), 0x6a), 4},
		{"blocks", Block(Block()), 0},
		{"i32.div_s", two(I32(1), 0x6d), 3 + 16},
		{"i32.rem_u", two(I32(1), 0x70), 3 + 16},
		{"i64.div_u", two(I64(1), 0x80), 3 + 16},
		{"f64.div", two(F64(1), 0xa3), 3 + 8},
		{"f64.sqrt", slices.Concat(F64(1), Op(0x9f, wasm.OpDrop)), 2 + 8},
		{"f64x2.div", two(vector, wasm.OpVector, 0xf3, 1), 3 + 8},
		{"f64x2.add", two(vector, wasm.OpVector, 0xf0, 1), 3 + 1},
		{"saturating conversion", slices.Concat(F64(1), Op(wasm.OpMisc, 2, wasm.OpDrop)), 3},
		{"call", Call(0), 5 + 1},
		{"call_indirect", slices.Concat(I32(0), Op(wasm.OpCallIndirect, 0, 0)), 1 + 7 + 1},
		{"memory.fill", slices.Concat(I32(0), I32(0), I32(100), Fill()), 3 + 9 + 100},
		{"memory.copy", slices.Concat(I32(0), I32(0), I32(100), Copy()), 3 + 9 + 100},
		{"memory.grow", slices.Concat(I32(2), Op(wasm.OpMemoryGrow, 0, wasm.OpDrop)), 2 + 65 + 2*65536},
		{"table.copy", slices.Concat(I32(0), I32(0), I32(1), Op(wasm.OpMisc, wasm.MiscTableCopy, 0, 0)), 3 + 9 + 8},
	}
	for _, tt := range tests {
		m := &Module{}
		m.Memory(1, 9)
		m.Table(m.Func("", "", "", ""))
		m.Func("run", "", "", "", tt.body)
		used := start(t, "compiler", metered(t, m.Bytes())).call(t, "run", plenty, plenty).Used
		if used != tt.want+1 {
			t.Errorf("%s: %d units, not %d", tt.name, used, tt.want+1)
		}
	}
}

// TestSwitchInALoop: the head of a loop does not pay for the arms of a switch that are not taken, as in the functions that Go makes.
func TestSwitchInALoop(t *testing.T) {
	used := func(arms int) int64 {
		m := &Module{}
		work := slices.Repeat(Op(0x01), 10)
		body := slices.Concat(Op(wasm.OpBlock, 0x40), I32(0), With(wasm.OpBrTable, uint32(arms)))
		for i := range arms {
			body = wasm.AppendU32(body, uint32(i))
		}
		body = append(wasm.AppendU32(body, uint32(arms)), wasm.OpEnd)
		for i := range arms {
			body = slices.Concat(body, work, With(wasm.OpBr, uint32(arms-1-i)), Op(wasm.OpEnd))
		}
		m.Func("run", "", "", "i", Times(0, 1000, slices.Repeat(Op(wasm.OpBlock, 0x40), arms), body))
		return start(t, "compiler", metered(t, m.Bytes())).call(t, "run", plenty, plenty).Used
	}
	few, many := used(2), used(300)
	if few < 15_000 || many > few+50_000 {
		t.Errorf("1000 rounds cost %d units with 2 arms, %d with 300", few, many)
	}
}
