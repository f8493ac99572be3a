package main

import "onebit/engine/tensor/gen/asm"

// Numbers of the wide form and its kernel: keep in step with wide.go.
const (
	widePanels = 4 // panels worked on at once
	wideTokens = 6 // tokens of a tile

	// Words of a block, in units of wideTokens words.
	wideScale  = 0
	wideStart  = 1
	wideTurned = 2 // two words, a byte for each group
	wideGroups = 4 // two words a group: sizes, signs
	wideWords  = wideGroups + 2*8

	// Bytes of the kernel's work area.
	wideVariants = 0                                // [panel][group][variant]
	wideScales   = wideVariants + widePanels*8*4*32 // [panel]
	wideAcc      = wideScales + widePanels*32       // [token][panel]

	wideRow    = 4 * wideTokens      // bytes of one word of all tokens
	wideTile   = wideRow * wideWords // bytes of a block of a tile
	plainTile  = wideRow * actWords  // the same of the ordinary form
	panelBlock = 8*2 + 8*32          // bytes of a block of a panel of Q8_0
)

// wideWord returns the byte offset of the sizes (0) or signs (1) of group g.
func wideWord(g, part int) int { return wideRow * (wideGroups + 2*g + part) }

// wide writes the AVX2 kernel of Q8_0 for many tokens.
//
// One VPMADDUBSW multiplies 32 pairs of signed bytes if it gets the sizes of one side
// and the signs of that side move to the other. Sizes of at most 127 cannot make its sums of two products saturate.
// To move signs in the inner loop costs as much as a second product. But only the sign of a pair's second value,
// seen from its first, has to move: the next instruction, which
// adds up the pairs, multiplies by the sign of the first. That leaves four
// variants of a group of weights. They are made once for a block of weights, and each token picks its own.
//
// In a block SI points to the weights of the first panel, R10 and R11 are one and three times the size of a panel,
// R8 points to the activations. R9 points to the work area, DI to the results. In a
// token DX points to its words, BX to its accumulators.
func wide(f *asm.File) {
	words := func(name string, word uint64) { f.Data(name, word, word, word, word) }
	words("variant0", 0x8080808080808080) // takes 128 off
	words("variant1", 0x80807f8080807f80) // and turns w to -1-w in the second byte of the first pair,
	words("variant2", 0x7f8080807f808080) // of the second pair,
	words("variant3", 0x7f807f807f807f80) // of both
	f.FuncFrame("mulWideQ80", "(w, a *byte, c *float32, work *byte, nblk, npanel, ntile, stride, ldc int)", 8, 72,
		"is the AVX2 wideKernel of Q8_0.")
	f.P("MOVQ w+0(FP), SI\nMOVQ c+16(FP), DI\nMOVQ work+24(FP), R9\nMOVQ nblk+32(FP), R10\nMOVQ npanel+40(FP), AX")
	f.P("MOVQ AX, left-8(SP)\nMOVQ ntile+48(FP), R13\nMOVQ stride+56(FP), R12\nSUBQ $%d, R12", wideRow)
	f.P("IMULQ $%d, R10\nLEAQ (R10)(R10*2), R11", panelBlock)

	f.Label("panels")
	f.P("LEAQ %d(R9), BX\nMOVQ R13, R14\nVPXOR Y0, Y0, Y0", wideAcc)
	f.Label("clear")
	for i := range wideTokens * widePanels {
		f.P("VMOVDQU Y0, %d(BX)", 32*i)
	}
	f.P("ADDQ $%d, BX\nDECQ R14\nJNZ clear", 32*wideTokens*widePanels)
	f.P("MOVQ a+8(FP), R8\nMOVQ nblk+32(FP), CX")

	f.Label("block")
	wideWeights(f)
	f.P("MOVQ R8, DX\nLEAQ %d(R9), BX\nMOVQ R13, R14", wideAcc)
	f.Label("tile")
	f.P("MOVQ $%d, R15", wideTokens)
	f.Label("token")
	wideToken(f)
	f.P("ADDQ $4, DX\nADDQ $%d, BX\nDECQ R15\nJNZ token", 32*widePanels)
	f.P("ADDQ R12, DX\nDECQ R14\nJNZ tile")
	f.P("ADDQ $%d, SI\nADDQ $%d, R8\nDECQ CX\nJNZ block", panelBlock, wideTile)

	f.P("LEAQ %d(R9), BX\nMOVQ ldc+64(FP), AX\nLEAQ (R13)(R13*2), CX\nSHLQ $1, CX\nMOVQ DI, DX", wideAcc)
	f.Label("store")
	for p := range widePanels {
		f.P("VMOVUPS %d(BX), Y%d\nVMOVUPS Y%d, %d(DX)", 32*p, p, p, 32*p)
	}
	f.P("ADDQ $%d, BX\nADDQ AX, DX\nDECQ CX\nJNZ store", 32*widePanels)
	f.P("ADDQ $%d, DI\nADDQ R11, SI\nSUBQ $%d, left-8(SP)\nJNZ panels\nVZEROUPPER\nRET", 32*widePanels, widePanels)
}

