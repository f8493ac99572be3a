package tensor

import (
	"fmt"
	"unsafe"
)

// floatKernel multiplies one tile of N tokens by panels of float weights:
//
//	c[t*ldc + p*R + lane] = sum over k of x[t*lda + k] * w[p*stride + k*R + lane]
//
// for t < N, p < panels, lane < R, k < depth in ascending order with one
// accumulator, which starts at c's old value when add is 1 and at zero when it
// is 0. The three strides are in bytes; depth and panels are at least 1.
type floatKernel func(c *float32, w *byte, x *float32, depth, panels, ldc, lda, stride, add int)

// floatTable holds the kernels on float weights of one level.
type floatTable struct{ f32, f16, bf16 floatTiles }

// floatTiles holds a kernel for each tile size; a nil one is a size without kernel.
type floatTiles [largestFloatTile + 1]floatKernel

// largestFloatTile is the most tokens that one kernel takes. Of a larger batch
// fullFloatTile tokens are cut off at a time: with so many, four panels at a
// time fill the registers, which needs the fewest loads for a multiply-add.
const (
	largestFloatTile = 8
	fullFloatTile    = 6
)

func (f *floatTable) tiles(t Type) (kernels *floatTiles, elem int) {
	switch t {
	case F32:
		return &f.f32, 4
	case F16:
		return &f.f16, 2
	case BF16:
		return &f.bf16, 2
	}
	panic(fmt.Sprintf("tensor: %v is not a float type", t))
}

// next returns the size of the tile to cut off left tokens. It depends on left
// alone. Which tile a token is in never changes the bits of its result.
func (f *floatTiles) next(left int) int {
	largest := largestFloatTile
	for f[largest] == nil {
		largest--
	}
	full := min(largest, fullFloatTile)
	switch {
	case left <= largest:
		return left
	case left < 2*full:
		return (left + 1) / 2
	}
	return full
}

// floatJob is one product with float weights; see floatKernel for the
// meaning. Strides and depth are in elements, w begins at the first panel.
type floatJob struct {
	dst    []float32
	ldc    int
	w      unsafe.Pointer
	panels int
	depth  int
	stride int
	x      []float32
	lda    int
	tokens int
	add    bool
}

// floatChunk is the size in bytes of the weights that are used for all
// tokens before the next ones are looked at: they stay in the second-level cache.
const floatChunk = 192 << 10

// matMulFloat runs a job on weights of type t, which is F32, F16 or BF16.
func (k *Kernels) matMulFloat(t Type, j floatJob) {
	if j.tokens <= 0 || j.panels <= 0 {
		return
	}
	if j.depth <= 0 {
		j.clear(k.R)
		return
	}
	_ = j.x[(j.tokens-1)*j.lda+j.depth-1]
	_ = j.dst[(j.tokens-1)*j.ldc+j.panels*k.R-1]
	kernels, elem := k.float.tiles(t)
	add := 0
	if j.add {
		add = 1
	}
	chunk := max(4, floatChunk/(j.depth*k.R*elem)&^3)
	for p := 0; p < j.panels; p += chunk {
		n := min(chunk, j.panels-p)
		w := (*byte)(unsafe.Add(j.w, p*j.stride*elem))
		for from := 0; from < j.tokens; {
			tile := kernels.next(j.tokens - from)
			kernels[tile](&j.dst[from*j.ldc+p*k.R], w, &j.x[from*j.lda], j.depth, n, 4*j.ldc, 4*j.lda, elem*j.stride, add)
			from += tile
		}
	}
}

// clear stores the empty sum.
func (j *floatJob) clear(r int) {
	for t := 0; t < j.tokens && !j.add; t++ {
		clear(j.dst[t*j.ldc : t*j.ldc+j.panels*r])
	}
}

// MatMulF16 multiplies tokens rows of x by npanel panels of half-precision
// numbers, R lanes each (see Kernels.R), with exactly kk steps of k:
//
//	dst[t*ldc + p*R + lane] = sum over k of x[t*lda + k] * w[p*panelStride + k*R + lane]
//
// Strides are in elements. The sum runs over ascending k with one accumulator,
// so that a row of the result has the same bits however many tokens go
// with it. It panics when a slice is too short.
func (k *Kernels) MatMulF16(dst []float32, ldc int, w []uint16, npanel, kk, panelStride int, x []float32, lda, tokens int) {
	k.matMulF16(w, floatJob{
		dst: dst, ldc: ldc, panels: npanel, depth: kk, stride: panelStride, x: x, lda: lda, tokens: tokens,
	})
}

// MatMulF32 is MatMulF16 with panels of single-precision numbers.
func (k *Kernels) MatMulF32(dst []float32, ldc int, w []float32, npanel, kk, panelStride int, x []float32, lda, tokens int) {
	if tokens > 0 && npanel > 0 && kk > 0 {
		_ = w[(npanel-1)*panelStride+kk*k.R-1]
	}
	k.matMulFloat(F32, floatJob{
		dst: dst, ldc: ldc, w: unsafe.Pointer(unsafe.SliceData(w)), panels: npanel, depth: kk, stride: panelStride,
		x: x, lda: lda, tokens: tokens,
	})
}

// AddMatMulF16 is MatMulF16, but the sums start at the values in dst.
func (k *Kernels) AddMatMulF16(dst []float32, ldc int, w []uint16, npanel, kk, panelStride int, x []float32, lda, tokens int) {
	k.matMulF16(w, floatJob{
		dst: dst, ldc: ldc, panels: npanel, depth: kk, stride: panelStride, x: x, lda: lda, tokens: tokens, add: true,
	})
}

func (k *Kernels) matMulF16(w []uint16, j floatJob) {
	if j.tokens > 0 && j.panels > 0 && j.depth > 0 {
		_ = w[(j.panels-1)*j.stride+j.depth*k.R-1]
	}
	j.w = unsafe.Pointer(unsafe.SliceData(w))
	k.matMulFloat(F16, j)
}
