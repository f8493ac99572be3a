package main

import "onebit/engine/tensor/gen/asm"

var tiles512 = []int{1, 2, 3, 4, 6, 8, 12}

// kernel512 writes one AVX-512 VNNI kernel. Registers: Z0.. the accumulators,
// then one or two dot products for each token, four temporaries, two masks.
type kernel512 struct {
	*asm.File
	format
	n      int
	chains int // dot products for each token, to hide their latency
	temp   int // first of the temporaries
}

const (
	mask512  = 31 // the low four bits of a byte
	upper512 = 30 // the fifth bit, or the fifth and sixth
)

func avx512(base string) error {
	f := asm.New("gen/quant")
	for _, q := range formats {
		for _, n := range tiles512 {
			k := kernel512{File: f, format: q, n: n, chains: 1, temp: 24}
			if n < 4 {
				k.chains = 2
			}
			k.write()
		}
	}
	quantizers(f, "AVX512", constants512, quantize512)
	table(f, "AVX512", 16, tiles512)
	return f.Write("tensor", base)
}

// dot returns the register of token t's dot product, for group g.
func (k kernel512) dot(t, g int) int { return k.n + t*k.chains + g%k.chains }

func (k kernel512) write() {
	const R = 16
	begin(k.File, k.format, "AVX-512", R, k.n, 0, k.constants, func() {
		for t := range k.n {
			k.P("VPXORD Z%d, Z%d, Z%d", t, t, t)
		}
	})
	if k.bits == 6 {
		k.sixes()
	} else {
		k.start(k.format.start)
		switch k.bits {
		case 8:
			for g := range 8 {
				k.P("VMOVDQU64 %d(SI), Z%d", k.quants(R)+64*g, k.temp+g%4)
				k.dots(k.temp+g%4, g)
			}
		default:
			k.nibbles()
		}
		k.finish()
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

// start gives the dot products their first value.
func (k kernel512) start(word int) {
	for t := range k.n {
		if d := k.dot(t, 0); word == 0 {
			k.P("VPXORD Z%d, Z%d, Z%d", d, d, d)
		} else {
			k.P("VPBROADCASTD %d(DX), Z%d", 4*(word*k.n+t), d)
		}
		if k.chains == 2 {
			d := k.dot(t, 1)
			k.P("VPXORD Z%d, Z%d, Z%d", d, d, d)
		}
	}
}

// dots adds the products of group g, decoded in register w, for every token.
func (k kernel512) dots(w, g int) {
	for t := range k.n {
		k.P("VPDPBUSD.BCST %d(DX), Z%d, Z%d", 4*((actQuants+g)*k.n+t), w, k.dot(t, g))
	}
}

// nibbles computes the dot products of 4- and 5-bit weights.
func (k kernel512) nibbles() {
	const R = 16
	lo, hi, bit := k.temp, k.temp+1, k.temp+2
	fifth := k.temp + 3
	if k.bits == 5 {
		k.P("VMOVDQU64 %d(SI), Z%d", k.upper(R), fifth)
	}
	for j := range 4 {
		if k.bits == 4 { // two pairs of temporaries in turn
			lo, hi = k.temp+j%2*2, k.temp+j%2*2+1
		}
		k.P("VMOVDQU64 %d(SI), Z%d", k.quants(R)+64*j, lo)
		k.P("VPSRLW $4, Z%d, Z%d", lo, hi)
		k.P("VPANDD Z%d, Z%d, Z%d", mask512, lo, lo)
		k.P("VPANDD Z%d, Z%d, Z%d", mask512, hi, hi)
		if k.bits == 5 {
			k.P("VPSLLW $%d, Z%d, Z%d", 4-j, fifth, bit)
			k.or(bit, lo)
		}
		k.dots(lo, j)
		if k.bits == 5 {
			if j == 0 {
				k.or(fifth, hi)
			} else {
				k.P("VPSRLW $%d, Z%d, Z%d", j, fifth, bit)
				k.or(bit, hi)
			}
		}
		k.dots(hi, j+4)
	}
}

// or adds the upper bits of a register to decoded nibbles: to |= from & mask.
func (k kernel512) or(from, to int) {
	k.P("VPTERNLOGD $0xf8, Z%d, Z%d, Z%d", upper512, from, to)
}

// sixes computes a Q6_K block. All its weights are decoded first, so that one
// token after the other can have both dot products scaled and joined; the
// processor overlaps the tokens.
func (k kernel512) sixes() {
	const R, w, scale, u, bit = 16, 12, 20, 22, 24
	k.P("VMOVDQU64 %d(SI), Z%d\nVMOVDQU64 %d(SI), Z%d", k.upper(R), u, k.upper(R)+64, u+1)
	for h := range 2 {
		s := scale + h
		k.P("VPMOVSXBD %d(SI), Z%d\nVCVTDQ2PS Z%d, Z%d", R*h, s, s, s)
		k.P("VCVTPH2PS (R13), Z%d\nVMULPS Z%d, Z%d, Z%d", bit, bit, s, s)
	}
	for j := range 4 {
		lo, hi := w+j, w+j+4
		k.P("VMOVDQU64 %d(SI), Z%d\nVPSRLW $4, Z%d, Z%d", k.quants(R)+64*j, lo, lo, hi)
		k.P("VPANDD Z%d, Z%d, Z%d\nVPANDD Z%d, Z%d, Z%d", mask512, lo, lo, mask512, hi, hi)
		k.P("VPSLLW $%d, Z%d, Z%d", 4-j/2*2, u+j%2, bit)
		k.or(bit, lo)
		if j < 2 {
			k.or(u+j, hi)
		} else {
			k.P("VPSRLW $2, Z%d, Z%d", u+j%2, bit)
			k.or(bit, hi)
		}
	}
	for t := range k.n {
		a, b := u+t%4*2, u+t%4*2+1
		k.P("VPBROADCASTD %d(DX), Z%d\nVPBROADCASTD %d(DX), Z%d", 4*(actOffA*k.n+t), a, 4*(actOffB*k.n+t), b)
		for g := range 4 {
			k.P("VPDPBUSD.BCST %d(DX), Z%d, Z%d", 4*((actQuants+g)*k.n+t), w+g, a)
			k.P("VPDPBUSD.BCST %d(DX), Z%d, Z%d", 4*((actQuants+g+4)*k.n+t), w+g+4, b)
		}
		k.P("VCVTDQ2PS Z%d, Z%d\nVCVTDQ2PS Z%d, Z%d", a, a, b, b)
		k.P("VMULPS Z%d, Z%d, Z%d\nVFMADD231PS Z%d, Z%d, Z%d", scale, a, a, scale+1, b, a)
		k.P("VFMADD231PS.BCST %d(DX), Z%d, Z%d", 4*(actScale*k.n+t), a, t)
	}
}

// sum joins the chains of token t and converts the dot product to float.
func (k kernel512) sum(t int) int {
	d := k.dot(t, 0)
	if k.chains == 2 {
		k.P("VPADDD Z%d, Z%d, Z%d", k.dot(t, 1), d, d)
	}
	k.P("VCVTDQ2PS Z%d, Z%d", d, d)
	return d
}

// finish scales the dot products of a block and adds them to the accumulators.
func (k kernel512) finish() {
	const R = 16
	s, m, x := k.temp, k.temp+1, k.temp+2
	op := "VFMADD231PS"
	switch {
	case k.super:
		op = "VFNMADD231PS" // minima are stored as numbers to subtract
		k.P("VPMOVZXBD (SI), Z%d\nVCVTDQ2PS Z%d, Z%d", s, s, s)
		k.P("VPMOVZXBD %d(SI), Z%d\nVCVTDQ2PS Z%d, Z%d", R, m, m, m)
		k.P("VCVTPH2PS (R13), Z%d\nVMULPS Z%d, Z%d, Z%d", x, x, s, s)
		k.P("VCVTPH2PS %d(R13), Z%d\nVMULPS Z%d, Z%d, Z%d", 2*R, x, x, m, m)
	default:
		k.P("VCVTPH2PS (SI), Z%d", s)
		if k.low {
			k.P("VCVTPH2PS %d(SI), Z%d", 2*R, m)
		}
	}
	for t := range k.n {
		d := k.sum(t)
		k.P("VMULPS Z%d, Z%d, Z%d", s, d, d)
		k.P("VFMADD231PS.BCST %d(DX), Z%d, Z%d", 4*(actScale*k.n+t), d, t)
		if k.low {
			k.P("%s.BCST %d(DX), Z%d, Z%d", op, 4*(actSum*k.n+t), m, t)
		}
	}
}
