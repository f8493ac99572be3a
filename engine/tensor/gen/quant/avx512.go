package main

import "onebit/engine/tensor/gen/asm"

var tiles512 = []int{1, 2, 3, 4, 6, 8, 12}

// kernel512 writes one AVX-512 VNNI kernel. It decodes all weights of a block,
// then takes the tokens two by two. The processor overlaps the pairs; each dot
// product goes in two chains, the two halves of the block, to halve its latency.
type kernel512 struct {
	*asm.File
	format
	n int
}

// Registers: Z0.. the accumulators, one a token, then these.
const (
	weights512 = 12 // eight groups of decoded weights
	scale512   = 20 // scales of the block, or of both halves
	low512     = 21 // minima, or the scales of the second half
	temp512    = 22 // eight temporaries
	upper512   = 30 // mask of the fifth bit, or the fifth and sixth
	mask512    = 31 // mask of the low four bits of a byte
)

func avx512(base string) error {
	f := asm.New("gen/quant")
	for _, q := range formats {
		for _, n := range tiles512 {
			kernel512{f, q, n}.write()
		}
	}
	quantizers(f, "AVX512", false)
	table(f, "AVX512", 16, tiles512)
	return f.Write("tensor", base)
}

func (k kernel512) write() {
	const R = 16
	begin(k.File, k.format, "AVX-512", R, k.n, 0, k.constants, func() {
		for t := range k.n {
			k.P("VPXORD Z%d, Z%d, Z%d", t, t, t)
		}
	})
	k.scales()
	k.decode()
	for t := 0; t < k.n; t += 2 {
		k.tokens(t, min(t+2, k.n))
	}
	end(k.File, k.format, R, k.n, func(t int) { k.P("VMOVUPS Z%d, (BX)", t) })
}

func (k kernel512) constants() {
	if k.bits == 8 {
		return
	}
	k.P("MOVL $0x0f0f0f0f, AX\nVPBROADCASTD AX, Z%d", mask512)
	switch k.bits {
	case 5:
		k.P("MOVL $0x10101010, AX\nVPBROADCASTD AX, Z%d", upper512)
	case 6:
		k.P("MOVL $0x30303030, AX\nVPBROADCASTD AX, Z%d", upper512)
	}
}

// scales loads the scales of a block, and the minima of formats with some.
func (k kernel512) scales() {
	const R, s, m, x = 16, scale512, low512, temp512
	switch {
	case k.bits == 6:
		k.P("VCVTPH2PS (R13), Z%d", x)
		k.P("VPMOVSXBD (SI), Z%d\nVCVTDQ2PS Z%d, Z%d\nVMULPS Z%d, Z%d, Z%d", s, s, s, x, s, s)
		k.P("VPMOVSXBD %d(SI), Z%d\nVCVTDQ2PS Z%d, Z%d\nVMULPS Z%d, Z%d, Z%d", R, m, m, m, x, m, m)
	case k.super:
		k.P("VCVTPH2PS (R13), Z%d\nVCVTPH2PS %d(R13), Z%d", x, 2*R, x+1)
		k.P("VPMOVZXBD (SI), Z%d\nVCVTDQ2PS Z%d, Z%d\nVMULPS Z%d, Z%d, Z%d", s, s, s, x, s, s)
		k.P("VPMOVZXBD %d(SI), Z%d\nVCVTDQ2PS Z%d, Z%d\nVMULPS Z%d, Z%d, Z%d", R, m, m, m, x+1, m, m)
	default:
		k.P("VCVTPH2PS (SI), Z%d", s)
		if k.low {
			k.P("VCVTPH2PS %d(SI), Z%d", 2*R, m)
		}
	}
}

// decode loads the eight groups of weights.
func (k kernel512) decode() {
	const R, w, up, bit = 16, weights512, temp512, temp512 + 2
	if k.bits == 8 {
		for g := range 8 {
			k.P("VMOVDQU64 %d(SI), Z%d", k.quants(R)+64*g, w+g)
		}
		return
	}
	for i := range k.bits - 4 {
		k.P("VMOVDQU64 %d(SI), Z%d", k.upper(R)+64*i, up+i)
	}
	for j := range 4 {
		lo, hi := w+j, w+j+4
		k.P("VMOVDQU64 %d(SI), Z%d\nVPSRLW $4, Z%d, Z%d", k.quants(R)+64*j, lo, lo, hi)
		k.P("VPANDD Z%d, Z%d, Z%d\nVPANDD Z%d, Z%d, Z%d", mask512, lo, lo, mask512, hi, hi)
		switch k.bits {
		case 5:
			k.or(up, 4-j, bit, lo)
			k.or(up, -j, bit+1, hi)
		case 6:
			k.or(up+j%2, 4-j/2*2, bit, lo)
			k.or(up+j%2, -j/2*2, bit+1, hi)
		}
	}
}

// or shifts upper bits left, or right if by is negative, and adds those under
// the mask to decoded nibbles.
func (k kernel512) or(from, by, temp, to int) {
	switch {
	case by > 0:
		k.P("VPSLLW $%d, Z%d, Z%d", by, from, temp)
	case by < 0:
		k.P("VPSRLW $%d, Z%d, Z%d", -by, from, temp)
	default:
		temp = from
	}
	k.P("VPTERNLOGD $0xf8, Z%d, Z%d, Z%d", upper512, temp, to)
}

// start gives a dot product its first value.
func (k kernel512) start(word, t, dot int) {
	if word == 0 {
		k.P("VPXORD Z%d, Z%d, Z%d", dot, dot, dot)
	} else {
		k.P("VPBROADCASTD %d(DX), Z%d", 4*(word*k.n+t), dot)
	}
}

// tokens multiplies the block by tokens from..to-1 and adds to the accumulators.
func (k kernel512) tokens(from, to int) {
	second := 0 // what the second half's chain starts at
	if k.bits == 6 {
		second = actOffB
	}
	chains := func(t int) (a, b int) { return temp512 + t%4*2, temp512 + t%4*2 + 1 }
	for t := from; t < to; t++ {
		a, b := chains(t)
		k.start(k.format.start, t, a)
		k.start(second, t, b)
	}
	for g := range 4 {
		for t := from; t < to; t++ {
			a, b := chains(t)
			k.P("VPDPBUSD.BCST %d(DX), Z%d, Z%d", 4*((actQuants+g)*k.n+t), weights512+g, a)
			k.P("VPDPBUSD.BCST %d(DX), Z%d, Z%d", 4*((actQuants+g+4)*k.n+t), weights512+g+4, b)
		}
	}
	for t := from; t < to; t++ {
		a, b := chains(t)
		if k.bits == 6 {
			k.P("VCVTDQ2PS Z%d, Z%d\nVCVTDQ2PS Z%d, Z%d", a, a, b, b)
			k.P("VMULPS Z%d, Z%d, Z%d\nVFMADD231PS Z%d, Z%d, Z%d", scale512, a, a, low512, b, a)
		} else {
			k.P("VPADDD Z%d, Z%d, Z%d\nVCVTDQ2PS Z%d, Z%d\nVMULPS Z%d, Z%d, Z%d", b, a, a, a, a, scale512, a, a)
		}
		k.P("VFMADD231PS.BCST %d(DX), Z%d, Z%d", 4*(actScale*k.n+t), a, t)
		if k.low {
			op := "VFMADD231PS"
			if k.super { // minima are stored as numbers to subtract
				op = "VFNMADD231PS"
			}
			k.P("%s.BCST %d(DX), Z%d, Z%d", op, 4*(actSum*k.n+t), low512, t)
		}
	}
}
