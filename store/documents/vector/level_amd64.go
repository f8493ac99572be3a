package vector

import "golang.org/x/sys/cpu"

func machineLevels() []Level {
	levels := []Level{Generic}
	x := &cpu.X86 // it reports a feature only when the system saves its registers
	if x.HasAVX2 {
		levels = append(levels, AVX2)
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VNNI {
		levels = append(levels, AVX512)
	}
	return levels
}

//go:noescape
func dot4AVX512(dst *int32, q *uint8, rows *int8, groups, pieces int)

//go:noescape
func dot4AVX2(dst *int32, magnitude *uint8, sign, rows *int8, groups, pieces int)

func dotsAVX512(dst []int32, q *query, rows []int8, groups int) {
	n := len(q.signed)
	if groups == 0 {
		return
	}
	_, _ = dst[groups*4-1], rows[groups*4*n-1] // the kernel checks no bounds
	dot4AVX512(&dst[0], &q.unsigned[0], &rows[0], groups, n/64)
}

func dotsAVX2(dst []int32, q *query, rows []int8, groups int) {
	n := len(q.signed)
	if groups == 0 {
		return
	}
	_, _ = dst[groups*4-1], rows[groups*4*n-1]
	dot4AVX2(&dst[0], &q.unsigned[0], &q.signed[0], &rows[0], groups, n/64)
}
