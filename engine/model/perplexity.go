package model

import (
	"context"
	"fmt"
	"math"
)

// PerplexityConfig says how a text is cut.
type PerplexityConfig struct {
	Window int   // tokens that are evaluated together; llama-perplexity's -c
	BOS    int32 // put over the first token of each window; negative = none
	// Progress, when set, is called after each window with the number of windows
	// done and in all, and the perplexity so far.
	Progress func(done, total int, perplexity float64)
}

// Perplexity returns exp of the mean negative log-probability that the model
// gives to the second half of each window of ids, as llama-perplexity computes
// it: windows do not overlap and know nothing of each other; a rest shorter than
// a window is left out.
func (m *Model) Perplexity(ctx context.Context, ids []int32, cfg PerplexityConfig) (float64, error) {
	n := cfg.Window
	if n < 4 || n > m.Capacity() {
		return 0, fmt.Errorf("a window of %d tokens is not within 4 and the context of %d", n, m.Capacity())
	}
	total := len(ids) / n
	if total == 0 {
		return 0, fmt.Errorf("%d tokens are less than a window of %d", len(ids), n)
	}
	s := m.NewSession()
	defer s.Close()
	sampler := m.NewSampler(SamplerConfig{})
	sum, count := 0.0, 0
	window := make([]int32, n)
	for i := range total {
		copy(window, ids[i*n:])
		if cfg.BOS >= 0 {
			window[0] = cfg.BOS
		}
		s.Truncate(0)
		nll, err := secondHalf(ctx, s, sampler, window)
		if err != nil {
			return 0, err
		}
		sum += nll
		count += n - n/2 - 1
		if cfg.Progress != nil {
			cfg.Progress(i+1, total, math.Exp(sum/float64(count)))
		}
	}
	return math.Exp(sum / float64(count)), nil
}

// secondHalf returns the sum of the negative log-probabilities of the tokens
// behind the middle of a window, each given all before it.
func secondHalf(ctx context.Context, s *Session, sampler *Sampler, window []int32) (float64, error) {
	const rows = 32 // of logits at a time
	first := len(window) / 2
	step := []Step{{Session: s, Tokens: window[:first]}}
	if err := s.m.Eval(ctx, step); err != nil {
		return 0, err
	}
	sum := 0.0
	for from := first; from < len(window)-1; from += rows {
		to := min(from+rows, len(window)-1)
		step[0] = Step{Session: s, Tokens: window[from:to], Logits: to - from}
		if err := s.m.Eval(ctx, step); err != nil {
			return 0, err
		}
		for i, row := range step[0].Out {
			p, _ := sampler.LogProbs(row, window[from+i+1], 0)
			sum -= float64(p)
		}
	}
	return sum, nil
}
