package main

// accumulators is the number of vectors that a reduction sums in, so that the
// additions do not wait for one another. The order of the sum depends on the
// number of elements alone.
const accumulators = 4

// sums emits the sums over one or two slices.
func (v *vector) sums() {
	a, b := v.v(accumulators), v.v(accumulators+1)
	start := func() {
		for i := range accumulators {
			v.p("%s", v.zero(v.v(i)))
		}
	}
	end := func(slot string) func() {
		return func() {
			v.fold("VADDPS", accumulators)
			v.p("VMOVSS X0, ret+%s(FP)", slot)
		}
	}
	v.emit(function{
		name: "sum", signature: "(x []float32) float32", bytes: 28, doc: "returns the sum of x.",
		length: "x_len+8", slices: []string{"x_base+0"}, unroll: accumulators, start: start, end: end("24"),
		body: func(u int, masked bool) {
			v.get(0, u, a, masked)
			v.p("VADDPS %s, %s, %s", a, v.v(u), v.v(u))
		},
	})
	v.emit(function{
		name: "sumSquares", signature: "(x []float32) float32", bytes: 28, doc: "returns the sum of x*x.",
		length: "x_len+8", slices: []string{"x_base+0"}, unroll: accumulators, start: start, end: end("24"),
		body: func(u int, masked bool) {
			v.get(0, u, a, masked)
			v.p("VFMADD231PS %s, %s, %s", a, a, v.v(u))
		},
	})
	v.emit(function{
		name: "dot", signature: "(a, b []float32) float32", bytes: 52, doc: "returns the sum of a*b.",
		length: "a_len+8", slices: []string{"a_base+0", "b_base+24"}, unroll: accumulators, start: start, end: end("48"),
		body: func(u int, masked bool) {
			v.get(0, u, a, masked)
			v.get(1, u, b, masked)
			v.p("VFMADD231PS %s, %s, %s", a, b, v.v(u))
		},
	})
}

// maximum emits the largest element. VMAXPS yields its first operand here when
// the other is a NaN.
func (v *vector) maximum() {
	a, none := v.v(accumulators), v.v(accumulators+1)
	v.emit(function{
		name: "maximum", signature: "(x []float32) float32", bytes: 28, doc: "returns the largest x but for NaN.",
		length: "x_len+8", slices: []string{"x_base+0"}, consts: []string{"neginf"}, unroll: accumulators,
		start: func() {
			v.p("VMOVUPS {neginf}, %s", none)
			for i := range accumulators {
				v.p("VMOVUPS {neginf}, %s", v.v(i))
			}
		},
		body: func(u int, masked bool) {
			switch {
			case masked && v.wide:
				v.p("VMOVUPS %s, %s\nVMOVUPS %s, K1, %s", none, a, v.at(0, u), a)
			case masked:
				v.get(0, u, a, true)
				v.p("VBLENDVPS %s, %s, %s, %s", v.maskReg(), a, none, a)
			default:
				v.get(0, u, a, false)
			}
			v.p("VMAXPS %s, %s, %s", v.v(u), a, v.v(u))
		},
		end: func() {
			v.fold("VMAXPS", accumulators)
			v.p("VMOVSS X0, ret+24(FP)")
		},
	})
}

// expSum emits the numerators of the softmax and their sum. Arguments under
// expLow become zero, and a NaN stays one.
func (v *vector) expSum() {
	acc, x, n, t, most, keep := v.v(0), v.v(1), v.v(2), v.v(3), v.v(4), v.v(5)
	v.emit(function{
		name: "expSum", signature: "(x []float32, maximum float32) float32", bytes: 36, doc: "replaces x by exp(x-maximum) and returns the sum.",
		length: "x_len+8", slices: []string{"x_base+0"}, consts: expConsts,
		start: func() { v.p("%s\nVBROADCASTSS maximum+24(FP), %s", v.zero(acc), most) },
		body: func(u int, masked bool) {
			v.get(0, u, x, masked)
			v.p("VSUBPS %s, %s, %s", most, x, x)
			switch {
			case v.wide && masked:
				v.p("VCMPPS $5, {expLow}, %s, K1, K2", x)
			case v.wide:
				v.p("VCMPPS $5, {expLow}, %s, K2", x)
			default:
				v.p("VCMPPS $5, {expLow}, %s, %s", x, keep)
				if masked {
					v.p("VANDPS %s, %s, %s", v.maskReg(), keep, keep)
				}
			}
			v.exp(x, n, t)
			if v.wide {
				v.p("VMOVAPS.Z %s, K2, %s", x, x)
			} else {
				v.p("VANDPS %s, %s, %s", keep, x, x)
			}
			v.put(0, u, x, masked)
			v.p("VADDPS %s, %s, %s", x, acc, acc)
		},
		end: func() {
			v.fold("VADDPS", 1)
			v.p("VMOVSS X0, ret+32(FP)")
		},
	})
}

