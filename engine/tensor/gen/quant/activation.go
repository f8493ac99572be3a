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
//
// 256-bit registers serve AVX-512 as well: wider ones were slower, because most of
// the work is shuffling.
type quantizer struct {
	*asm.File
	tokens bool // four tokens, not four blocks of one
	pairs  bool // start values are pairs of int16, not int32
}

// quantizers writes both functions of a level.
func quantizers(f *asm.File, level string, pairs bool) {
	words := func(name string, word uint64) { f.Data(name, word, word, word, word) }
	words("magnitude", 0x7fffffff7fffffff)
	words("bytesOfOne", 0x0101010101010101)
	words("wordsOfOne", 0x0001000100010001)
	words("smallest", 0x0d7fffff0d7fffff) // just under 2^-100
	words("steps", 0x42fe000042fe0000)    // float32 127
	for _, tokens := range []bool{true, false} {
		q := quantizer{f, tokens, pairs}
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
		q.P("VMOVDQU magnitude<>(SB), Y11\nVMOVDQU bytesOfOne<>(SB), Y13\nVMOVDQU wordsOfOne<>(SB), Y10")
		q.P("VMOVDQU smallest<>(SB), X14\nVMOVDQU steps<>(SB), X15\nVPXOR X12, X12, X12")
		q.Label("block")
		q.P("LEAQ (DI)(R11*1), R13")
		q.block()
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

// fold joins Y0 to Y3, the greatest magnitudes of one block each in eight lanes,
// to X0 with a lane for each block.
func (q quantizer) fold() {
	for i := 0; i < 4; i += 2 {
		q.P("VPUNPCKLDQ Y%d, Y%d, Y4\nVPUNPCKHDQ Y%d, Y%d, Y5", i+1, i, i+1, i)
		q.P("VPMAXSD Y4, Y5, Y%d", i)
	}
	q.P("VPUNPCKLQDQ Y2, Y0, Y4\nVPUNPCKHQDQ Y2, Y0, Y5\nVPMAXSD Y4, Y5, Y0")
	q.P("VEXTRACTI128 $1, Y0, X4\nVPMAXSD X4, X0, X0")
}

// scales turns the greatest magnitudes in X0 to the scales in X1, which it puts,
// and to their inverses in both halves of Y2. They are zero for magnitudes under
// 2^-100. Integer comparison puts infinities and NaN above all numbers, so they
// stay visible.
func (q quantizer) scales() {
	q.P("VPCMPGTD X14, X0, X3\nVDIVPS X15, X0, X1\nVDIVPS X0, X15, X2")
	q.P("VPAND X3, X1, X1\nVPAND X3, X2, X2\nVINSERTI128 $1, X2, Y2, Y2")
	q.put(1, actScale)
}

// block quantises four blocks.
func (q quantizer) block() {
	for i := range 4 {
		q.P("VPAND %s, Y11, Y%d", q.from(i, 0), i)
		for v := 1; v < 4; v++ {
			q.P("VPAND %s, Y11, Y4\nVPMAXSD Y4, Y%d, Y%d", q.from(i, 32*v), i, i)
		}
	}
	q.fold()
	q.scales()
	q.P("VPXOR X5, X5, X5\nVPXOR X6, X6, X6") // sums of the halves
	// Columns 8v to 8v+7 of each block, to Y0, Y3, Y4 and Y7 in turn. Packing two
	// blocks, then four, leaves a group of each in every 128 bits.
	for v := range 4 {
		for i, r := range []int{0, 3, 4, 7} {
			q.P("VPSHUFD $%#02x, Y2, Y%d\nVMULPS %s, Y%d, Y%d\nVCVTPS2DQ Y%d, Y%d", i*0x55, r, q.from(i, 32*v), r, r, r, r)
		}
		q.P("VPACKSSDW Y3, Y0, Y0\nVPACKSSDW Y7, Y4, Y4\nVPACKSSWB Y4, Y0, Y0")
		q.P("VPMADDUBSW Y0, Y13, Y3\nVPADDW Y3, Y%d, Y%d", 5+v/2, 5+v/2)
		q.put(0, actQuants+2*v)
		q.P("VEXTRACTI128 $1, Y0, X0")
		q.put(0, actQuants+2*v+1)
	}
	q.sums()
}

// sums puts the words that depend on the sums of the halves: even and odd pairs
// of columns, in Y5 and Y6.
func (q quantizer) sums() {
	for _, y := range []int{5, 6} {
		q.P("VEXTRACTI128 $1, Y%d, X3\nVPADDW X3, X%d, X%d", y, y, y)
	}
	q.P("VPADDW X5, X6, X7\nVPMADDWD X10, X7, X4\nVCVTDQ2PS X4, X3\nVMULPS X1, X3, X3")
	q.put(3, actSum)
	lanes := "W"
	if !q.pairs {
		lanes = "D"
		q.P("VPMADDWD X10, X5, X5\nVPMADDWD X10, X6, X6\nVMOVDQA X4, X7")
	}
	for _, x := range []int{5, 6, 7} {
		q.P("VPSUB%s X%d, X12, X%d", lanes, x, x)
	}
	for _, s := range [][3]int{{7, 3, actOff8}, {7, 4, actOff16}, {7, 7, actOff128}, {5, 5, actOffA}, {6, 5, actOffB}} {
		q.P("VPSLL%s $%d, X%d, X3", lanes, s[1], s[0])
		q.put(3, s[2])
	}
}
