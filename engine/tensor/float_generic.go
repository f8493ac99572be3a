package tensor

import "unsafe"

// genericTile is the largest tile of the portable kernels.
const genericTile = 4

func genericFloatTable() floatTable {
	var f floatTable
	for n := 1; n <= genericTile; n++ {
		f.f32[n] = genericFloat(n, 4, func(dst []float32, w unsafe.Pointer) {
			copy(dst, unsafe.Slice((*float32)(w), len(dst)))
		})
		f.f16[n] = genericFloat(n, 2, func(dst []float32, w unsafe.Pointer) {
			for i, h := range unsafe.Slice((*uint16)(w), len(dst)) {
				dst[i] = halfToFloat(h)
			}
		})
		f.bf16[n] = genericFloat(n, 2, func(dst []float32, w unsafe.Pointer) {
			for i, h := range unsafe.Slice((*uint16)(w), len(dst)) {
				dst[i] = brainToFloat(h)
			}
		})
	}
	return f
}

// genericFloat returns the portable kernel for tiles of n tokens. widen turns
// weights of elem bytes into float32s; it is called for a few rows of k at a time.
func genericFloat(n, elem int, widen func(dst []float32, w unsafe.Pointer)) floatKernel {
	const r, step = 8, 32
	return func(c *float32, w *byte, x *float32, depth, panels, ldc, lda, stride, add int) {
		var wide [step * r]float32
		for p := range panels {
			panel := unsafe.Add(unsafe.Pointer(w), p*stride)
			for t := range n {
				if add == 0 {
					*row(c, t*ldc+4*r*p) = [r]float32{}
				}
			}
			for from := 0; from < depth; from += step {
				rows := min(step, depth-from)
				widen(wide[:rows*r], unsafe.Add(panel, from*r*elem))
				for t := range n {
					xs := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(x), t*lda+4*from)), rows)
					genericRank(row(c, t*ldc+4*r*p), wide[:rows*r], xs)
				}
			}
		}
	}
}

// row views the eight numbers at an offset in bytes from c.
func row(c *float32, offset int) *[8]float32 {
	return (*[8]float32)(unsafe.Add(unsafe.Pointer(c), offset))
}

// genericRank adds x[k]*w[k][lane] to each lane of c.
func genericRank(c *[8]float32, w, x []float32) {
	acc := *c
	for k, v := range x {
		wk := (*[8]float32)(w[8*k:])
		acc[0] += float32(v * wk[0])
		acc[1] += float32(v * wk[1])
		acc[2] += float32(v * wk[2])
		acc[3] += float32(v * wk[3])
		acc[4] += float32(v * wk[4])
		acc[5] += float32(v * wk[5])
		acc[6] += float32(v * wk[6])
		acc[7] += float32(v * wk[7])
	}
	*c = acc
}
