package wasmtest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"onebit/extensions/wasm"
)

// Random returns a small valid module: its exported functions f0, f1, … end, trap at times, and touch memory, globals,
// the table and each other. Params tells their parameters' letters, results theirs. The same seed gives the same module.
func Random(seed uint64) (b []byte, params, results []string) {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), m: &Module{}}
	g.m.Memory(1, 3)
	g.m.Global('i', I32(7))
	g.m.Global('l', I64(-9))
	g.m.Global('d', F64(0.5))
	g.m.Data(64, []byte("some bytes to begin with"))
	n := 2 + g.IntN(4)
	g.count = n
	table := make([]uint32, n)
	for i := range n {
		g.function(i)
		table[i] = uint32(n - 1 - i)
	}
	g.m.Table(table...)
	return g.m.Bytes(), g.params, g.results
}

const globals = "ild"

// generator writes functions that call only earlier ones, so that all end.
type generator struct {
	*rand.Rand
	m               *Module
	params, results []string
	work            []int // of each finished function: instructions that one call may run
	count           int   // of functions in the end; the table holds them backwards

	locals  string // letters of parameters and locals of the function being written
	frozen  int    // how many of the last locals count loops
	times   int    // how often the code being written runs in one call
	mine    int
	loops   int
	indices []uint32
}

const most = 40_000 // work of one call

func (g *generator) letters(n int) string {
	s := make([]byte, n)
	for i := range s {
		s[i] = globals[g.IntN(len(globals))]
	}
	return string(s)
}

func (g *generator) function(i int) {
	params, results := g.letters(g.IntN(4)), g.letters(g.IntN(3))
	locals := g.letters(1+g.IntN(4)) + "iii"
	g.locals, g.frozen, g.times, g.mine, g.loops = params+locals, 3, 1, 0, 0
	var body []byte
	for range 2 + g.IntN(5) {
		body = append(body, g.statement(3)...)
	}
	for _, c := range results {
		body = append(body, g.value(byte(c), 3)...)
	}
	g.m.Func(fmt.Sprintf("f%d", i), params, results, locals, body)
	g.params, g.results, g.work = append(g.params, params), append(g.results, results), append(g.work, g.mine+10)
}

// local returns a local of the type, or false.
func (g *generator) local(letter byte) (uint32, bool) {
	g.indices = g.indices[:0]
	for i := range len(g.locals) - g.frozen {
		if g.locals[i] == letter {
			g.indices = append(g.indices, uint32(i))
		}
	}
	if len(g.indices) == 0 {
		return 0, false
	}
	return g.indices[g.IntN(len(g.indices))], true
}

func (g *generator) address() []byte { return slices.Concat(g.value('i', 1), I32(0x7ff8), Op(0x71)) }

func (g *generator) length() []byte { return slices.Concat(g.value('i', 1), I32(0xff), Op(0x71)) }

// statement leaves nothing on the stack.
func (g *generator) statement(depth int) []byte {
	g.mine += 4 * g.times
	letter := globals[g.IntN(len(globals))]
	kind := g.IntN(12)
	if depth == 0 {
		kind = g.IntN(5)
	}
	switch kind {
	case 0, 1:
		if i, ok := g.local(letter); ok {
			return slices.Concat(g.value(letter, depth), Set(i))
		}
		return nil
	case 2:
		return slices.Concat(g.value(letter, depth), With(wasm.OpGlobalSet, uint32(slices.Index([]byte(globals), letter))))
	case 3:
		op := map[byte][]byte{'i': {0x36, 2, 0}, 'l': {0x37, 3, 4}, 'd': {0x39, 3, 0}}[letter]
		return slices.Concat(g.address(), g.value(letter, depth), op)
	case 4:
		return slices.Concat(g.value(letter, depth), Op(wasm.OpDrop))
	case 5:
		return slices.Concat(g.value('i', 1), If(g.statement(depth-1), g.statement(depth-1)))
	case 6:
		return Block(g.statement(depth-1), g.value('i', 1), With(wasm.OpBrIf, 0), g.statement(depth-1))
	case 7:
		return g.loop(depth)
	case 8:
		return slices.Concat(g.address(), g.value('i', 1), g.length(), Fill())
	case 9:
		return slices.Concat(g.address(), g.address(), g.length(), Copy())
	case 10: // a switch
		return Block(Block(Block(g.value('i', 1), Op(wasm.OpBrTable, 2, 0, 1, 2)), g.statement(depth-1)), g.statement(depth-1))
	}
	return g.call(depth)
}

