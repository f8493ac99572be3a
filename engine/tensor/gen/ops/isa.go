package main

import "fmt"

// isa is one level of instructions.
type isa struct {
	name  string // suffix of function names
	reg   string // letter of the vector registers
	lanes int    // float32s in one of them
	regs  int    // number of vector registers
	wide  bool   // AVX-512: masks, embedded broadcasts
}

var (
	avx2   = isa{name: "AVX2", reg: "Y", lanes: 8, regs: 16}
	avx512 = isa{name: "AVX512", reg: "Z", lanes: 16, regs: 32, wide: true}
)

// v names vector register i.
func (s isa) v(i int) string {
	if i >= s.regs {
		panic(fmt.Sprintf("%s has no vector register %d", s.name, i))
	}
	return fmt.Sprintf("%s%d", s.reg, i)
}

// bytes returns the size of a vector register.
func (s isa) bytes() int { return 4 * s.lanes }

// zero returns the instruction that clears register r.
func (s isa) zero(r string) string {
	if s.wide {
		return fmt.Sprintf("VPXORD %s, %s, %s", r, r, r)
	}
	return fmt.Sprintf("VXORPS %s, %s, %s", r, r, r)
}
