//go:build !amd64

package vector

func machineLevels() []Level { return []Level{Generic} }

func dotsAVX512(dst []int32, q *query, rows []int8, groups int) { dotsGeneric(dst, q, rows, groups) }
func dotsAVX2(dst []int32, q *query, rows []int8, groups int)   { dotsGeneric(dst, q, rows, groups) }
