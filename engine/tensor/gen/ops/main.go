// Command ops generates the assembly of the float kernels, the element-wise
// operations and the processor queries of engine/tensor.
package main

import (
	"log"

	"onebit/engine/tensor/gen/asm"
)

func main() {
	log.SetFlags(0)
	if err := generate(); err != nil {
		log.Fatal(err)
	}
}

func generate() error {
	files := []struct {
		base string
		file *asm.File
	}{
		{"cpu_asm_amd64", cpu()},
		{"float_avx512_amd64", floats(avx512, []int{1, 2, 3, 4, 5, 6, 7, 8})},
		{"ops_avx512_amd64", elementwise(avx512)},
		{"ops_avx2_amd64", elementwise(avx2)},
		{"float_avx2_amd64", floats(avx2, []int{1, 2, 3, 4, 5, 6})},
	}
	for _, f := range files {
		if err := f.file.Write("tensor", f.base); err != nil {
			return err
		}
	}
	return nil
}

// cpu emits the queries of the processor.
func cpu() *asm.File {
	f := asm.New("gen/ops")
	f.Func("xgetbv", "() (state uint64)", 8, "returns XCR0, the register state that the operating system saves.")
	f.P("XORL CX, CX\nXGETBV\nSHLQ $32, DX\nORQ DX, AX\nMOVQ AX, state+0(FP)\nRET")
	f.Func("pause", "()", 0, "tells the processor that the thread spins.")
	f.P("PAUSE\nRET")
	return f
}
