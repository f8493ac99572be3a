package main

import (
	"fmt"

	"onebit/engine/tensor/gen/asm"
)

var expConsts = []string{"expLow", "expHigh", "log2e", "ln2High", "ln2Low", "exp2", "exp3", "exp4", "exp5", "exp6", "one"}

// elementwise emits all element-wise functions of a level.
func elementwise(s isa) *asm.File {
	v := &vector{isa: s, f: asm.New("gen/ops")}
	v.arithmetic()
	v.scaled()
	v.normalised()
	v.gated()
	v.gelus()
	v.softcap()
	v.ropeNeox()
	v.ropeNorm()
	v.sums()
	v.maximum()
	v.expSum()
	v.halves()
	v.scatter()
	v.readSum()
	v.data()
	return v.f
}

// arithmetic emits add and mul.
func (v *vector) arithmetic() {
	a := v.v(0)
	for _, op := range []struct{ name, doc, insn string }{
		{"add", "adds x to dst.", "VADDPS"},
		{"mul", "multiplies dst by x.", "VMULPS"},
	} {
		b := v.v(1)
		v.emit(function{
			name: op.name, signature: "(dst, x []float32)", bytes: 48, doc: op.doc,
			length: "dst_len+8", slices: []string{"dst_base+0", "x_base+24"},
			body: func(u int, masked bool) {
				v.get(0, u, a, masked)
				v.get(1, u, b, masked)
				v.p("%s %s, %s, %s", op.insn, b, a, a)
				v.put(0, u, a, masked)
			},
		})
	}
}

// scaled emits the operations with one factor.
func (v *vector) scaled() {
	a, b, s := v.v(0), v.v(1), v.v(2)
	v.emit(function{
		name: "scale", signature: "(dst []float32, s float32)", bytes: 28, doc: "multiplies dst by s.",
		length: "dst_len+8", slices: []string{"dst_base+0"},
		start: func() { v.p("VBROADCASTSS s+24(FP), %s", s) },
		body: func(u int, masked bool) {
			v.get(0, u, a, masked)
			v.p("VMULPS %s, %s, %s", s, a, a)
			v.put(0, u, a, masked)
		},
	})
	v.emit(function{
		name: "addScaled", signature: "(dst, x []float32, s float32)", bytes: 52, doc: "adds s*x to dst.",
		length: "dst_len+8", slices: []string{"dst_base+0", "x_base+24"},
		start: func() { v.p("VBROADCASTSS s+48(FP), %s", s) },
		body: func(u int, masked bool) {
			v.get(0, u, a, masked)
			v.get(1, u, b, masked)
			v.p("VFMADD231PS %s, %s, %s", s, b, a)
			v.put(0, u, a, masked)
		},
	})
	v.emit(function{
		name: "scaleAdd", signature: "(dst []float32, s float32, x []float32)", bytes: 56, doc: "stores dst*s+x in dst.",
		length: "dst_len+8", slices: []string{"dst_base+0", "x_base+32"},
		start: func() { v.p("VBROADCASTSS s+24(FP), %s", s) },
		body: func(u int, masked bool) {
			v.get(0, u, a, masked)
			v.get(1, u, b, masked)
			v.p("VFMADD213PS %s, %s, %s", b, s, a)
			v.put(0, u, a, masked)
		},
	})
}

// normalised emits the second passes of the norms.
func (v *vector) normalised() {
	a, b, s, m := v.v(0), v.v(1), v.v(2), v.v(3)
	v.emit(function{
		name: "shiftScale", signature: "(dst, x []float32, shift, s float32)", bytes: 56, doc: "stores (x-shift)*s in dst.",
		length: "dst_len+8", slices: []string{"dst_base+0", "x_base+24"},
		start: func() { v.p("VBROADCASTSS shift+48(FP), %s\nVBROADCASTSS s+52(FP), %s", m, s) },
		body: func(u int, masked bool) {
			v.get(1, u, a, masked)
			v.p("VSUBPS %s, %s, %s\nVMULPS %s, %s, %s", m, a, a, s, a, a)
			v.put(0, u, a, masked)
		},
	})
	v.emit(function{
		name: "mulScale", signature: "(dst, x, w []float32, s float32)", bytes: 76, doc: "stores x*s*w in dst.",
		length: "dst_len+8", slices: []string{"dst_base+0", "x_base+24", "w_base+48"},
		start: func() { v.p("VBROADCASTSS s+72(FP), %s", s) },
		body: func(u int, masked bool) {
			v.get(1, u, a, masked)
			v.get(2, u, b, masked)
			v.p("VMULPS %s, %s, %s\nVMULPS %s, %s, %s", s, a, a, b, a, a)
			v.put(0, u, a, masked)
		},
	})
}

