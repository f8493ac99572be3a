package main

import (
	"fmt"

	"onebit/engine/tensor/gen/asm"
)

// quantizer writes the functions that quantise activations. They work on four
// blocks of 32 values at a time: of four neighbouring tokens, so that each word
// of the packed block is one store of four lanes, or of one token, when each
// lane has a store of its own.
//
// In a function SI, R14, R15 and BX point to the four blocks of values, DI to
// word 0 of the first packed block. R8, R9, R10 and R11 are 1, 3, 5 and 7 times
// the distance of one word from the next, R13 points to the first word of quants.
type quantizer struct {
	*asm.File
	level  string
	tokens bool // four tokens, not four blocks of one
}

// quantizers writes both functions of a level.
func quantizers(f *asm.File, level string, constants, block func(q quantizer)) {
	for _, tokens := range []bool{true, false} {
		q := quantizer{f, level, tokens}
		if tokens {
			f.Func("quantizeTokens"+level, "(dst *byte, x *float32, nblk, n, stride int)", 40,
				fmt.Sprintf("quantises nblk blocks of four tokens, stride bytes apart, to the words of a tile of n tokens that begin at dst, at level %s.", level))
		} else {
			f.Func("quantizeBlocks"+level, "(dst *byte, x *float32, nblk, n int)", 32,
				fmt.Sprintf("quantises nblk blocks, a multiple of four, of one token to the words of a tile of n tokens that begin at dst, at level %s.", level))
		}
		q.P("MOVQ dst+0(FP), DI\nMOVQ x+8(FP), SI\nMOVQ nblk+16(FP), CX\nMOVQ n+24(FP), R8")
		q.P("SHLQ $2, R8\nLEAQ (R8)(R8*2), R9\nLEAQ (R8)(R8*4), R10\nLEAQ (R10)(R8*2), R11\nLEAQ (R10)(R10*2), R12")
		if tokens {
			q.P("MOVQ stride+32(FP), AX\nLEAQ (SI)(AX*1), R14\nLEAQ (SI)(AX*2), R15\nLEAQ (R14)(AX*2), BX")
		}
		constants(q)
		q.Label("block")
		q.P("LEAQ (DI)(R11*1), R13")
		block(q)
		if tokens {
			q.P("ADDQ R12, DI\nADDQ $128, SI\nADDQ $128, R14\nADDQ $128, R15\nADDQ $128, BX\nDECQ CX")
		} else {
			q.P("LEAQ (DI)(R12*4), DI\nADDQ $512, SI\nSUBQ $4, CX")
		}
		q.P("JNZ block\nVZEROUPPER\nRET")
	}
}

// from returns the operand of the values at byte offset at of block i.
func (q quantizer) from(i, at int) string {
	if q.tokens {
		return fmt.Sprintf("%d(%s)", at, []string{"SI", "R14", "R15", "BX"}[i])
	}
	return fmt.Sprintf("%d(SI)", 128*i+at)
}

// put stores the lanes of X register x, one for each of the four blocks, as word
// w of the packed block.
func (q quantizer) put(x, w int) {
	base := "(DI)"
	if w >= actQuants {
		base, w = "(R13)", w-actQuants
	}
	index := []string{"", "(R8*1)", "(R8*2)", "(R9*1)", "(R8*4)", "(R10*1)", "(R9*2)", "(R11*1)"}[w]
	if q.tokens {
		q.P("VMOVDQU X%d, %s%s", x, base, index)
		return
	}
	q.P("LEAQ %s%s, AX", base, index)
	q.P("VMOVD X%d, (AX)\nVPEXTRD $1, X%d, (AX)(R12*1)\nVPEXTRD $2, X%d, (AX)(R12*2)", x, x, x)
	q.P("LEAQ (AX)(R12*2), AX\nVPEXTRD $3, X%d, (AX)(R12*1)", x)
}

