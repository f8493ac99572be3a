package main

import "onebit/engine/tensor/gen/asm"

var tiles2 = []int{1, 2, 3, 4, 6}

// kernel2 writes one AVX2 kernel. VPMADDUBSW multiplies unsigned weights by
// signed activations and adds pairs to 16 bits, and the sums of a block stay in
// 16 bits: 4-bit weights cannot overflow (15*127*16 = 30480), and from 5- and
// 6-bit weights the half of their range is subtracted by way of the sums' start
// value, so that the true sum fits (16*127*16 and 32*127*8 are both 32512) and
// wrapping on the way there does no harm. 8-bit weights go as two 4-bit halves.
//
// Registers: Y0.. the accumulators, then the sums. Six tokens of 8-bit weights
// need twelve sums, so their accumulators lie on the stack.
type kernel2 struct {
	*asm.File
	format
	n int
}

const (
	weights2 = 12
	product2 = 13
	other2   = 14
	mask2    = 15
)

func avx2(base string) error {
	f := asm.New("gen/quant")
	repeat := func(name string, word uint64) { f.Data(name, word, word, word, word) }
	repeat("low4", 0x0f0f0f0f0f0f0f0f)
	repeat("bit5", 0x1010101010101010)
	repeat("bits56", 0x3030303030303030)
	repeat("ones", 0x0001000100010001)
	repeat("sixteens", 0x0010001000100010)
	repeat("sixteen", 0x4180000041800000) // float32 16
	for _, q := range formats {
		for _, n := range tiles2 {
			k := kernel2{f, q, n}
			k.write()
		}
	}
	wide(f)
	quantizers(f, "AVX2", true)
	spread(f)
	vendor(f)
	table(f, "AVX2", 8, tiles2)
	return f.Write("tensor", base)
}

// stacked reports whether the accumulators lie on the stack.
func (k kernel2) stacked() bool { return k.bits == 8 && k.n == 6 }

// sum returns the register of token t's sums; part 1 are those of the low
// halves of 8-bit weights.
func (k kernel2) sum(t, part int) int {
	if k.stacked() {
		return part*k.n + t
	}
	return (1+part)*k.n + t
}

func (k kernel2) write() {
	const R = 8
	frame := 0
	if k.stacked() {
		frame = 32 * k.n
	}
	begin(k.File, k.format, "AVX2", R, k.n, frame, k.constants, func() {
		if k.stacked() {
			k.P("VPXOR Y%d, Y%d, Y%d", product2, product2, product2)
		}
		for t := range k.n {
			if k.stacked() {
				k.P("VMOVUPS Y%d, acc%d-%d(SP)", product2, t, 32*(t+1))
			} else {
				k.P("VPXOR Y%d, Y%d, Y%d", t, t, t)
			}
		}
	})
	switch k.bits {
	case 6:
		k.half(0)
		k.half(1)
	case 8:
		k.bytes()
		k.finish()
	case 5:
		k.fives()
		k.finish()
	default:
		k.nibbles()
		k.finish()
	}
	end(k.File, k.format, R, k.n, func(t int) {
		if k.stacked() {
			k.P("VMOVUPS acc%d-%d(SP), Y%d", t, 32*(t+1), t)
		}
		k.P("VMOVUPS Y%d, (BX)", t)
	})
}

func (k kernel2) constants() {
	if k.bits < 8 {
		k.P("VMOVDQU low4<>(SB), Y%d", mask2)
	}
	if k.bits == 6 {
		k.P("VMOVDQU bits56<>(SB), Y%d", other2)
	}
}

// start gives the sums their first value.
func (k kernel2) start(word, part int) {
	for t := range k.n {
		if s := k.sum(t, part); word == 0 {
			k.P("VPXOR Y%d, Y%d, Y%d", s, s, s)
		} else {
			k.P("VPBROADCASTD %d(DX), Y%d", 4*(word*k.n+t), s)
		}
	}
}