// halves emits the conversions. They do whole vectors only.
func (v *vector) halves() {
	f := v.f
	half := map[bool]string{true: "Y", false: "X"}[v.wide]
	x, most, least := v.v(0), v.v(1), v.v(2)
	f.Func("toF16"+v.name, "(dst []uint16, x []float32)", 48, "rounds x up to its last whole vector.")
	f.P("MOVQ dst_base+0(FP), DI\nMOVQ x_base+24(FP), SI\nMOVQ x_len+32(FP), CX")
	f.P("ADDQ CX, CX\nANDQ $%d, CX\nJEQ done\nXORL AX, AX", -v.bytes()/2)
	f.P("VBROADCASTSS largestHalf<>(SB), %s\nVBROADCASTSS largestHalf<>+4(SB), %s", most, least)
	f.Label("loop")
	// With x second, both keep a NaN.
	f.P("VMOVUPS (SI)(AX*2), %s\nVMINPS %s, %s, %s\nVMAXPS %s, %s, %s", x, x, most, x, x, least, x)
	f.P("VCVTPS2PH $0, %s, (DI)(AX*1)", x)
	f.P("ADDQ $%d, AX\nCMPQ AX, CX\nJLT loop", v.bytes()/2)
	f.Label("done")
	f.P("VZEROUPPER\nRET")
	f.Data("largestHalf", 0xc77fe000_477fe000)

	f.Func("fromF16"+v.name, "(dst []float32, x []uint16)", 48, "widens x up to its last whole vector.")
	f.P("MOVQ dst_base+0(FP), DI\nMOVQ x_base+24(FP), SI\nMOVQ x_len+32(FP), CX")
	f.P("ADDQ CX, CX\nANDQ $%d, CX\nJEQ done\nXORL AX, AX", -v.bytes()/2)
	f.Label("loop")
	f.P("VMOVDQU%s (SI)(AX*1), %s0\nVCVTPH2PS %s0, %s\nVMOVUPS %s, (DI)(AX*2)", map[bool]string{true: "32"}[v.wide], half, half, x, x)
	f.P("ADDQ $%d, AX\nCMPQ AX, CX\nJLT loop", v.bytes()/2)
	f.Label("done")
	f.P("VZEROUPPER\nRET")
}

// scatter emits the conversion into one lane of a panel.
func (v *vector) scatter() {
	f := v.f
	f.Func("scatterF16"+v.name, "(dst []uint16, stride int, x []float32)", 56,
		"rounds x up to its last multiple of 8 to dst[0], dst[stride], dst[2*stride] and so on.")
	f.P("MOVQ dst_base+0(FP), DI\nMOVQ stride+24(FP), R8\nMOVQ x_base+32(FP), SI\nMOVQ x_len+40(FP), CX")
	f.P("ADDQ R8, R8\nLEAQ (R8)(R8*2), R9\nSHRQ $3, CX\nJEQ done")
	f.P("VBROADCASTSS largestHalf<>(SB), Y1\nVBROADCASTSS largestHalf<>+4(SB), Y2")
	f.Label("loop")
	f.P("VMOVUPS (SI), Y0\nVMINPS Y0, Y1, Y0\nVMAXPS Y0, Y2, Y0\nVCVTPS2PH $0, Y0, X0")
	f.P("LEAQ (DI)(R8*4), R10")
	for i, at := range []string{"(DI)", "(DI)(R8*1)", "(DI)(R8*2)", "(DI)(R9*1)", "(R10)", "(R10)(R8*1)", "(R10)(R8*2)", "(R10)(R9*1)"} {
		f.P("VPEXTRW $%d, X0, %s", i, at)
	}
	f.P("LEAQ (DI)(R8*8), DI\nADDQ $32, SI\nDECQ CX\nJNZ loop")
	f.Label("done")
	f.P("VZEROUPPER\nRET")
}

// readSum emits the sum of 64-bit words that measures the memory.
func (v *vector) readSum() {
	const step = 512
	f := v.f
	f.Func("readSum"+v.name, "(b []byte) uint64", 32, "adds up the 64-bit words of b, whose length is a multiple of 512.")
	f.P("MOVQ b_base+0(FP), SI\nMOVQ b_len+8(FP), CX")
	add := "VPADDQ"
	for i := range accumulators {
		f.P("%s", v.zero(v.v(i)))
	}
	f.P("TESTQ CX, CX\nJEQ done")
	f.Label("loop")
	for at := 0; at < step; at += v.bytes() {
		acc := v.v(at / v.bytes() % accumulators)
		if at%64 == 0 {
			f.P("PREFETCHT0 %d(SI)", 4096+at)
		}
		f.P("%s %d(SI), %s, %s", add, at, acc, acc)
	}
	f.P("ADDQ $%d, SI\nSUBQ $%d, CX\nJNE loop", step, step)
	f.Label("done")
	for i := 1; i < accumulators; i++ {
		f.P("%s %s, %s, %s", add, v.v(i), v.v(0), v.v(0))
	}
	if v.wide {
		f.P("VEXTRACTI64X4 $1, Z0, Y1\nVPADDQ Y1, Y0, Y0")
	}
	f.P("VEXTRACTI128 $1, Y0, X1\nVPADDQ X1, X0, X0\nVPSHUFD $0x4e, X0, X1\nVPADDQ X1, X0, X0")
	f.P("VMOVQ X0, AX\nMOVQ AX, ret+24(FP)\nVZEROUPPER\nRET")
}