func (g *generator) loop(depth int) []byte {
	if g.loops == 3 {
		return nil
	}
	counter := uint32(len(g.locals) - 1 - g.loops)
	n := 1 + g.IntN(5)
	g.loops, g.times = g.loops+1, g.times*n
	body := slices.Concat(g.statement(depth-1), g.statement(depth-1))
	g.loops, g.times = g.loops-1, g.times/n
	return Times(counter, int32(n), body)
}

// call calls an earlier function, directly or through the table, and drops its results.
func (g *generator) call(depth int) []byte {
	if len(g.work) == 0 {
		return nil
	}
	f := g.IntN(len(g.work))
	if cost := g.work[f] * g.times; g.mine+cost > most {
		return nil
	} else {
		g.mine += cost
	}
	var b []byte
	for _, c := range g.params[f] {
		b = append(b, g.value(byte(c), depth-1)...)
	}
	if g.IntN(2) == 0 {
		b = append(b, Call(uint32(f))...)
	} else {
		b = slices.Concat(b, I32(int32(g.count-1-f)), With(wasm.OpCallIndirect, g.m.Type(g.params[f], g.results[f])), Op(0))
	}
	for range g.results[f] {
		b = append(b, wasm.OpDrop)
	}
	return b
}

// value leaves one value of the type on the stack.
func (g *generator) value(letter byte, depth int) []byte {
	g.mine += 2 * g.times
	if depth <= 0 || g.IntN(5) == 0 {
		if i, ok := g.local(letter); ok && g.IntN(2) == 0 {
			return Get(i)
		}
		return g.constant(letter)
	}
	switch g.IntN(6) {
	case 0:
		return With(wasm.OpGlobalGet, uint32(slices.Index([]byte(globals), letter)))
	case 1: // if with a result
		return slices.Concat(g.value('i', depth-1), Op(wasm.OpIf, ValueType(letter)), g.value(letter, depth-1), Op(wasm.OpElse), g.value(letter, depth-1), Op(wasm.OpEnd))
	}
	switch letter {
	case 'i':
		return g.int32(depth)
	case 'l':
		return g.int64(depth)
	}
	return g.float64(depth)
}

func (g *generator) constant(letter byte) []byte {
	switch letter {
	case 'i':
		return I32([]int32{0, 1, -1, 17, 1 << 30, -1 << 31, 4096}[g.IntN(7)])
	case 'l':
		return I64([]int64{0, 1, -1, 1 << 40, -1 << 63}[g.IntN(5)])
	}
	return F64([]float64{0, 1, -2.5, 1e300}[g.IntN(4)])
}

func pick(g *generator, ops ...byte) byte { return ops[g.IntN(len(ops))] }

func (g *generator) int32(depth int) []byte {
	two := func(l byte) []byte { return slices.Concat(g.value(l, depth-1), g.value(l, depth-1)) }
	switch g.IntN(8) {
	case 0:
		return slices.Concat(two('l'), Op(pick(g, 0x51, 0x53, 0x56)))
	case 1:
		return slices.Concat(two('d'), Op(pick(g, 0x61, 0x63, 0x66)))
	case 2:
		return slices.Concat(g.address(), Load())
	case 3:
		return slices.Concat(g.value('l', depth-1), Op(0xa7))
	case 4:
		return slices.Concat(I32(int32(g.IntN(4))), Op(wasm.OpMemoryGrow, 0))
	case 5:
		return slices.Concat(g.value('d', depth-1), Op(wasm.OpMisc, 2))
	case 6:
		return slices.Concat(two('i'), g.value('i', depth-1), Op(0x1b))
	}
	return slices.Concat(two('i'), Op(pick(g, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77)))
}

func (g *generator) int64(depth int) []byte {
	switch g.IntN(5) {
	case 0:
		return slices.Concat(g.value('i', depth-1), Op(pick(g, 0xac, 0xad)))
	case 1:
		return slices.Concat(g.address(), Op(0x29, 3, 8))
	case 2:
		return slices.Concat(g.value('l', depth-1), Op(pick(g, 0x79, 0x7a, 0x7b, 0xc2)))
	}
	return slices.Concat(g.value('l', depth-1), g.value('l', depth-1), Op(pick(g, 0x7c, 0x7d, 0x7e, 0x80, 0x83, 0x85, 0x86, 0x88)))
}

func (g *generator) float64(depth int) []byte {
	if g.IntN(3) == 0 {
		return slices.Concat(g.value('l', depth-1), Op(0xb9))
	}
	return slices.Concat(g.value('d', depth-1), g.value('d', depth-1), Op(pick(g, 0xa0, 0xa1, 0xa2, 0xa4)))
}
