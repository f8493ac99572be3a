package main

import (
	"fmt"

	"onebit/engine/tensor/gen/asm"
)

// The general registers of the float kernels. x is addressed from two
// bases, five rows apart, so that the rows need no packing.
const (
	regC      = "DI"  // first number of the result of this group of panels
	regW      = "SI"  // first panel of the group
	regX      = "DX"  // first row of x
	regLeft   = "BX"  // panels left
	regK      = "CX"  // steps of k left
	regAt     = "AX"  // weights of this k in the first panel
	regStride = "R8"  // from panel to panel
	regThree  = "R9"  // three times that
	regLda    = "R13" // from row to row of x
	regLda3   = "R15" // three times that
)

var regBases = []string{"R10", "R11"}

const (
	rowsPerBase = 5
	unrolledK   = 4
)

// floatKernel emits the kernels on one type of weights.
type floatKernel struct {
	isa
	f      *asm.File
	kind   string // f32, f16 or bf16
	tokens int
}

// width returns the bytes that one k of one panel takes.
func (g *floatKernel) width() int {
	if g.kind == "f32" {
		return 4 * g.lanes
	}
	return 2 * g.lanes
}

// floats emits all float kernels of a level.
func floats(s isa, tiles []int) *asm.File {
	f := asm.New("gen/ops")
	for _, kind := range []string{"f32", "f16", "bf16"} {
		for _, n := range tiles {
			g := &floatKernel{isa: s, f: f, kind: kind, tokens: n}
			g.emit()
		}
	}
	return f
}

// groups returns the numbers of panels that are worked on together, largest
// first: enough accumulators to hide the latency of the multiply-add, and as
// many uses of each broadcast x as registers allow.
func (g *floatKernel) groups() []int {
	switch {
	case g.wide && g.tokens <= 6, g.tokens <= 3:
		return []int{4, 2, 1}
	}
	return []int{2, 1}
}

func (g *floatKernel) emit() {
	f := g.f
	f.Func(fmt.Sprintf("%sTile%d%s", g.kind, g.tokens, g.name),
		"(c *float32, w *byte, x *float32, depth, panels, ldc, lda, stride, add int)", 72,
		fmt.Sprintf("is the floatKernel for %d tokens.", g.tokens))
	f.P("MOVQ c+0(FP), %s\nMOVQ w+8(FP), %s\nMOVQ x+16(FP), %s\nMOVQ panels+32(FP), %s", regC, regW, regX, regLeft)
	f.P("MOVQ lda+48(FP), %s\nLEAQ (%s)(%s*2), %s", regLda, regLda, regLda, regLda3)
	f.P("MOVQ stride+56(FP), %s\nLEAQ (%s)(%s*2), %s", regStride, regStride, regStride, regThree)
	for _, p := range g.groups() {
		g.group(p)
	}
	f.Label("done")
	f.P("VZEROUPPER\nRET")
}

// group emits the loop over groups of p panels. It falls through when fewer
// are left. There is no prefetch: the processor follows the streams by itself,
// and the instructions cost a fifth of the bandwidth.
func (g *floatKernel) group(p int) {
	f := g.f
	label := func(s string) string { return fmt.Sprintf("%s%d", s, p) }
	f.Label(label("group"))
	if p == 1 {
		f.P("TESTQ %s, %s\nJEQ done", regLeft, regLeft)
	} else {
		f.P("CMPQ %s, $%d\nJLT %s", regLeft, p, fmt.Sprintf("group%d", p/2))
	}
	g.start(p)
	f.P("MOVQ %s, %s\nMOVQ %s, %s", regW, regAt, regX, regBases[0])
	for b := 1; b*rowsPerBase < g.tokens; b++ {
		f.P("LEAQ (%s)(%s*4), %s\nADDQ %s, %s", regBases[b-1], regLda, regBases[b], regLda, regBases[b])
	}
	f.P("MOVQ depth+24(FP), %s\nSUBQ $%d, %s\nJLT %s", regK, unrolledK, regK, label("rest"))
	f.P("PCALIGN $32")
	f.Label(label("four"))
	for k := range unrolledK {
		g.step(p, k)
	}
	g.advance(unrolledK)
	f.P("SUBQ $%d, %s\nJGE %s", unrolledK, regK, label("four"))
	f.Label(label("rest"))
	f.P("ADDQ $%d, %s\nJEQ %s", unrolledK, regK, label("store"))
	f.Label(label("one"))
	g.step(p, 0)
	g.advance(1)
	f.P("DECQ %s\nJNZ %s", regK, label("one"))
	f.Label(label("store"))
	g.each(p, func(r, at string) { f.P("VMOVUPS %s, %s", r, at) })
	f.P("ADDQ $%d, %s\nSUBQ $%d, %s", p*g.bytes(), regC, p, regLeft)
	switch p {
	case 1:
		f.P("ADDQ %s, %s", regStride, regW)
	default:
		f.P("LEAQ (%s)(%s*%d), %s", regW, regStride, p, regW)
	}
	f.P("JMP %s", label("group"))
}