// exp emits x = exp(x) for an x that the clamps have been applied to.
func (v *vector) exp(x, n, t string) {
	v.p("VMULPS {log2e}, %s, %s", x, n)
	if v.wide {
		v.p("VRNDSCALEPS $8, %s, %s", n, n)
	} else {
		v.p("VROUNDPS $8, %s, %s", n, n)
	}
	v.p("VFNMADD231PS {ln2High}, %s, %s\nVFNMADD231PS {ln2Low}, %s, %s", n, x, n, x)
	v.horner(x, t, "exp6", "exp5", "exp4", "exp3", "exp2", "one", "one")
	if v.wide {
		v.p("VSCALEFPS %s, %s, %s", n, t, x)
		return
	}
	v.p("VCVTPS2DQ %s, %s\nVPSLLD $23, %s, %s\nVPADDD %s, %s, %s", n, n, n, n, n, t, x)
}

// clamp limits x to arguments whose exponential is a normal number.
func (v *vector) clamp(x string) {
	v.p("VMAXPS {expLow}, %s, %s\nVMINPS {expHigh}, %s, %s", x, x, x, x)
}

// horner emits t = a polynomial in x, whose constants begin with the highest power.
func (v *vector) horner(x, t string, coefficients ...string) {
	v.p("VMOVUPS {%s}, %s", coefficients[0], t)
	for _, c := range coefficients[1:] {
		v.p("VFMADD213PS {%s}, %s, %s", c, x, t)
	}
}

// gated emits the products of an activation of gate and up.
func (v *vector) gated() {
	g, e, n, t := v.v(0), v.v(1), v.v(2), v.v(3)
	v.emit(function{
		name: "siluMul", signature: "(dst, gate, up []float32)", bytes: 72, doc: "stores gate*sigmoid(gate)*up in dst.",
		length: "dst_len+8", slices: []string{"dst_base+0", "gate_base+24", "up_base+48"}, consts: expConsts,
		body: func(u int, masked bool) {
			v.get(1, u, g, masked)
			v.p("%s\nVSUBPS %s, %s, %s", v.zero(e), g, e, e)
			v.clamp(e)
			v.exp(e, n, t)
			v.p("VADDPS {one}, %s, %s\nVDIVPS %s, %s, %s", e, e, e, g, g)
			v.get(2, u, e, masked)
			v.p("VMULPS %s, %s, %s", e, g, g)
			v.put(0, u, g, masked)
		},
	})
	v.emit(function{
		name: "geluMul", signature: "(dst, gate, up []float32)", bytes: 72, doc: "stores GELU(gate)*up in dst, by tanh.",
		length: "dst_len+8", slices: []string{"dst_base+0", "gate_base+24", "up_base+48"},
		consts: append([]string{"gelu1", "gelu3"}, expConsts...),
		body: func(u int, masked bool) {
			v.get(1, u, g, masked)
			v.geluTanh(g, e, n, t)
			v.get(2, u, e, masked)
			v.p("VMULPS %s, %s, %s", e, g, g)
			v.put(0, u, g, masked)
		},
	})
}

// geluTanh emits g = g/(1+exp(g*(gelu1+gelu3*g*g))).
func (v *vector) geluTanh(g, e, n, t string) {
	v.p("VMULPS %s, %s, %s\nVMOVUPS {gelu1}, %s\nVFMADD231PS {gelu3}, %s, %s", g, g, n, e, n, e)
	v.p("VMULPS %s, %s, %s", g, e, e)
	v.clamp(e)
	v.exp(e, n, t)
	v.p("VADDPS {one}, %s, %s\nVDIVPS %s, %s, %s", e, e, e, g, g)
}