// wideWeights makes the variants of a block of weights, and its scales. The next block is fetched meanwhile: it comes
// too late to be foreseen by the processor.
func wideWeights(f *asm.File) {
	at := []string{"(SI)", "(SI)(R10*1)", "(SI)(R10*2)", "(SI)(R11*1)"}
	for v := range 4 {
		f.P("VMOVDQU variant%d<>(SB), Y%d", v, 12+v)
	}
	for p := range widePanels {
		for i := 0; i <= panelBlock; i += 64 {
			f.P("PREFETCHT0 %d%s", panelBlock+i, at[p])
		}
		f.P("VCVTPH2PS %s, Y0\nVMOVUPS Y0, %d(R9)", at[p], wideScales+32*p)
		for g := range 8 {
			w := (4*g + p) % 3 * 4
			f.P("VMOVDQU %d%s, Y%d", 16+32*g, at[p], w)
			for v := 3; v >= 0; v-- {
				f.P("VPXOR Y%d, Y%d, Y%d\nVMOVDQU Y%d, %d(R9)", w, 12+v, w+v, w+v, wideVariants+32*(4*(8*p+g)+v))
			}
		}
	}
}

// wideToken adds the products of a block with one token. The sums of a group wait for the products of the next, so
// that they never keep the multipliers waiting.
func wideToken(f *asm.File) {
	temp := 0
	next := func() int {
		temp++
		return widePanels + (temp-1)%(16-widePanels)
	}
	const start = widePanels - 1 // the last sum, which is written last
	f.P("VPBROADCASTD %d(DX), Y%d", wideRow*wideStart, start)
	add := func() {}
	for g := range 8 {
		f.P("MOVBLZX %d(DX), AX", wideRow*(wideTurned+g/4)+g%4)
		sizes, signs := next(), next()
		f.P("VPBROADCASTD %d(DX), Y%d\nVPBROADCASTD %d(DX), Y%d", wideWord(g, 0), sizes, wideWord(g, 1), signs)
		var dot [widePanels]int
		for p := range widePanels {
			dot[p] = next()
			f.P("VPMADDUBSW %d(R9)(AX*1), Y%d, Y%d", wideVariants+32*4*(8*p+g), sizes, dot[p])
		}
		add()
		add = func() {
			for _, d := range dot {
				f.P("VPMADDWD Y%d, Y%d, Y%d", signs, d, d)
			}
			for p, d := range dot {
				before := p
				if g == 0 {
					before = start
				}
				f.P("VPADDD Y%d, Y%d, Y%d", d, before, p)
			}
		}
	}
	add()
	d := next()
	f.P("VBROADCASTSS %d(DX), Y%d", wideRow*wideScale, d)
	for p := range widePanels {
		f.P("VCVTDQ2PS Y%d, Y%d\nVMULPS %d(R9), Y%d, Y%d", p, p, wideScales+32*p, p, p)
		f.P("VFMADD213PS %d(BX), Y%d, Y%d\nVMOVUPS Y%d, %d(BX)", 32*p, d, p, p, 32*p)
	}
}

// spread writes the function that makes the wide form of a packed tile. A register holds a word of all tokens, and
// two lanes too many.
func spread(f *asm.File) {
	words := func(name string, word uint64) { f.Data(name, word, word, word, word) }
	words("turnedBits", 0x0040002000400020)
	f.Func("spreadWide", "(dst, src *byte, nblk int)", 24,
		"writes the wide form of nblk blocks of a packed tile, at level AVX2.")
	f.P("MOVQ dst+0(FP), DI\nMOVQ src+8(FP), SI\nMOVQ nblk+16(FP), CX")
	f.P("VMOVDQU ones<>(SB), Y15\nVMOVDQU turnedBits<>(SB), Y14")
	f.Label("block")
	f.P("VMOVDQU %d(SI), X0\nVMOVDQU X0, %d(DI)\nMOVQ %d(SI), AX\nMOVQ AX, %d(DI)",
		wideRow*actScale, wideRow*wideScale, wideRow*actScale+16, wideRow*wideScale+16)
	f.P("VPXOR Y12, Y12, Y12") // what turned weights lack
	put := func(y, at int) {
		f.P("VMOVDQU X%d, %d(DI)\nVEXTRACTI128 $1, Y%d, X%d\nVMOVQ X%d, %d(DI)", y, at, y, y, y, at+16)
	}
	for g := range 8 {
		f.P("VMOVDQU %d(SI), Y0", wideRow*(actQuants+g))
		f.P("VPSLLW $8, Y0, Y1\nVPSRAW $15, Y1, Y2") // -1 where the first is negative
		f.P("VPXOR Y0, Y1, Y3\nVPSRAW $15, Y3, Y3")  // -1 where the signs differ
		f.P("VPSRAW $8, Y0, Y4\nVPAND Y3, Y4, Y4")   // the second, where they differ
		f.P("VPSUBW Y4, Y12, Y12")
		f.P("VPAND Y14, Y3, Y3\nVPMADDWD Y15, Y3, Y3")
		if g%4 == 0 {
			f.P("VMOVDQA Y3, Y11")
		} else {
			f.P("VPSLLD $%d, Y3, Y3\nVPOR Y3, Y11, Y11", 8*(g%4))
		}
		if g%4 == 3 {
			put(11, wideRow*(wideTurned+g/4))
		}
		f.P("VPABSB Y0, Y0")
		put(0, wideWord(g, 0))
		f.P("VPOR Y15, Y2, Y2")
		put(2, wideWord(g, 1))
	}
	f.P("VPMADDWD Y15, Y12, Y12")
	put(12, wideRow*wideStart)
	f.P("ADDQ $%d, SI\nADDQ $%d, DI\nDECQ CX\nJNZ block\nVZEROUPPER\nRET", plainTile, wideTile)
}
