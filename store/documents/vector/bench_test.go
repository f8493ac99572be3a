package vector_test

import (
	"fmt"
	"testing"

	"onebit/store/documents/vector"
)

func BenchmarkSearch(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		c := newCorpus(n, 384, 1)
		for _, l := range vector.Levels() {
			s := c.slab(b, l)
			for _, coarse := range []int{0, 1} {
				b.Run(fmt.Sprintf("%d/%s/signs=%d", n, l, coarse), func(b *testing.B) {
					b.ReportAllocs()
					q := vector.Query{Vector: c.near(), K: 10, Exact: c.read, Coarse: coarse, Threads: 1}
					for b.Loop() {
						if _, err := s.Search(b.Context(), q); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(s.Bytes())/float64(n), "B/vector")
				})
			}
		}
	}
}
