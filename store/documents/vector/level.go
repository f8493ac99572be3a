package vector

// Level is the instruction set that the kernels use.
type Level int

// The levels, each with what it needs.
const (
	Generic Level = iota // plain Go
	AVX2                 // AVX2
	AVX512               // AVX-512 F, BW and VNNI
)

// String returns the level's name.
func (l Level) String() string {
	switch l {
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	}
	return "generic"
}

// Levels lists what this machine can run, the fastest last.
func Levels() []Level { return machineLevels() }

// dots writes the dot products of rows with a query: groups of four rows of
// pieces times 64 numbers.
type dots func(dst []int32, q *query, rows []int8, groups int)

// kernel returns the function of a level, and whether its sums hold the bias:
// products with q+128 in place of q.
func kernel(l Level) (f dots, biased bool) {
	switch l {
	case AVX512:
		return dotsAVX512, true
	case AVX2:
		return dotsAVX2, false
	}
	return dotsGeneric, false
}

// query is one vector as the kernels want it.
type query struct {
	signed   []int8  // -127 to 127
	unsigned []uint8 // signed + 128 for AVX-512, |signed| for AVX2
	scale    float32 // signed * scale is the vector
	signs    []uint64
}

func dotsGeneric(dst []int32, q *query, rows []int8, groups int) {
	n := len(q.signed)
	for r := range groups * 4 {
		row := rows[r*n:][:n]
		var sum int32
		for i, v := range q.signed {
			sum += int32(v) * int32(row[i])
		}
		dst[r] = sum
	}
}