// gelus emits both forms of GELU.
func (v *vector) gelus() {
	x, e, n, t, q, a := v.v(0), v.v(1), v.v(2), v.v(3), v.v(4), v.v(5)
	v.emit(function{
		name: "gelu", signature: "(dst, x []float32)", bytes: 48, doc: "stores GELU(x) in dst, by tanh.",
		length: "dst_len+8", slices: []string{"dst_base+0", "x_base+24"},
		consts: append([]string{"gelu1", "gelu3"}, expConsts...),
		body: func(u int, masked bool) {
			v.get(1, u, x, masked)
			v.geluTanh(x, e, n, t)
			v.put(0, u, x, masked)
		},
	})
	// GELU(x) is max(x, 0) - |x|/2*erfc(|x|/sqrt(2)), which has no cancellation
	// where x is negative.
	v.emit(function{
		name: "geluErf", signature: "(dst, x []float32)", bytes: 48, doc: "stores GELU(x) in dst, by erf.",
		length: "dst_len+8", slices: []string{"dst_base+0", "x_base+24"},
		consts: append([]string{"magnitude", "erfP", "half", "erf0", "erf1", "erf2", "erf3", "erf4", "erf5", "erf6", "erf7", "erf8"}, expConsts...),
		body: func(u int, masked bool) {
			v.get(1, u, x, masked)
			v.p("VANDPS {magnitude}, %s, %s", x, a)
			v.p("VMULPS {half}, %s, %s\n%s\nVSUBPS %s, %s, %s", x, e, v.zero(q), e, q, e)
			v.p("VMULPS %s, %s, %s", x, e, e) // -x*x/2
			v.clamp(e)
			v.exp(e, n, t)
			v.p("VMOVUPS {one}, %s\nVMOVUPS %s, %s\nVFMADD231PS {erfP}, %s, %s", n, n, t, a, t)
			v.p("VDIVPS %s, %s, %s", t, n, n)
			v.horner(n, t, "erf8", "erf7", "erf6", "erf5", "erf4", "erf3", "erf2", "erf1", "erf0")
			v.p("VMULPS %s, %s, %s\nVMULPS %s, %s, %s", n, t, t, t, e, e) // erfc
			// The limit keeps infinity from becoming a NaN; the order of the maximum keeps a NaN.
			v.p("VMINPS {expHigh}, %s, %s\nVMULPS {half}, %s, %s\nVMULPS %s, %s, %s", a, a, a, a, a, e, e)
			v.p("VMAXPS %s, %s, %s\nVSUBPS %s, %s, %s", x, q, x, e, x, x)
			v.put(0, u, x, masked)
		},
	})
}

// softcap emits limit*tanh(x/limit): 1-2/(exp(2y)+1) with the sign put back, or
// the polynomial where that would cancel. The comparison is "not greater or
// equal", so that a NaN takes the polynomial and stays one.
func (v *vector) softcap() {
	y, e, n, t, a, limit, inverse, sign := v.v(0), v.v(1), v.v(2), v.v(3), v.v(4), v.v(5), v.v(6), v.v(7)
	v.emit(function{
		name: "softcap", signature: "(x []float32, limit float32)", bytes: 28, doc: "stores limit*tanh(x/limit) in x.",
		length: "x_len+8", slices: []string{"x_base+0"},
		consts: append([]string{"magnitude", "two", "tanhSmall", "tanh3", "tanh5", "tanh7", "tanh9", "tanh11"}, expConsts...),
		start: func() {
			v.p("VBROADCASTSS limit+24(FP), %s\nVMOVUPS {one}, %s\nVDIVPS %s, %s, %s", limit, inverse, limit, inverse, inverse)
		},
		body: func(u int, masked bool) {
			v.get(0, u, y, masked)
			v.p("VMULPS %s, %s, %s\nVANDPS {magnitude}, %s, %s\nVXORPS %s, %s, %s", inverse, y, y, y, a, a, y, sign)
			v.p("VADDPS %s, %s, %s", a, a, e)
			v.clamp(e)
			v.exp(e, n, t)
			v.p("VADDPS {one}, %s, %s\nVMOVUPS {two}, %s\nVDIVPS %s, %s, %s", e, e, n, e, n, n)
			v.p("VMOVUPS {one}, %s\nVSUBPS %s, %s, %s\nVORPS %s, %s, %s", e, n, e, e, sign, e, e)
			v.p("VMULPS %s, %s, %s", y, y, n)
			v.horner(n, t, "tanh11", "tanh9", "tanh7", "tanh5", "tanh3")
			v.p("VMULPS %s, %s, %s\nVFMADD213PS %s, %s, %s", n, t, t, y, y, t)
			if v.wide {
				v.p("VCMPPS $9, {tanhSmall}, %s, K2\nVMOVAPS %s, K2, %s", a, t, e)
			} else {
				v.p("VCMPPS $9, {tanhSmall}, %s, %s\nVBLENDVPS %s, %s, %s, %s", a, a, a, t, e, e)
			}
			v.p("VMULPS %s, %s, %s", limit, e, e)
			v.put(0, u, e, masked)
		},
	})
}

