package tensor

import "unsafe"

// The wide form of a packed tile is for products with many tokens: it leaves little to do in their inner loop. It
// follows the ordinary form of a full tile. For every 32 columns it has these arrays of N 4-byte words, N = 6, and then
// for each of the eight groups two more: four bytes, the sizes of the values, and two int16, the signs of the pairs.
//
// The four columns of a group are two pairs. The sign of a pair, 1 or -1, is that of its first value; a second
// value of the other sign is turned. For it the kernel takes -1-w in place of the weight w, because -w may need a ninth
// bit. Then sign times size times weight is the true product plus the value.
const (
	wideScale  = iota // float32 d, as in the ordinary form
	wideStart         // int32, the start value of a dot product: less the sum of the turned values
	wideTurned        // two words, a byte for each group: 32 if the first pair has a turned value, plus 64 if the second has
	_
	wideGroups
	wideWords = wideGroups + 2*8
)

const (
	wideTokens = 6         // tokens of a tile that has the wide form
	widePanels = 4         // panels that the kernel works on at once
	wideMost   = 20        // tiles that one call takes at most: their sums fill half a first-level cache
	wideBytes  = 768 << 10 // of activations that one call takes, to stay in the second-level cache
	wideLeast  = 2         // tiles for which a block of weights is worth the preparation

	wideWork = widePanels*(8*4*32+32) + wideMost*wideTokens*widePanels*32 // bytes that the kernel works in
)

// wideKernel multiplies npanel panels at w, a multiple of widePanels, by ntile tiles, at most wideMost, whose wide
// forms begin at a and are stride bytes apart. c, nblk and ldc are as for a quantKernel. work is wideWork bytes of any
// content.
type wideKernel func(w, a *byte, c *float32, work *byte, nblk, npanel, ntile, stride, ldc int)

// wideTable holds what a level has for many tokens.
type wideTable struct {
	q80    wideKernel
	spread func(dst, src *byte, nblk int) // writes the wide form of a packed tile
}

// packedBytes returns the size of the first rows of a batch's packed activations; they are whole tiles.
func (k *Kernels) packedBytes(rows, cols int) int {
	words := rows * actWords
	if k.quant.wide != nil {
		words += rows / wideTokens * wideTokens * wideWords
	}
	return cols / 32 * words * 4
}

// wideTiles returns the number of tiles of a batch that have the wide form, the first ones; none where it does not pay.
func (k *Kernels) wideTiles(tokens int) int {
	n := tokens * k.parts / wideTokens
	if k.quant.wide == nil || k.plain || n < wideLeast {
		return 0
	}
	return n
}

// addWide writes the wide form of the columns from..to-1 of a full tile, which is packed at tile.
func (k *Kernels) addWide(tile []byte, cols, from, to int) {
	const plain, wide = wideTokens * actWords * 4, wideTokens * wideWords * 4
	if from < to {
		dst, src := tile[cols/32*plain:][from/32*wide:to/32*wide], tile[from/32*plain:to/32*plain]
		k.quant.wide.spread(&dst[0], &src[0], (to-from)/32)
	}
}

// mulWide multiplies the panels panelFrom..panelTo-1, a multiple of widePanels, by the first tiles of a batch, which
// are full. The tiles of a call stay in the second-level cache while all panels pass.
func (k *Kernels) mulWide(dst []float32, ldc int, m *Matrix, packed []byte, tiles, panelFrom, panelTo int) {
	if panelFrom == panelTo {
		return
	}
	s := k.scratch.Get().(*scratch)
	defer k.scratch.Put(s)
	w, work := m.data[panelFrom*m.panel:panelTo*m.panel], s.aligned(wideWork)
	blocks, panels := m.cols/32, panelTo-panelFrom
	plain, stride := blocks*wideTokens*actWords*4, k.packedBytes(wideTokens, m.cols)
	most := min(max(wideBytes/(stride-plain), wideLeast), wideMost)
	calls := (tiles + most - 1) / most
	for i := range calls {
		from, to := tiles*i/calls, tiles*(i+1)/calls
		a := packed[from*stride : to*stride]
		k.rows(s, dst[from*wideTokens/k.parts*ldc+panelFrom*m.r:], ldc, panels*k.R, (to-from)*wideTokens, func(c *float32, ldc int) {
			k.quant.wide.q80(unsafe.SliceData(w), &a[plain], c, &work[0], blocks, panels, to-from, stride, ldc*4)
		})
	}
}

// aligned returns n bytes of any content that begin with a cache line.
func (s *scratch) aligned(n int) []byte {
	if len(s.work) < n+63 {
		s.work = make([]byte, n+63)
	}
	at := -int(uintptr(unsafe.Pointer(&s.work[0]))) & 63
	return s.work[at:][:n]
}
