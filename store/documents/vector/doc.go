// Package vector finds, among many unit vectors in memory, those nearest to a
// query by cosine.
//
// A Slab holds one collection. Each vector is kept as int8 numbers with one
// scale, a quarter of its size in float32, in blocks of 4,096 rows that never
// move. A search passes over all rows (there is no graph to build, to update or
// to get wrong) with a kernel of the processor's best level, keeps the best few
// dozen, and scores those exactly with the float32 vectors that the caller
// reads from where they are kept for good. Over 300,000 rows the first pass
// compares sign bits instead, and int8 numbers only for the best 0.2 percent:
// measured recall is in BENCHMARKS.md of the folder above.
//
// A slab is a cache. WriteTo saves it with a generation that the caller chose,
// and Read refuses bytes that are damaged; whoever finds another generation than
// that of the truth builds it anew.
package vector
