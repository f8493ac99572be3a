package tensor

import "unsafe"

// panelPacker packs one panel. It trusts its sizes: PackRows has checked them.
//
// All go block by block and within a block row by row, so that the part of the
// panel being written stays in the first-level cache. They read and write
// unaligned little-endian words by pointer, because the slices' bounds checks
// would cost more than the work.
type panelPacker struct {
	dst      unsafe.Pointer // the panel, zeroed
	src      unsafe.Pointer // rows, one after another
	rowBytes int
	rows     int // rows present, at most R
	R        int
}

// packPanel packs up to R rows, which lie in src one after another. Rows that
// the matrix does not have keep dst's zeroes: weights of zero in every format,
// because their scales are zero.
func packPanel(m *Matrix, dst, src []byte, rowBytes int) {
	p := panelPacker{
		dst: unsafe.Pointer(unsafe.SliceData(dst)), src: unsafe.Pointer(unsafe.SliceData(src)),
		rowBytes: rowBytes, rows: len(src) / rowBytes, R: m.r,
	}
	switch m.typ {
	case F32:
		p.float32s(m.cols)
	case F16, BF16:
		p.float16s(m.cols)
	case Q8_0:
		p.q80()
	case Q4_0:
		p.legacy(1, false)
	case Q4_1:
		p.legacy(2, false)
	case Q5_0:
		p.legacy(1, true)
	case Q5_1:
		p.legacy(2, true)
	case Q4_K:
		p.q45k(false)
	case Q5_K:
		p.q45k(true)
	case Q6_K:
		p.q6k()
	}
}

func load8(p unsafe.Pointer, at int) uint8       { return *(*uint8)(unsafe.Add(p, at)) }
func load16(p unsafe.Pointer, at int) uint16     { return *(*uint16)(unsafe.Add(p, at)) }
func load32(p unsafe.Pointer, at int) uint32     { return *(*uint32)(unsafe.Add(p, at)) }
func load64(p unsafe.Pointer, at int) uint64     { return *(*uint64)(unsafe.Add(p, at)) }
func store8(p unsafe.Pointer, at int, v uint8)   { *(*uint8)(unsafe.Add(p, at)) = v }
func store16(p unsafe.Pointer, at int, v uint16) { *(*uint16)(unsafe.Add(p, at)) = v }
func store32(p unsafe.Pointer, at int, v uint32) { *(*uint32)(unsafe.Add(p, at)) = v }
func store64(p unsafe.Pointer, at int, v uint64) { *(*uint64)(unsafe.Add(p, at)) = v }

// float32s lays out [column][R], a cache line of each row at a time: rows a
// power of two apart would push each other out.
func (p panelPacker) float32s(cols int) {
	for from := 0; from < cols; from += 16 {
		for r := range p.rows {
			for k := from; k < min(from+16, cols); k++ {
				store32(p.dst, (k*p.R+r)*4, load32(p.src, r*p.rowBytes+k*4))
			}
		}
	}
}

// float16s lays out [column][R], 4 x 4 weights at a time.
func (p panelPacker) float16s(cols int) {
	const low, mid = 0xffff, 0xffff0000
	for r := 0; r < p.rows; r++ {
		k := 0
		for ; r+4 <= p.rows && k+4 <= cols; k += 4 {
			s := unsafe.Add(p.src, r*p.rowBytes+2*k)
			a, b := load64(s, 0), load64(s, p.rowBytes)
			c, d := load64(s, 2*p.rowBytes), load64(s, 3*p.rowBytes)
			t := unsafe.Add(p.dst, (k*p.R+r)*2)
			store64(t, 0, a&low|b<<16&mid|(c&low|d<<16&mid)<<32)
			store64(t, 2*p.R, a>>16&low|b&mid|(c>>16&low|d&mid)<<32)
			store64(t, 4*p.R, a>>32&low|b>>16&mid|(c>>32&low|d>>16&mid)<<32)
			store64(t, 6*p.R, a>>48|b>>32&mid|(c>>48|d>>32&mid)<<32)
		}
		last := r
		if k > 0 {
			last = r + 3
		}
		for ; k < cols; k++ {
			for i := r; i <= last; i++ {
				store16(p.dst, (k*p.R+i)*2, load16(p.src, i*p.rowBytes+2*k))
			}
		}
		r = last
	}
}

// q80 packs blocks of d and 32 int8, to which it adds 128.
func (p panelPacker) q80() {
	const flip = 0x80808080
	for b := range p.rowBytes / 34 {
		d := unsafe.Add(p.dst, b*34*p.R)
		for r := range p.rows {
			s := unsafe.Add(p.src, r*p.rowBytes+b*34)
			store16(d, 2*r, load16(s, 0))
			q := unsafe.Add(d, 2*p.R+4*r)
			for g := range 8 {
				store32(q, 4*p.R*g, load32(s, 2+4*g)^flip)
			}
		}
	}
}

// legacy packs the 32-blocks with nibbles: halves is the number of binary16
// numbers in front. Raw nibbles are in the panel's order already.
func (p panelPacker) legacy(halves int, fifth bool) {
	size, at := 2*halves+16, 2*halves
	if fifth {
		size, at = size+4, at+4
	}
	for b := range p.rowBytes / size {
		d := unsafe.Add(p.dst, b*size*p.R)
		for r := range p.rows {
			s := unsafe.Add(p.src, r*p.rowBytes+b*size)
			store16(d, 2*r, load16(s, 0))
			if halves == 2 {
				store16(d, 2*(p.R+r), load16(s, 2))
			}
			q := unsafe.Add(d, 2*halves*p.R+4*r)
			if fifth {
				store32(q, 0, spreadFifth(load32(s, at-4)))
				q = unsafe.Add(q, 4*p.R)
			}
			for j := range 4 {
				store32(q, 4*p.R*j, load32(s, at+4*j))
			}
		}
	}
}

