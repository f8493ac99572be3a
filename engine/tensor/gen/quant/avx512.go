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
		k.half(0)
		k.half(1)
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

// half computes and scales half a Q6_K block: 16 columns, groups 4h to 4h+3.
func (k kernel512) half(h int) {
	const R = 16
	k.start(actOffA + h)
	for i := range 4 {
		g := 4*h + i
		w, up := k.temp+i%2*2, k.temp+i%2*2+1
		k.P("VMOVDQU64 %d(SI), Z%d", k.quants(R)+64*i, w)
		if h == 1 {
			k.P("VPSRLW $4, Z%d, Z%d", w, w)
		}
		k.P("VPANDD Z%d, Z%d, Z%d", mask512, w, w)
		k.P("VMOVDQU64 %d(SI), Z%d", k.upper(R)+64*(g%2), up)
		switch g / 2 {
		case 0:
			k.P("VPSLLW $4, Z%d, Z%d", up, up)
		case 1:
			k.P("VPSLLW $2, Z%d, Z%d", up, up)
		case 3:
			k.P("VPSRLW $2, Z%d, Z%d", up, up)
		}
		k.or(up, w)
		k.dots(w, g)
	}
	s, scale := k.temp, k.temp+1
	k.P("VPMOVSXBD %d(SI), Z%d\nVCVTDQ2PS Z%d, Z%d", R*h, s, s, s)
	k.P("VCVTPH2PS (R13), Z%d\nVMULPS Z%d, Z%d, Z%d", scale, scale, s, s)
	for t := range k.n {
		d := k.sum(t)
		k.P("VMULPS Z%d, Z%d, Z%d", s, d, d)
		k.P("VFMADD231PS.BCST %d(DX), Z%d, Z%d", 4*(actScale*k.n+t), d, t)
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