// fold joins registers a to a+3 of one vector a block lane by lane to a vector
// of the four blocks, in X register a: their greatest magnitudes. It uses two
// registers at t.
func (q quantizer) fold(reg string, a, t int) {
	for i := 0; i < 4; i += 2 {
		q.P("VPUNPCKLDQ %s%d, %s%d, %s%d", reg, a+i+1, reg, a+i, reg, t)
		q.P("VPUNPCKHDQ %s%d, %s%d, %s%d", reg, a+i+1, reg, a+i, reg, t+1)
		q.P("VPMAXSD %s%d, %s%d, %s%d", reg, t, reg, t+1, reg, a+i)
	}
	q.P("VPUNPCKLQDQ %s%d, %s%d, %s%d", reg, a+2, reg, a, reg, t)
	q.P("VPUNPCKHQDQ %s%d, %s%d, %s%d", reg, a+2, reg, a, reg, t+1)
	q.P("VPMAXSD %s%d, %s%d, %s%d", reg, t, reg, t+1, reg, a)
	q.narrow("VPMAXSD", reg, a, t)
}

// narrow joins the 128-bit lanes of register a to X register a.
func (q quantizer) narrow(op, reg string, a, t int) {
	if reg == "Z" {
		q.P("VEXTRACTI64X4 $1, Z%d, Y%d\n%s Y%d, Y%d, Y%d", a, t, op, t, a, a)
	}
	q.P("VEXTRACTI128 $1, Y%d, X%d\n%s X%d, X%d, X%d", a, t, op, t, a, a)
}

// scales turns the greatest magnitudes in X0 to the scales in X1, which it puts,
// and to their inverses in X2. Both are zero for magnitudes under 2^-100. Integer
// comparison puts infinities and NaN above all numbers, so they stay visible.
func (q quantizer) scales() {
	q.P("VPCMPGTD X14, X0, X3\nVDIVPS X15, X0, X1\nVDIVPS X0, X15, X2")
	q.P("VPAND X3, X1, X1\nVPAND X3, X2, X2")
	q.put(1, actScale)
}

// limits loads what scales needs, with X13 bytes of one and X12 zero.
func (q quantizer) limits() {
	q.P("MOVL $0x0d7fffff, AX\nVMOVD AX, X14\nVPBROADCASTD X14, X14")
	q.P("MOVL $0x42fe0000, AX\nVMOVD AX, X15\nVPBROADCASTD X15, X15") // 127
	q.P("VPXOR X12, X12, X12")
}

// starts puts the words that take offsets out of weights. X5 and X6 hold the
// sums of the halves, X7 those of the whole, and suffix names 32-bit lanes or
// pairs of 16-bit ones.
func (q quantizer) starts(suffix string) {
	for _, x := range []int{5, 6, 7} {
		q.P("VPSUB%s X%d, X12, X%d", suffix, x, x)
	}
	for _, s := range [][3]int{{7, 3, actOff8}, {7, 4, actOff16}, {7, 7, actOff128}, {5, 5, actOffA}, {6, 5, actOffB}} {
		q.P("VPSLL%s $%d, X%d, X3", suffix, s[1], s[0])
		q.put(3, s[2])
	}
}