// dots adds the products of group g, decoded in register w.
func (k kernel2) dots(w, g int) {
	p := product2
	for t := range k.n {
		k.P("VPBROADCASTD %d(DX), Y%d", 4*((actQuants+g)*k.n+t), p)
		k.P("VPMADDUBSW Y%d, Y%d, Y%d", p, w, p)
		k.P("VPADDW Y%d, Y%d, Y%d", p, k.sum(t, 0), k.sum(t, 0))
	}
}

// shift shifts the bytes of a register left, or right if by is negative; the
// bits that cross from byte to byte are masked away after it.
func (k kernel2) shift(by, from, to int) {
	switch {
	case by > 0:
		k.P("VPSLLW $%d, Y%d, Y%d", by, from, to)
	case by < 0:
		k.P("VPSRLW $%d, Y%d, Y%d", -by, from, to)
	}
}

// nibbles computes the sums of 4-bit weights.
func (k kernel2) nibbles() {
	const lo, hi = weights2, other2
	k.start(k.format.start, 0)
	for j := range 4 {
		k.P("VMOVDQU %d(SI), Y%d", k.quants(8)+32*j, lo)
		k.P("VPSRLW $4, Y%d, Y%d", lo, hi)
		k.P("VPAND Y%d, Y%d, Y%d\nVPAND Y%d, Y%d, Y%d", mask2, lo, lo, mask2, hi, hi)
		k.dots(lo, j)
		k.dots(hi, j+4)
	}
}

// nibble loads four bits of the weights of group g.
func (k kernel2) nibble(g int) {
	k.P("VMOVDQU %d(SI), Y%d", k.quants(8)+32*(g%4), weights2)
	k.shift(-(g / 4 * 4), weights2, weights2)
	k.P("VPAND Y%d, Y%d, Y%d", mask2, weights2, weights2)
}

// fives computes the sums of 5-bit weights.
func (k kernel2) fives() {
	k.start(actOff16, 0)
	k.P("VMOVDQU %d(SI), Y%d", k.upper(8), other2)
	for g := range 8 {
		k.nibble(g)
		from := product2
		if g == 4 {
			from = other2
		}
		k.shift(4-g, other2, from)
		k.P("VPAND bit5<>(SB), Y%d, Y%d", from, product2)
		k.P("VPOR Y%d, Y%d, Y%d", product2, weights2, weights2)
		k.dots(weights2, g)
	}
}

// bytes computes the sums of 8-bit weights, stored plus 128: of their high
// halves less 8, and of their low halves.
func (k kernel2) bytes() {
	const hi, lo = weights2, other2
	const product, product1 = product2, mask2 // no mask is kept in a register
	k.start(actOff8, 0)
	k.start(0, 1)
	for g := range 8 {
		k.P("VMOVDQU %d(SI), Y%d", k.quants(8)+32*g, lo)
		k.P("VPSRLW $4, Y%d, Y%d", lo, hi)
		k.P("VPAND low4<>(SB), Y%d, Y%d\nVPAND low4<>(SB), Y%d, Y%d", hi, hi, lo, lo)
		for t := range k.n {
			k.P("VPBROADCASTD %d(DX), Y%d", 4*((actQuants+g)*k.n+t), product)
			k.P("VPMADDUBSW Y%d, Y%d, Y%d", product, hi, product1)
			k.P("VPADDW Y%d, Y%d, Y%d", product1, k.sum(t, 0), k.sum(t, 0))
			k.P("VPMADDUBSW Y%d, Y%d, Y%d", product, lo, product)
			k.P("VPADDW Y%d, Y%d, Y%d", product, k.sum(t, 1), k.sum(t, 1))
		}
	}
	for t := range k.n {
		hi, lo := k.sum(t, 0), k.sum(t, 1)
		k.P("VPMADDWD sixteens<>(SB), Y%d, Y%d\nVPMADDWD ones<>(SB), Y%d, Y%d", hi, hi, lo, lo)
		k.P("VPADDD Y%d, Y%d, Y%d", lo, hi, hi)
	}
}

