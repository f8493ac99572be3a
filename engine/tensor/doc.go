// Package tensor multiplies vectors by quantised and floating-point weight
// matrices, and holds the element-wise operations between those products.
//
// # Levels
//
// Every fast function exists at the levels AVX512, AVX2 and Generic (plain Go,
// the reference of the others' tests). For returns the functions of one level.
// The assembly is generated: see the programs under gen.
//
// # Panels
//
// The lanes of a vector register are output rows. A packed matrix is a row of
// panels of R rows, R = 16 at AVX512 and 8 else; the last panel is filled up
// with zero weights. A panel goes along the columns in blocks of 32. No kernel
// ever adds up the lanes of a register, scales apply to R rows at once, and one
// layout serves one token (memory-bound) as well as many (compute-bound).
//
// A quantised block is, with R values in each bracket:
//
//	Q4_0 Q5_0  [d f16]                 [fifth bits 4 bytes] [nibbles 4 x 4 bytes]
//	Q4_1 Q5_1  [d f16] [m f16]         [fifth bits 4 bytes] [nibbles 4 x 4 bytes]
//	Q8_0       [d f16]                 [8 x 4 bytes]
//	Q4_K Q5_K  [scale u8] [minimum u8] [fifth bits 4 bytes] [nibbles 4 x 4 bytes]
//	Q6_K       [scale i8] [scale i8]   [upper bits 2 x 4 bytes] [nibbles 4 x 4 bytes]
//
// The K types put [d f16] and, but for Q6_K, [dmin f16] before each 8 blocks.
// Four consecutive columns are a group; a block has 8 groups. Nibble vector j
// holds group j in the low and group j+4 in the high halves of its bytes. Bit g
// of a fifth-bits byte belongs to group g; bits 2i and 2i+1 in upper-bits
// vector j to group j+2i. Q8_0 weights are stored plus 128: the
// dot-product instructions want one operand unsigned.
//
// The kernels read a block from front to back: a straight stream is what the
// processors' own prefetching is best at. Reading the upper bits after the nibbles,
// by contrast, cost a Zen 4 a fifth of its bandwidth.
//
// Float panels are [column][R].
//
// # Activations
//
// One format goes with all quantised types, so that products of different
// types share one packing. 32 values of a token become int8 q with a scale
// d = max|x|/127, rounded to the nearest, ties to even. The tokens of a batch are cut into
// tiles; within a tile the tokens are interleaved, group by group. Beside q and d a
// block has d times the sum of q, for formats with a minimum, and the sums times -8,
// -16, -128 and -32 (the last for each half of the block) as integers: formats
// whose weights are q minus an offset start their dot product there. That
// is free where a broadcast from memory replaces the zeroing of a register, and
// exact, while an offset applied in floating point costs a multiply-add for every
// token and cancels digits.
//
// The start values are int32 at AVX512, elsewhere two int16 for the even and the
// odd pairs of columns. AVX2 adds up products in 16 bits, and with the offset
// taken out the sums of a block of 5-bit weights, or half a block of 6-bit ones, stay
// below 32,768, so that wrapping on the way does no harm. It widens them to 32 bits
// once a block, not once a group. Q5_1 and Q5_K have no offset of their own:
// there the kernel takes out 16 and adds 16 times the scale to the minimum.
//
// At AVX2 a full tile has a second form beside, with signs and sizes apart, which the kernel of Q8_0 for many tokens
// reads: see wide.go. It multiplies 32 pairs of bytes by one instruction, where the kernels of single tiles
// need two, one for each half of a weight. Both compute the same bits.
//
// Split makes kernels that quantise a token in two parts, see there.
//
// # Order of accumulation
//
// For each row and token one float32 accumulator takes the blocks in order,
// whatever the tile:
//
//	dot  = offset + sum of 32 products, exact in int32
//	acc += (dot*scale) * d            Q4_0 Q5_0 Q8_0
//	acc += minimum * sum              besides, Q4_1 Q5_1 Q4_K Q5_K
//	acc += (dotA*scaleA + dotB*scaleB) * d    Q6_K
//
// so a row's result has the same bits whatever else is in the batch. Levels
// differ in the last digits: the SIMD ones fuse multiplications with additions.
package tensor