// spreadFifth moves bit 4g+i to bit 8i+g: a transposition of 8x4 bits. Each
// product spreads four bits over four bytes.
func spreadFifth(b uint32) uint32 {
	const spread, ones = 1 | 1<<7 | 1<<14 | 1<<21, 0x01010101
	v := (b & 15) * spread & ones
	v |= (b >> 4 & 15) * spread & ones << 1
	v |= (b >> 8 & 15) * spread & ones << 2
	v |= (b >> 12 & 15) * spread & ones << 3
	v |= (b >> 16 & 15) * spread & ones << 4
	v |= (b >> 20 & 15) * spread & ones << 5
	v |= (b >> 24 & 15) * spread & ones << 6
	return v | b>>28*spread&ones<<7
}

// q45k packs 256-blocks with six-bit scales and minima.
func (p panelPacker) q45k(fifth bool) {
	size, block, at := 144, 18*p.R, 16
	if fifth {
		size, block, at = 176, 22*p.R, 48
	}
	for b := range p.rowBytes / size {
		head := unsafe.Add(p.dst, b*(4*p.R+8*block))
		blocks := unsafe.Add(head, 4*p.R)
		for r := range p.rows {
			s := unsafe.Add(p.src, r*p.rowBytes+b*size)
			store16(head, 2*r, load16(s, 0))
			store16(head, 2*(p.R+r), load16(s, 2))
			scale, low := scalesMins(s)
			for sub := range 8 {
				store8(blocks, sub*block+r, uint8(scale>>(8*sub)))
				store8(blocks, sub*block+p.R+r, uint8(low>>(8*sub)))
			}
			q := unsafe.Add(blocks, 2*p.R+4*r)
			if fifth {
				p.fifths(q, block, s)
				q = unsafe.Add(q, 4*p.R)
			}
			for sub := 0; sub < 8; sub += 2 {
				p.nibbles(unsafe.Add(q, sub*block), unsafe.Add(s, at+16*sub), 0)
				p.nibbles(unsafe.Add(q, (sub+1)*block), unsafe.Add(s, at+16*sub), 4)
			}
		}
	}
}

// scalesMins is scaleMin for all eight sub-blocks of the block at s, a byte each.
func scalesMins(s unsafe.Pointer) (scale, low uint64) {
	a, b, c := load32(s, 4), load32(s, 8), load32(s, 12)
	const six, four, two = 0x3f3f3f3f, 0x0f0f0f0f, 0x30303030
	scale = uint64(a&six) | uint64(c&four|a>>2&two)<<32
	low = uint64(b&six) | uint64(c>>4&four|b>>2&two)<<32
	return scale, low
}

// nibbles gathers 32 nibbles, the low (shift 0) or high (shift 4) halves of the
// 32 bytes at s, to four words: word j holds group j low and group j+4 high.
func (p panelPacker) nibbles(dst, s unsafe.Pointer, shift uint) {
	const mask = 0x0f0f0f0f0f0f0f0f
	v := load64(s, 0)>>shift&mask | load64(s, 16)>>shift&mask<<4
	store32(dst, 0, uint32(v))
	store32(dst, 4*p.R, uint32(v>>32))
	v = load64(s, 8)>>shift&mask | load64(s, 24)>>shift&mask<<4
	store32(dst, 8*p.R, uint32(v))
	store32(dst, 12*p.R, uint32(v>>32))
}

// fifths packs the fifth bits of the Q5_K block at s: bit sub of byte 4g+i goes
// to bit g of byte i of sub-block sub's word.
func (p panelPacker) fifths(dst unsafe.Pointer, block int, s unsafe.Pointer) {
	const ones = 0x0101010101010101
	a, b, c, d := load64(s, 16), load64(s, 24), load64(s, 32), load64(s, 40)
	for sub := range 8 {
		v := a&ones | b&ones<<2 | c&ones<<4 | d&ones<<6 // even groups, odd ones above
		store32(dst, sub*block, uint32(v)|uint32(v>>31))
		a, b, c, d = a>>1, b>>1, c>>1, d>>1
	}
}

// q6k packs 256-blocks of six-bit weights with int8 scales per 16.
func (p panelPacker) q6k() {
	const size = 210
	block := 26 * p.R
	for b := range p.rowBytes / size {
		head := unsafe.Add(p.dst, b*size*p.R)
		for r := range p.rows {
			s := unsafe.Add(p.src, r*p.rowBytes+b*size)
			store16(head, 2*r, load16(s, 208))
			for sub := range 8 {
				d := unsafe.Add(head, 2*p.R+sub*block)
				store8(d, r, load8(s, 192+2*sub))
				store8(d, p.R+r, load8(s, 193+2*sub))
				half, run := sub/4, sub%4
				q := unsafe.Add(d, 2*p.R+4*r)
				p.upper(q, unsafe.Add(s, 128+half*32), uint(2*run))
				p.nibbles(unsafe.Add(q, 8*p.R), unsafe.Add(s, half*64+run%2*32), uint(run/2*4))
			}
		}
	}
}

// upper packs the upper bits of a run of 32 weights, two bits at shift of the
// bytes at s: group j+2i goes to bits 2i of word j.
func (p panelPacker) upper(dst, s unsafe.Pointer, shift uint) {
	const mask = 0x0303030303030303
	v := load64(s, 0)>>shift&mask | load64(s, 8)>>shift&mask<<2 |
		load64(s, 16)>>shift&mask<<4 | load64(s, 24)>>shift&mask<<6
	store32(dst, 0, uint32(v))
	store32(dst, 4*p.R, uint32(v>>32))
}
