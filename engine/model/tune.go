package model

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Tuning is the number of workers that suits a model on a machine.
type Tuning struct {
	Threads      int `json:"threads"`       // of small passes: decode
	BatchThreads int `json:"batch_threads"` // of large passes: prefill
}

const (
	// tuneTime is about how long Tune measures; a model so slow that not even
	// one round fits keeps its numbers.
	tuneTime = time.Second
	// tuneBatch is the length of the prompts that Tune measures with, and
	// largeTuneBatch that for models of more than largeModel weights.
	tuneBatch      = 48
	largeTuneBatch = 12
	largeModel     = 3e9
)

// Tune measures real passes with some numbers of workers, none larger than
// Load was given, sets the fastest and returns them. It takes about a second.
// The caller may remember the result for the same file, machine and level, and
// give it to SetThreads instead. When the context ends, the numbers stay what
// they were and its error is returned.
func (m *Model) Tune(ctx context.Context) (Tuning, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return Tuning{}, ErrClosed
	}
	before := Tuning{m.decode, m.prefill}
	after, err := m.tune(ctx, before)
	if err != nil {
		m.setThreads(before.Threads, before.BatchThreads)
		return Tuning{}, fmt.Errorf("measuring thread counts: %w", err)
	}
	m.setThreads(after.Threads, after.BatchThreads)
	return after, nil
}

func (m *Model) tune(ctx context.Context, now Tuning) (Tuning, error) {
	s := &Session{m: m}
	defer func() {
		m.free = append(m.free, s.pages...)
	}()
	length := tuneBatch
	if m.parameters > largeModel {
		length = largeTuneBatch
	}
	ids := make([]int32, min(length, m.Capacity()))
	for i := range ids {
		ids[i] = int32(i * 7919 % m.p.vocab)
	}
	run := func(from, to int) func() error {
		return func() error {
			s.ids = s.ids[:from]
			return m.eval(ctx, []Step{{Session: s, Tokens: ids[from:to], Logits: 1}})
		}
	}
	var err error
	set := func(n int) { m.setThreads(n, n) }
	counts := candidates(m.team.Size())
	if now.BatchThreads, err = fastest(ctx, counts, now.BatchThreads, set, run(0, len(ids))); err != nil {
		return now, err
	}
	now.Threads, err = fastest(ctx, counts, now.Threads, set, run(len(ids)-1, len(ids)))
	return now, err
}

// candidates returns the worker counts worth measuring, up to n.
func candidates(n int) []int {
	list := []int{n, n - n/4, n - n/3, (n + 1) / 2}
	slices.Sort(list)
	return slices.Compact(list)
}

// fastest returns the count with the shortest run. It measures in rounds, so
// that what else the machine does meets all counts. now stays unless another
// one is clearly faster.
func fastest(ctx context.Context, counts []int, now int, set func(n int), run func() error) (int, error) {
	const gain = 0.97
	best := map[int]time.Duration{}
	start := time.Now()
	for round := 0; ; round++ {
		begin := time.Now()
		for _, n := range counts {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			set(n)
			t := time.Now()
			if err := run(); err != nil {
				return 0, err
			}
			if d := time.Since(t); round > 0 && (best[n] == 0 || d < best[n]) { // the first round warms up
				best[n] = d
			}
			if round == 0 && time.Since(start) > tuneTime/2 {
				return now, nil
			}
		}
		if time.Since(start)+time.Since(begin) > tuneTime/2 {
			break
		}
	}
	choice := now
	for _, n := range counts {
		old, measured := best[choice]
		if d, ok := best[n]; ok && (!measured || float64(d) < gain*float64(old)) {
			choice = n
		}
	}
	return choice, nil
}
