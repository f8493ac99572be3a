package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"onebit/engine/batch"
	"onebit/engine/runner"
)

// timed is an engine whose speed depends on its workers.
type timed struct {
	*fakeEngine
	decode, prefill int
	passes          int
	cost            func(workers, tokens int) time.Duration
	extra           func(pass, workers, tokens int) time.Duration // nil adds none
}

func (e *timed) Threads() (decode, prefill int) { return e.decode, e.prefill }

func (e *timed) SetThreads(decode, prefill int) {
	if decode > 0 {
		e.decode = decode
	}
	if prefill > 0 {
		e.prefill = prefill
	}
}

func (e *timed) Eval(ctx context.Context, steps []batch.Step) error {
	e.passes++
	n := len(steps[0].Tokens)
	workers := e.prefill
	if n == 1 {
		workers = e.decode
	}
	d := e.cost(workers, n)
	if e.extra != nil {
		d += e.extra(e.passes, workers, n)
	}
	time.Sleep(d)
	return e.fakeEngine.Eval(ctx, steps)
}

func TestTune(t *testing.T) {
	// Many workers help large passes; small ones are fastest with half of them.
	crowded := func(workers, tokens int) time.Duration {
		if tokens == 1 && workers > 4 {
			return 30 * time.Millisecond
		}
		return time.Duration(tokens) * 80 * time.Millisecond / time.Duration(workers)
	}
	flat := func(_, tokens int) time.Duration { return time.Duration(tokens) * time.Millisecond }
	tests := []struct {
		name            string
		most, given     int // given is the configuration's number for decoding
		cost            func(workers, tokens int) time.Duration
		decode, prefill int
	}{
		{"fewer for decoding", 8, 0, crowded, 4, 8},
		{"no gain from more", 8, 0, flat, 4, 4},
		{"given for decoding", 8, 8, crowded, 8, 8},
		{"two cores", 2, 0, flat, 2, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				for again := range 2 {
					e := &timed{fakeEngine: &fakeEngine{}, decode: tt.most, prefill: tt.most, cost: tt.cost}
					began := time.Now()
					if err := runner.Tune(t.Context(), e, dir, tt.given, "machine and model"); err != nil {
						t.Fatal(err)
					}
					if e.decode != tt.decode || e.prefill != tt.prefill {
						t.Errorf("%d and %d workers, want %d and %d", e.decode, e.prefill, tt.decode, tt.prefill)
					}
					if again == 1 && e.passes > 0 {
						t.Errorf("%d passes, though the machine and the model are known", e.passes)
					}
					if d := time.Since(began); d > 5*time.Second {
						t.Errorf("tuning took %v", d)
					}
					if e.sessions != 0 {
						t.Error("a session is left open")
					}
				}
			})
		})
	}
}

// What else the machine does shows in single passes. It must not decide.
func TestTuneNoise(t *testing.T) {
	// 12 workers are best for decoding and 15 for prompts, both clearly.
	cost := func(workers, tokens int) time.Duration {
		if tokens == 1 {
			return 4*time.Millisecond + time.Duration(max(workers-12, 12-workers))*200*time.Microsecond
		}
		return time.Duration(tokens) * 4 * time.Millisecond / time.Duration(workers)
	}
	level := func(int, int) time.Duration { return 4 * time.Millisecond }
	tests := []struct {
		name            string
		cost            func(workers, tokens int) time.Duration
		extra           func(pass, workers, tokens int) time.Duration
		decode, prefill int
	}{
		{"quiet", cost, nil, 12, 15},
		{"lucky passes of the most", cost, func(pass, workers, _ int) time.Duration {
			if workers == 15 && pass%5 == 0 {
				return -2 * time.Millisecond
			}
			return 0
		}, 12, 15},
		{"slow passes of the best", cost, func(pass, workers, tokens int) time.Duration {
			if pass%7 == 0 && (tokens == 1) == (workers == 12) {
				return 20 * time.Millisecond
			}
			return 0
		}, 12, 15},
		{"waking up", cost, func() func(int, int, int) time.Duration {
			last := 0
			return func(_, workers, tokens int) time.Duration {
				if was := last; tokens == 1 {
					if last = workers; was != workers && workers == 12 {
						return 3 * time.Millisecond
					}
				}
				return 0
			}
		}(), 12, 15},
		{"all the same", level, nil, 8, 8},
		{"within noise of fewer", level, func(_, workers, _ int) time.Duration {
			return -time.Duration(workers) * 12 * time.Microsecond
		}, 8, 8},
		{"drifting", cost, func(pass, _, _ int) time.Duration { return time.Duration(pass) * 10 * time.Microsecond }, 12, 15},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				e := &timed{fakeEngine: &fakeEngine{}, decode: 15, prefill: 15, cost: tt.cost, extra: tt.extra}
				began := time.Now()
				if err := runner.Tune(t.Context(), e, dir, 0, "key"); err != nil {
					t.Fatal(err)
				}
				if e.decode != tt.decode || e.prefill != tt.prefill {
					t.Errorf("%d and %d workers, want %d and %d", e.decode, e.prefill, tt.decode, tt.prefill)
				}
				if d := time.Since(began); d > 1500*time.Millisecond {
					t.Errorf("tuning took %v", d)
				}
			})
		})
	}
}