// ropeNeox emits the rotation of two halves; the second one is slice 3.
func (v *vector) ropeNeox() {
	a, b, c, s, t, q := v.v(0), v.v(1), v.v(2), v.v(3), v.v(4), v.v(5)
	v.emit(function{
		name: "ropeNeox", signature: "(x, cos, sin []float32)", bytes: 72, doc: "rotates the pairs (x[i], x[i+len(cos)]).",
		length: "cos_len+32", slices: []string{"x_base+0", "cos_base+24", "sin_base+48"},
		start: func() { v.p("LEAQ (DI)(CX*1), R8") },
		body: func(u int, masked bool) {
			v.get(0, u, a, masked)
			v.get(3, u, b, masked)
			v.get(1, u, c, masked)
			v.get(2, u, s, masked)
			v.p("VMULPS %s, %s, %s\nVMULPS %s, %s, %s", s, a, t, s, b, q)
			v.p("VFMSUB213PS %s, %s, %s\nVFMADD213PS %s, %s, %s", q, c, a, t, c, b)
			v.put(0, u, a, masked)
			v.put(3, u, b, masked)
		},
	})
}

// ropeNorm emits the rotation of neighbours. It does whole vectors only.
func (v *vector) ropeNorm() {
	f := v.f
	f.Func("ropeNorm"+v.name, "(x, cos, sin []float32)", 72,
		fmt.Sprintf("rotates the pairs (x[2i], x[2i+1]) up to the last multiple of %d pairs.", v.lanes/2))
	f.P("MOVQ x_base+0(FP), DI\nMOVQ cos_base+24(FP), SI\nMOVQ cos_len+32(FP), CX\nMOVQ sin_base+48(FP), DX")
	f.P("SHLQ $2, CX\nANDQ $%d, CX\nJEQ done\nXORL AX, AX", -v.bytes()/2)
	x, c, s, t, twice := v.v(0), v.v(1), v.v(2), v.v(3), v.v(4)
	f.P("VMOVDQU%s twice<>(SB), %s", map[bool]string{true: "32"}[v.wide], twice)
	f.Label("loop")
	for _, r := range []struct{ from, to string }{{"SI", c}, {"DX", s}} {
		if v.wide {
			f.P("VMOVUPS (%s)(AX*1), Y%s\nVPERMPS %s, %s, %s", r.from, r.to[1:], r.to, twice, r.to)
		} else {
			f.P("VBROADCASTF128 (%s)(AX*1), %s\nVPERMILPS %s, %s, %s", r.from, r.to, twice, r.to, r.to)
		}
	}
	f.P("VMOVUPS (DI)(AX*2), %s\nVPERMILPS $0xb1, %s, %s\nVMULPS %s, %s, %s", x, x, t, s, t, t)
	f.P("VFMADDSUB213PS %s, %s, %s\nVMOVUPS %s, (DI)(AX*2)", t, c, x, x)
	f.P("ADDQ $%d, AX\nCMPQ AX, CX\nJLT loop", v.bytes()/2)
	f.Label("done")
	f.P("VZEROUPPER\nRET")
	words := []uint64{0, 1<<32 | 1, 2<<32 | 2, 3<<32 | 3}
	if v.wide {
		words = append(words, 4<<32|4, 5<<32|5, 6<<32|6, 7<<32|7)
	}
	f.Data("twice", words...)
}
