package tensor

//go:generate go run ./gen/quant

func quantTableFor(level Level) quantTable {
	switch level {
	case AVX512:
		return quantTable{mul: quantKernelsAVX512(), activation: quantizer{
			level: AVX512, tokens: quantizeTokensAVX512, blocks: quantizeBlocksAVX512,
		}.tile}
	case AVX2:
		return quantTable{mul: quantKernelsAVX2(), activation: quantizer{
			level: AVX2, tokens: quantizeTokensAVX2, blocks: quantizeBlocksAVX2,
		}.tile}
	}
	return genericQuantTable(level)
}

// quantizer holds the assembly functions that quantise activations: of four
// tokens at a time, and of one token, four blocks at a time.
type quantizer struct {
	level  Level
	tokens func(dst *byte, x *float32, nblk, n, stride int)
	blocks func(dst *byte, x *float32, nblk, n int)
}

// tile quantises a tile of n tokens. Where the last four tokens or blocks are
// not all left, they overlap those before, which is cheaper than single ones.
func (q quantizer) tile(dst []byte, x []float32, stride, cols, n int) {
	nblk, block := cols/32, actWords*4*n
	_, _ = dst[nblk*block-1], x[(n-1)*stride+cols-1]
	if n >= 4 {
		for i := 0; i < n; i += 4 {
			i = min(i, n-4)
			q.tokens(&dst[4*i], &x[i*stride], nblk, n, 4*stride)
		}
		return
	}
	for i := range n {
		if nblk < 4 {
			quantizeActivation(q.level, dst, x[i*stride:][:cols], n, i)
			continue
		}
		q.blocks(&dst[4*i], &x[i*stride], nblk&^3, n)
		if last := nblk - 4; nblk%4 != 0 {
			q.blocks(&dst[last*block+4*i], &x[i*stride+32*last], 4, n)
		}
	}
}