// start emits the first value of the accumulators.
func (g *floatKernel) start(p int) {
	f := g.f
	f.P("CMPQ add+64(FP), $0\nJEQ zero%d", p)
	g.each(p, func(r, at string) { f.P("VMOVUPS %s, %s", at, r) })
	f.P("JMP sum%d", p)
	f.Label(fmt.Sprintf("zero%d", p))
	for i := range p * g.tokens {
		f.P("%s", g.zero(g.v(i)))
	}
	f.Label(fmt.Sprintf("sum%d", p))
}

// each calls do with every accumulator of a group and its place in the result.
func (g *floatKernel) each(p int, do func(reg, at string)) {
	g.f.P("MOVQ %s, R10", regC)
	if g.tokens > 1 {
		g.f.P("MOVQ ldc+40(FP), R11")
	}
	for t := range g.tokens {
		if t > 0 {
			g.f.P("ADDQ R11, R10")
		}
		for i := range p {
			do(g.acc(p, t, i), fmt.Sprintf("%d(R10)", i*g.bytes()))
		}
	}
}

// acc names the accumulator of token t and panel i.
func (g *floatKernel) acc(p, t, i int) string { return g.v(t*p + i) }

// advance moves to a later k.
func (g *floatKernel) advance(k int) {
	g.f.P("ADDQ $%d, %s", k*g.width(), regAt)
	for b := 0; b*rowsPerBase < g.tokens; b++ {
		g.f.P("ADDQ $%d, %s", 4*k, regBases[b])
	}
}

// weight returns where panel i of the group has its weights, an offset away.
func (g *floatKernel) weight(i, offset int) string {
	at := fmt.Sprintf("%d(%s)", offset, regAt)
	switch i {
	case 1, 2:
		at += fmt.Sprintf("(%s*%d)", regStride, i)
	case 3:
		at += fmt.Sprintf("(%s*1)", regThree)
	}
	return at
}

// token returns where token t has its x, k steps on.
func (g *floatKernel) token(t, k int) string {
	at := fmt.Sprintf("%d(%s)", 4*k, regBases[t/rowsPerBase])
	switch i := t % rowsPerBase; i {
	case 1, 2, 4:
		at += fmt.Sprintf("(%s*%d)", regLda, i)
	case 3:
		at += fmt.Sprintf("(%s*1)", regLda3)
	}
	return at
}

// load emits the widening of the weights of panel i at step k.
func (g *floatKernel) load(i, k int, r string) {
	at := g.weight(i, k*g.width())
	switch g.kind {
	case "f16":
		g.f.P("VCVTPH2PS %s, %s", at, r)
	case "bf16":
		g.f.P("VPMOVZXWD %s, %s\nVPSLLD $16, %s, %s", at, r, r, r)
	default:
		g.f.P("VMOVUPS %s, %s", at, r)
	}
}

// step emits the multiply-adds of one k.
func (g *floatKernel) step(p, k int) {
	f := g.f
	free := p * g.tokens // first register that is not an accumulator
	if p == 1 && g.wide {
		w := g.v(free + k)
		g.load(0, k, w)
		for t := range g.tokens {
			f.P("VFMADD231PS.BCST %s, %s, %s", g.token(t, k), w, g.acc(p, t, 0))
		}
		return
	}
	if free+p+1 <= g.regs {
		spare := min(g.regs-free-p, 3)
		for i := range p {
			g.load(i, k, g.v(free+i))
		}
		for t := range g.tokens {
			x := g.v(free + p + t%spare)
			f.P("VBROADCASTSS %s, %s", g.token(t, k), x)
			for i := range p {
				f.P("VFMADD231PS %s, %s, %s", g.v(free+i), x, g.acc(p, t, i))
			}
		}
		return
	}
	for t := range g.tokens {
		f.P("VBROADCASTSS %s, %s", g.token(t, k), g.v(free+t))
	}
	w := g.v(free + g.tokens)
	for i := range p {
		g.load(i, k, w)
		for t := range g.tokens {
			f.P("VFMADD231PS %s, %s, %s", w, g.v(free+t), g.acc(p, t, i))
		}
	}
}