// A slow model is measured in few rounds, a fast one in as many as help.
func TestTuneTime(t *testing.T) {
	for name, tt := range map[string]struct {
		token  time.Duration // of one worker
		passes int           // at most
		limit  time.Duration
	}{
		"fast":      {10 * time.Microsecond, 300, 200 * time.Millisecond},
		"middling":  {2 * time.Millisecond, 300, 800 * time.Millisecond},
		"slow":      {50 * time.Millisecond, 70, 2 * time.Second},
		"very slow": {400 * time.Millisecond, 30, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				e := &timed{fakeEngine: &fakeEngine{}, decode: 15, prefill: 15, cost: func(workers, tokens int) time.Duration {
					return time.Duration(tokens) * tt.token / time.Duration(workers)
				}}
				began := time.Now()
				if err := runner.Tune(t.Context(), e, dir, 0, "key"); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(began); d > tt.limit || e.passes > tt.passes {
					t.Errorf("%d passes in %v", e.passes, d)
				}
			})
		})
	}
}

// What is remembered may be damaged or of another machine.
func TestTuneMemory(t *testing.T) {
	for name, text := range map[string]string{
		"damaged":          `{"version": 2, "threads": {"key": {`,
		"not numbers":      `{"version": 2, "threads": {"key": {"decode": "x"}}}`,
		"out of range":     `{"version": 2, "threads": {"key": {"decode": 99, "prefill": 0}}}`,
		"another":          `{"version": 2, "threads": {"other": {"decode": 1, "prefill": 1}}}`,
		"an older version": `{"version": 1, "threads": {"key": {"decode": 1, "prefill": 1}}}`,
		"the first one":    `{"key": {"decode": 1, "prefill": 1}}`,
		"nothing":          `{"version": 2}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "threads.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				e := &timed{fakeEngine: &fakeEngine{}, decode: 4, prefill: 4, cost: func(workers, _ int) time.Duration { return time.Second / time.Duration(workers) }}
				if err := runner.Tune(t.Context(), e, dir, 0, "key"); err != nil {
					t.Fatal(err)
				}
				if e.decode != 4 || e.prefill != 4 || e.passes == 0 {
					t.Errorf("%d and %d workers after %d passes", e.decode, e.prefill, e.passes)
				}
			})
		})
	}
}

func TestCapacity(t *testing.T) {
	const mib = 1 << 20
	small := runner.Needs{Trained: 8192, PerToken: 1 << 10, Weights: 100 * mib}
	tests := []struct {
		name              string
		context, parallel int
		needs             runner.Needs
		memory            int64
		slots, tokens     int
	}{
		{"the model's context for each slot", 0, 0, small, 1000 * mib, 4, 8192},
		{"the model's context for slots that were asked for", 0, 2, small, 1000 * mib, 2, 8192},
		{"little memory", 0, 0, small, 110 * mib, 4, 1280},
		{"no memory", 0, 0, small, 50 * mib, 4, 512},
		{"memory unknown", 0, 0, small, runner.UnknownMemory, 4, 8192},
		{"split across slots", 2048, 4, small, 1000 * mib, 4, 512},
		{"rounded up", 2048, 3, small, 1000 * mib, 3, 768},
		{"for each of the engine's own slots", 1000, 0, small, 1000 * mib, 4, 1024},
		{"not above the model's", 100000, 2, small, 1000 * mib, 2, 8192},
		{"less than a token each", 2, 4, small, 1000 * mib, 4, 256},
		{"a small model", 2048, 1, runner.Needs{Trained: 128}, 1000 * mib, 1, 128},
	}
	for _, tt := range tests {
		slots, tokens := runner.Capacity(tt.context, tt.parallel, tt.needs, tt.memory)
		if slots != tt.slots || tokens != tt.tokens {
			t.Errorf("%s: %d slots of %d, want %d of %d", tt.name, slots, tokens, tt.slots, tt.tokens)
		}
	}
}
