package tensor

import (
	"encoding/binary"
	"math"
)

// Activations are the input vectors of a product, of which a matrix uses the
// form it needs: F32, F16 and BF16 weights read X, quantised ones Packed.
type Activations struct {
	X      []float32 // token t is X[t*Stride:][:cols]
	Stride int       // floats from one token to the next
	Packed []byte    // filled by PackActivations, every tile of the plan
}

// A packed tile of N tokens holds, for every 32 columns, these arrays of N
// 4-byte words, and then 8 x N words of four int8 each.
const (
	actScale  = iota // float32 d: the value is d*q
	actSum           // float32 d * sum of q
	actOff8          // int32 -8 * sum: the start value of a dot product with q+8
	actOff16         // int32 -16 * sum
	actOff128        // int32 -128 * sum
	actOffA          // int32 -32 * sum of the first 16
	actOffB          // int32 -32 * sum of the second 16
	actQuants
	actWords = actQuants + 8 // words per token and block
)

// tile is one part of a batch: n rows beginning with from. Rows are tokens, or
// parts of tokens after Split; then every tile has both parts of its tokens.
type tile struct{ from, n int }

// fullTile is the largest tile of the level.
func (k *Kernels) fullTile() int {
	if k.Level == AVX512 {
		return 12
	}
	return 6
}

// firstTile returns the tile to begin with when fewer tokens are left than a
// full tile has: a size that has a kernel, such that the rest has one as well.
// Two exact tiles cost less than one that is filled up.
func firstTile(left int) int {
	switch left {
	case 5:
		return 3
	case 7:
		return 4
	case 9, 10:
		return 6
	case 11:
		return 8
	}
	return left
}

// Tiles returns the number of tiles into which a batch of tokens is cut.
func (k *Kernels) Tiles(tokens int) int {
	full := k.fullTile()
	n, left := tokens*k.parts/full, tokens*k.parts%full
	switch {
	case left == 0:
		return n
	case firstTile(left) == left:
		return n + 1
	}
	return n + 2
}

// tile returns tile i of a batch. The plan depends on the number of tokens alone.
func (k *Kernels) tile(tokens, i int) tile {
	full := k.fullTile()
	n, left := tokens*k.parts/full, tokens*k.parts%full
	first := firstTile(left)
	switch i - n {
	case 0:
		return tile{n * full, first}
	case 1:
		return tile{n*full + first, left - first}
	}
	return tile{i * full, full}
}

// TileSpan returns the tokens of tile i of a batch: from..to-1.
func (k *Kernels) TileSpan(tokens, i int) (from, to int) {
	t := k.tile(tokens, i)
	return t.from / k.parts, (t.from + t.n) / k.parts
}

// ActivationBytes returns the size of the packed activations of a batch. It is
// zero for types that use the float activations.
func (k *Kernels) ActivationBytes(t Type, tokens, cols int) int {
	if t.isFloat() {
		return 0
	}
	return k.packedBytes(tokens*k.parts, cols)
}

// PackActivations quantises the tokens of one tile of the plan and interleaves
// them in dst, which is ActivationBytes long and shared by all tiles of the
// batch. x holds all tokens, stride floats apart; cols must be a multiple of
// 32. Calls for different tiles may run at the same time.
func (k *Kernels) PackActivations(dst []byte, x []float32, stride, tokens, cols, index int) {
	k.PackColumns(dst, x, stride, tokens, cols, index, 0, cols)
}

// PackColumns is PackActivations for the columns from..to-1 alone, which begin and
// end at multiples of 32. Calls for different columns may run at the same time.
func (k *Kernels) PackColumns(dst []byte, x []float32, stride, tokens, cols, index, from, to int) {
	t := k.tile(tokens, index)
	perColumns := t.n * actWords * 4 // bytes of 32 columns
	whole := dst[k.packedBytes(t.from, cols):]
	dst = whole[from/32*perColumns : to/32*perColumns]
	x = x[t.from/k.parts*stride+from:][:(t.n/k.parts-1)*stride+to-from]
	if k.parts == 2 {
		k.packSplit(dst, x, stride, to-from, t.n)
	} else {
		k.quant.activation(dst, x, stride, to-from, t.n)
	}
	if t.n == wideTokens && k.wideTiles(tokens) > 0 {
		k.addWide(whole, cols, from, to)
	}
}

// quantizeActivation is the reference: it quantises one token as token t of a
// tile of n. A block whose values are all under 2^-100 becomes zero, so that no
// scale can overflow. A block with infinities or NaN gets a scale of that kind,
// so that they show in every product.
func quantizeActivation(level Level, dst []byte, x []float32, n, t int) {
	for ; len(x) > 0; x, dst = x[32:], dst[actWords*4*n:] {
		bits := uint32(0) // numbers without sign are in the order of their bits
		for _, v := range x[:32] {
			bits = max(bits, math.Float32bits(v)&0x7fffffff)
		}
		top := math.Float32frombits(bits)
		d, inv := float32(0), float32(0)
		if !(top < 0x1p-100) {
			d, inv = top/127, 127/top
		}
		var pairs [4]int32 // first half even, odd, second half even, odd
		for i, v := range x[:32] {
			q := int32(math.RoundToEven(float64(v * inv)))
			pairs[i/16*2+i/2%2] += q
			dst[4*((actQuants+i/4)*n+t)+i%4] = byte(q)
		}
		even, odd := pairs[0]+pairs[2], pairs[1]+pairs[3]
		words := [actQuants]uint32{
			actScale:  math.Float32bits(d),
			actSum:    math.Float32bits(d * float32(even+odd)),
			actOff8:   startValue(level, -8, even, odd),
			actOff16:  startValue(level, -16, even, odd),
			actOff128: startValue(level, -128, even, odd),
			actOffA:   startValue(level, -32, pairs[0], pairs[1]),
			actOffB:   startValue(level, -32, pairs[2], pairs[3]),
		}
		for i, w := range words {
			binary.LittleEndian.PutUint32(dst[4*(i*n+t):], w)
		}
	}
}

// startValue returns the word that takes an offset out of weights.
func startValue(level Level, offset, even, odd int32) uint32 {
	if level == AVX512 {
		return uint32(offset * (even + odd))
	}
	return uint32(uint16(offset*even)) | uint32(uint16(offset*odd))<<16
}