func quantize512(q quantizer) {
	// Z16-Z23 the values, Z4-Z7 their magnitudes.
	for i := range 4 {
		q.P("VMOVUPS %s, Z%d\nVMOVUPS %s, Z%d", q.from(i, 0), 16+i, q.from(i, 64), 20+i)
		q.P("VPANDD Z24, Z%d, Z%d\nVPANDD Z24, Z%d, Z3\nVPMAXSD Z3, Z%d, Z%d", 16+i, i+4, 20+i, i+4, i+4)
	}
	q.fold("Z", 4, 8)
	q.P("VMOVDQA X4, X0")
	q.scales()
	for i := range 4 {
		q.P("VPERMD Z2, Z%d, Z3\nVMULPS Z3, Z%d, Z%d\nVMULPS Z3, Z%d, Z%d", 25+i, 16+i, 16+i, 20+i, 20+i)
		q.P("VCVTPS2DQ Z%d, Z%d\nVCVTPS2DQ Z%d, Z%d", 16+i, 16+i, 20+i, 20+i)
	}
	// Packing two blocks, then four, leaves a group of each in every 128 bits.
	for h := range 2 {
		a := 16 + 4*h
		q.P("VPACKSSDW Z%d, Z%d, Z%d\nVPACKSSDW Z%d, Z%d, Z%d", a+1, a, a, a+3, a+2, a+2)
		q.P("VPACKSSWB Z%d, Z%d, Z%d", a+2, a, a)
		q.P("VPXOR X%d, X%d, X%d\nVPDPBUSD Z%d, Z13, Z%d", 5+h, 5+h, 5+h, a, 5+h)
		q.narrow("VPADDD", "Z", 5+h, 8)
		q.P("VMOVDQA64 Z%d, Z0", a)
		q.put(0, actQuants+4*h)
		for l := 1; l < 4; l++ {
			q.P("VEXTRACTI32X4 $%d, Z%d, X3", l, a)
			q.put(3, actQuants+4*h+l)
		}
	}
	q.P("VPADDD X5, X6, X7\nVCVTDQ2PS X7, X3\nVMULPS X1, X3, X3")
	q.put(3, actSum)
	q.starts("D")
}

func constants512(q quantizer) {
	q.P("MOVL $0x7fffffff, AX\nVPBROADCASTD AX, Z24\nMOVL $0x01010101, AX\nVPBROADCASTD AX, Z13")
	for i := range 4 {
		q.P("MOVL $%d, AX\nVPBROADCASTD AX, Z%d", i, 25+i)
	}
	q.limits()
}

func quantize2(q quantizer) {
	for i := range 4 {
		q.P("VPAND %s, Y11, Y%d", q.from(i, 0), i)
		for v := 1; v < 4; v++ {
			q.P("VPAND %s, Y11, Y4\nVPMAXSD Y4, Y%d, Y%d", q.from(i, 32*v), i, i)
		}
	}
	q.fold("Y", 0, 4)
	q.scales()
	q.P("VINSERTI128 $1, X2, Y2, Y2\nVPXOR X5, X5, X5\nVPXOR X6, X6, X6")
	// Columns 8v to 8v+7 of each block, to Y0, Y3, Y4 and Y7 in turn. Packing two
	// blocks, then four, leaves a group of each in every 128 bits.
	for v := range 4 {
		regs := []int{0, 3, 4, 7}
		for i, r := range regs {
			q.P("VPSHUFD $%#02x, Y2, Y%d\nVMULPS %s, Y%d, Y%d\nVCVTPS2DQ Y%d, Y%d", i*0x55, r, q.from(i, 32*v), r, r, r, r)
		}
		q.P("VPACKSSDW Y3, Y0, Y0\nVPACKSSDW Y7, Y4, Y4\nVPACKSSWB Y4, Y0, Y0")
		q.P("VPMADDUBSW Y0, Y13, Y3\nVPADDW Y3, Y%d, Y%d", 5+v/2, 5+v/2)
		q.put(0, actQuants+2*v)
		q.P("VEXTRACTI128 $1, Y0, X0")
		q.put(0, actQuants+2*v+1)
	}
	q.narrow("VPADDW", "Y", 5, 3)
	q.narrow("VPADDW", "Y", 6, 3)
	q.P("VPADDW X5, X6, X7\nVPMADDWD X10, X7, X3\nVCVTDQ2PS X3, X3\nVMULPS X1, X3, X3")
	q.put(3, actSum)
	q.starts("W")
}

func constants2(q quantizer) {
	q.P("VMOVDQU magnitude<>(SB), Y11\nMOVL $0x01010101, AX\nVMOVD AX, X13\nVPBROADCASTD X13, Y13")
	q.P("MOVL $0x00010001, AX\nVMOVD AX, X10\nVPBROADCASTD X10, X10")
	q.limits()
}
