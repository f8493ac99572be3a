package model_test

import (
	"testing"

	"onebit/engine/model"
	"onebit/engine/tensor"
)

// TestAllocations wants decoding to leave next to no garbage: the slice of
// rows, and what the session's list of tokens grows by.
func TestAllocations(t *testing.T) {
	s := small("gemma3", tensor.Q8_0)
	s.context = 4096
	m := load(t, s.file(t), model.Config{Level: tensor.Detect(), Threads: 1, BatchThreads: 1})
	a := m.NewSession()
	eval(t, m, a, tokens(1, 600, s.vocab), 0)
	steps := []model.Step{{Session: a, Tokens: []int32{1}, Logits: 1}}
	got := testing.AllocsPerRun(50, func() {
		if err := m.Eval(t.Context(), steps); err != nil {
			t.Fatal(err)
		}
	})
	if got > 3+raced {
		t.Errorf("%v allocations for a token", got)
	}
}
