// Quant writes the assembly kernels on block-quantised weights. The layouts and
// the order of accumulation are those of the package comment of engine/tensor.
package main

import (
	"errors"
	"fmt"
	"log"

	"onebit/engine/tensor/gen/asm"
)

// Words of an activation block, in units of N words: keep in step with
// activation.go.
const (
	actScale = iota
	actSum
	actOff8
	actOff16
	actOff128
	actOffA
	actOffB
	actQuants
	actWords = actQuants + 8
)

// format describes a packed weight format.
type format struct {
	name  string
	bits  int  // 4, 5, 6 or 8 bits a weight
	super bool // blocks of 256 with a header: a K type
	low   bool // has a minimum
	start int  // activation word that the dot product starts at, 0 for none
}

var formats = []format{
	{"Q40", 4, false, false, actOff8},
	{"Q41", 4, false, true, 0},
	{"Q50", 5, false, false, actOff16},
	{"Q51", 5, false, true, 0},
	{"Q80", 8, false, false, actOff128},
	{"Q4K", 4, true, true, 0},
	{"Q5K", 5, true, true, 0},
	{"Q6K", 6, true, false, actOffA},
}

// upper returns the byte offset of the bits above the fourth, in a block of R rows.
func (f format) upper(R int) int {
	if f.low && !f.super {
		return 4 * R
	}
	return 2 * R
}

// quants returns the byte offset of the nibbles, or of whole 8-bit quants.
func (f format) quants(R int) int {
	if f.bits == 8 {
		return f.upper(R)
	}
	return f.upper(R) + 4*R*(f.bits-4)
}

// block returns the bytes of a block of R rows.
func (f format) block(R int) int { return f.upper(R) + 4*R*f.bits }

// head returns the bytes of a header of R rows.
func (f format) head(R int) int {
	switch {
	case f.bits == 6:
		return 2 * R
	case f.super:
		return 4 * R
	}
	return 0
}

const signature = "(w, a *byte, c *float32, nblk, npanel, ldc, ahead int)"

// begin opens a kernel and its loops over panels and blocks. In a block SI
// points to the weights, DX to the activations, R13 to the header.
func begin(f *asm.File, q format, level string, R, n, frame int, constants, clearAcc func()) {
	f.FuncFrame(fmt.Sprintf("mul%sx%dn%d", q.name, R, n), signature, frame, 56,
		fmt.Sprintf("is the %s quantKernel of %s for %d tokens.", level, q.name, n))
	f.P("MOVQ w+0(FP), SI\nMOVQ a+8(FP), R8\nMOVQ c+16(FP), DI\nMOVQ nblk+24(FP), R9")
	f.P("MOVQ npanel+32(FP), R10\nMOVQ ldc+40(FP), R11\nMOVQ ahead+48(FP), R12")
	constants()
	f.Label("panel")
	f.P("MOVQ R8, DX\nMOVQ R9, CX")
	clearAcc()
	if q.super {
		f.Label("super")
		f.P("MOVQ SI, R13\nADDQ $%d, SI\nMOVQ $8, AX", q.head(R))
	}
	f.Label("block")
	for at := 0; at < q.block(R); at += 64 {
		f.P("PREFETCHT0 %d(SI)(R12*1)", at)
	}
}

// end closes the loops. store emits the store of token t to BX.
func end(f *asm.File, q format, R, n int, store func(t int)) {
	f.P("ADDQ $%d, SI\nADDQ $%d, DX", q.block(R), 4*n*actWords)
	if q.super {
		f.P("DECQ AX\nJNZ block\nSUBQ $8, CX\nJNZ super")
	} else {
		f.P("DECQ CX\nJNZ block")
	}
	f.P("MOVQ DI, BX")
	for t := range n {
		store(t)
		if t < n-1 {
			f.P("ADDQ R11, BX")
		}
	}
	f.P("ADDQ $%d, DI\nDECQ R10\nJNZ panel\nVZEROUPPER\nRET", 4*R)
}

// vendor writes the function that tells who made the processor.
func vendor(f *asm.File) {
	f.Func("vendor", "() (name [3]uint32)", 12, "returns the name of the processor's maker, 12 letters, from CPUID.")
	f.P("XORL AX, AX\nXORL CX, CX\nCPUID\nMOVL BX, name_0+0(FP)\nMOVL DX, name_1+4(FP)\nMOVL CX, name_2+8(FP)\nRET")
}

// table writes the Go function that lists the kernels of a level.
func table(f *asm.File, level string, R int, tiles []int) {
	f.Go("\nfunc quantKernels%s() (k quantKernels) {\n", level)
	for _, q := range formats {
		f.Go("k[%s_%s] = quantTiles{", q.name[:2], q.name[2:])
		for _, n := range tiles {
			f.Go("%d: mul%sx%dn%d, ", n, q.name, R, n)
		}
		f.Go("}\n")
	}
	f.Go("return k\n}\n")
}

func main() {
	if err := errors.Join(avx512("quant_avx512_amd64"), avx2("quant_avx2_amd64")); err != nil {
		log.Fatal(err)
	}
}
