package model_test

import (
	"fmt"
	"slices"
	"testing"

	"onebit/engine/model"
	"onebit/engine/tensor"
)

// TestFork: a fork goes on with the same bits as a session that was given everything, and what it appends does not reach
// the session that it came from, nor other forks.
func TestFork(t *testing.T) {
	for _, n := range []int{1, 255, 256, 257, 300} { // around the end of a page
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := small("llama", mixes["both"]...)
			m := load(t, s.file(t), model.Config{Level: tensor.Levels()[0], Context: 4096, Sessions: 4})
			text := tokens(1, n, s.vocab)
			base := m.NewSession()
			defer base.Close()
			eval(t, m, base, text, 1)
			want := func(more []int32) [][]float32 {
				plain := m.NewSession()
				defer plain.Close()
				return eval(t, m, plain, slices.Concat(text, more), len(more))
			}
			var forks []*model.Session
			for i := range 4 {
				f := base.Fork()
				forks = append(forks, f)
				more := tokens(uint64(i+2), 5+i, s.vocab)
				compareBits(t, "a fork", eval(t, m, f, more, len(more)), want(more))
			}
			more := tokens(9, 7, s.vocab)
			grand := forks[1].Fork()
			all := slices.Concat(tokens(3, 6, s.vocab), more)
			compareBits(t, "a fork's fork", eval(t, m, grand, more, len(more)), want(all)[6:])
			grand.Close()
			forks[2].Truncate(n)
			compareBits(t, "a fork cut back", eval(t, m, forks[2], more, len(more)), want(more))
			if n > 1 {
				forks[3].Truncate(n - 1)
				again := append(slices.Clone(text[n-1:]), more...)
				compareBits(t, "a fork cut below", eval(t, m, forks[3], again, len(more)), want(more))
			}
			for _, f := range forks {
				f.Close()
			}
			compareBits(t, "the session itself", eval(t, m, base, more, len(more)), want(more))
		})
	}
}