// half computes and scales half a Q6_K block: 16 columns, groups 4h to 4h+3.
func (k kernel2) half(h int) {
	const R = 8
	k.start(actOffA+h, 0)
	for i := range 4 {
		g := 4*h + i
		k.nibble(g)
		k.P("VMOVDQU %d(SI), Y%d", k.upper(R)+4*R*(g%2), product2)
		k.shift(4-g/2*2, product2, product2)
		k.P("VPAND Y%d, Y%d, Y%d", other2, product2, product2)
		k.P("VPOR Y%d, Y%d, Y%d", product2, weights2, weights2)
		k.dots(weights2, g)
	}
	s, x := weights2, product2
	k.P("VPMOVSXBD %d(SI), Y%d\nVCVTDQ2PS Y%d, Y%d", R*h, s, s, s)
	k.P("VCVTPH2PS (R13), Y%d\nVMULPS Y%d, Y%d, Y%d", x, x, s, s)
	for t := range k.n {
		d := k.sum(t, 0)
		k.P("VPMADDWD ones<>(SB), Y%d, Y%d\nVCVTDQ2PS Y%d, Y%d", d, d, d, d)
		k.P("VMULPS Y%d, Y%d, Y%d", s, d, d)
		k.P("VBROADCASTSS %d(DX), Y%d\nVFMADD231PS Y%d, Y%d, Y%d", 4*(actScale*k.n+t), x, x, d, t)
	}
}

// scales loads the scale of a block, and the minimum for formats with one.
// For 5-bit weights the minimum makes up for the 16 that the sums lack.
func (k kernel2) scales(s, m, x int) {
	const R = 8
	if k.super {
		k.P("VPMOVZXBD (SI), Y%d\nVCVTDQ2PS Y%d, Y%d", s, s, s)
		k.P("VPMOVZXBD %d(SI), Y%d\nVCVTDQ2PS Y%d, Y%d", R, m, m, m)
		k.P("VCVTPH2PS (R13), Y%d\nVMULPS Y%d, Y%d, Y%d", x, x, s, s)
		k.P("VCVTPH2PS %d(R13), Y%d\nVMULPS Y%d, Y%d, Y%d", 2*R, x, x, m, m)
		if k.bits == 5 {
			k.P("VFNMADD231PS sixteen<>(SB), Y%d, Y%d", s, m)
		}
		return
	}
	k.P("VCVTPH2PS (SI), Y%d", s)
	if k.low {
		k.P("VCVTPH2PS %d(SI), Y%d", 2*R, m)
		if k.bits == 5 {
			k.P("VFMADD231PS sixteen<>(SB), Y%d, Y%d", s, m)
		}
	}
}

// finish scales the sums of a block and adds them to the accumulators.
func (k kernel2) finish() {
	s, m, x := weights2, other2, product2
	k.scales(s, m, x)
	op := "VFMADD231PS"
	if k.super {
		op = "VFNMADD231PS" // minima are stored as numbers to subtract
	}
	for t := range k.n {
		d, acc := k.sum(t, 0), t
		if k.stacked() {
			acc = other2
			k.P("VMOVUPS acc%d-%d(SP), Y%d", t, 32*(t+1), acc)
		}
		if k.bits != 8 {
			k.P("VPMADDWD ones<>(SB), Y%d, Y%d", d, d)
		}
		k.P("VCVTDQ2PS Y%d, Y%d\nVMULPS Y%d, Y%d, Y%d", d, d, s, d, d)
		k.P("VBROADCASTSS %d(DX), Y%d\nVFMADD231PS Y%d, Y%d, Y%d", 4*(actScale*k.n+t), x, x, d, acc)
		if k.low {
			k.P("VBROADCASTSS %d(DX), Y%d\n%s Y%d, Y%d, Y%d", 4*(actSum*k.n+t), x, op, x, m, acc)
		}
		if k.stacked() {
			k.P("VMOVUPS Y%d, acc%d-%d(SP)", acc, t, 32*(t+1))
		}
	}
}
