package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"onebit/engine/batch"
	"onebit/engine/gguf"
)

// Threads are the workers of passes over few tokens and over many.
type Threads struct {
	Decode  int `json:"decode"`
	Prefill int `json:"prefill"`
}

// tunable is an engine whose workers can be counted out anew.
type tunable interface {
	batch.Engine
	SetThreads(decode, prefill int)
	Threads() (decode, prefill int)
}

// What tuning measures, and for how long at most.
const (
	tuneRounds  = 3
	tunePrompt  = 120 // tokens of a large pass
	tuneDecodes = 4   // passes over one token
	tuneTime    = 3 * time.Second
	tuneGain    = 1.02 // by which more workers must be faster than fewer
)

// tune sets the workers of the passes that the configuration leaves open: as
// remembered for this machine and model, else as measured, which takes up to a
// few seconds.
func tune(ctx context.Context, e tunable, cfg Config, key string) error {
	if cfg.Threads > 0 && cfg.BatchThreads > 0 {
		return nil
	}
	decode, prefill := e.Threads()
	best := Threads{decode, prefill}
	if max(decode, prefill) <= 2 {
		return nil // nothing to choose between
	}
	memory := tuningMemory(cfg)
	known := memory.read()
	if t, ok := known[key]; ok && t.Decode >= 1 && t.Decode <= decode && t.Prefill >= 1 && t.Prefill <= prefill {
		best = t
	} else {
		measured, err := measure(ctx, e, best)
		if err != nil {
			return fmt.Errorf("timing the model: %w", err)
		}
		best = measured
		known[key] = best
		if err := memory.write(known); err != nil {
			cfg.Log.Warn("the best number of threads is not remembered", "error", err)
		}
	}
	if cfg.Threads > 0 {
		best.Decode = decode
	}
	if cfg.BatchThreads > 0 {
		best.Prefill = prefill
	}
	e.SetThreads(best.Decode, best.Prefill)
	return nil
}

// choices returns the numbers of workers to compare, most first.
func choices(most int) []int {
	list := []int{most}
	for _, n := range []int{most * 3 / 4, most / 2} {
		if n >= 1 && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// measure times small and large passes with some numbers of workers. Rounds are
// interleaved, and the fastest of a number's rounds counts: what else the
// machine does only ever slows one down.
func measure(ctx context.Context, e tunable, most Threads) (Threads, error) {
	session, err := e.NewSession()
	if err != nil {
		return most, err
	}
	defer session.Close()
	began := time.Now()
	decode, prefill := map[int]time.Duration{}, map[int]time.Duration{}
	for round := range tuneRounds {
		if round > 0 && time.Since(began) > tuneTime {
			break
		}
		for _, n := range choices(most.Prefill) {
			e.SetThreads(0, n)
			took, err := timePass(ctx, e, session, tunePrompt)
			if err != nil {
				return most, err
			}
			keepLeast(prefill, n, took)
		}
		for _, n := range choices(most.Decode) {
			e.SetThreads(n, 0)
			for range tuneDecodes {
				took, err := timePass(ctx, e, session, 1)
				if err != nil {
					return most, err
				}
				keepLeast(decode, n, took)
			}
		}
	}
	return Threads{Decode: winner(decode), Prefill: winner(prefill)}, nil
}

// timePass times one pass over some tokens of an empty session.
func timePass(ctx context.Context, e batch.Engine, session batch.Session, tokens int) (time.Duration, error) {
	session.Truncate(0)
	begun := time.Now()
	err := e.Eval(ctx, []batch.Step{{Session: session, Tokens: make([]int32, tokens), Logits: true}})
	return max(1, time.Since(begun)), err
}

func keepLeast(least map[int]time.Duration, n int, took time.Duration) {
	if old, ok := least[n]; !ok || took < old {
		least[n] = took
	}
}

// winner returns the number with the least time; more workers must earn it.
func winner(least map[int]time.Duration) int {
	best := 0
	for _, n := range slices.Sorted(maps.Keys(least)) {
		if best == 0 || float64(least[n])*tuneGain < float64(least[best]) {
			best = n
		}
	}
	return best
}

// tuningKey names what the best numbers of workers depend on: the machine, the
// kernels and the shape of the model.
func tuningKey(f *gguf.File, level string) string {
	shape := fnv.New64a()
	for _, t := range f.Tensors() {
		fmt.Fprintln(shape, t.Name, t.Type, t.Shape)
	}
	return fmt.Sprintf("%s, %d cores, %s, %s %x", processor(), runtime.NumCPU(), level, f.Architecture(), shape.Sum64())
}

// processor names the processor's model.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// memory is the file in which tuning is remembered.
type memory string

// tuningMemory returns the place, or "" where there is none.
func tuningMemory(cfg Config) memory {
	dir := cfg.CacheDir
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(base, "1bit")
	}
	return memory(filepath.Join(dir, "threads.json"))
}

// read returns what is remembered. A damaged file counts as an empty one.
func (m memory) read() map[string]Threads {
	known := map[string]Threads{}
	if m == "" {
		return known
	}
	text, err := os.ReadFile(string(m))
	if err == nil && json.Unmarshal(text, &known) != nil {
		known = map[string]Threads{}
	}
	return known
}

// write replaces the file in one step.
func (m memory) write(known map[string]Threads) error {
	if m == "" {
		return errors.New("there is no cache directory")
	}
	dir := filepath.Dir(string(m))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(known, "", "\t")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "threads-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), string(m))
	}
	if err != nil {
		if e := os.Remove(f.Name()); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
