package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"math"
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

// What tuning measures, and for how long.
const (
	tunePrompt  = 180                   // tokens of a large pass, at most: short prompts like fewer workers than long ones
	tuneShort   = 24                    // and at least
	tunePass    = 80 * time.Millisecond // that it should take
	tuneDecodes = 3                     // passes over one token in a number's turn, after one that wakes its workers
	tuneRounds  = 9                     // at most
	tuneLeast   = 3                     // rounds, unless they take longer than tuneLimit
	tuneTime    = 600 * time.Millisecond
	tuneLimit   = 2 * time.Second
	tuneGain    = 1.03 // by which more workers must be faster than fewer
)

// tune sets the workers of the passes that the configuration leaves open: as
// remembered for this machine and model, else as measured, which takes about half
// a second, up to two with a slow model.
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

// choices returns the numbers of workers to compare, most first: all of them, and
// down to a half of the cores in steps of some eighths. The largest number leaves
// one core free.
func choices(most, step int) []int {
	list := []int{most}
	for eighths := 8 - step; eighths >= 4; eighths -= step {
		if n := (most + 1) * eighths / 8; n >= 1 && n < list[len(list)-1] {
			list = append(list, n)
		}
	}
	return list
}

// measure times small and large passes with some numbers of workers. Every number
// has its turn in each round, so that what else the machine does meets all of
// them alike, and its median counts: the fastest pass would hide how often a
// number stumbles.
func measure(ctx context.Context, e tunable, most Threads) (Threads, error) {
	session, err := e.NewSession()
	if err != nil {
		return most, err
	}
	defer session.Close()
	turn := func(tokens, passes int) ([]time.Duration, error) {
		took := make([]time.Duration, passes)
		for i := range took {
			if took[i], err = timePass(ctx, e, session, tokens); err != nil {
				return nil, err
			}
		}
		return took, nil
	}
	first, err := turn(tuneShort, 1) // touches memory, too
	if err != nil {
		return most, err
	}
	prompt := min(max(tuneShort, int(tuneShort*tunePass/first[0])), tunePrompt)
	decode, prefill := samples{}, samples{}
	began := time.Now()
	for round := 0; another(round, time.Since(began)); round++ {
		for _, n := range inTurn(choices(most.Prefill, 2), round) {
			e.SetThreads(0, n)
			took, err := turn(prompt, 1)
			if err != nil {
				return most, err
			}
			prefill[n] = append(prefill[n], took...)
		}
		for _, n := range inTurn(choices(most.Decode, 1), round) {
			e.SetThreads(n, 0)
			took, err := turn(1, 1+tuneDecodes)
			if err != nil {
				return most, err
			}
			decode[n] = append(decode[n], took[1:]...)
		}
	}
	return Threads{Decode: decode.winner(), Prefill: prefill.winner()}, nil
}

// another says whether there is time for one more round after some.
func another(done int, took time.Duration) bool {
	if done == 0 {
		return true
	}
	limit := tuneTime
	if done < tuneLeast {
		limit = tuneLimit
	}
	return done < tuneRounds && took+took/time.Duration(done) <= limit
}

// inTurn turns a list around in every other round, so that no number always
// follows the same one.
func inTurn(list []int, round int) []int {
	if round%2 == 1 {
		slices.Reverse(list)
	}
	return list
}

// timePass times one pass over some tokens of an empty session.
func timePass(ctx context.Context, e batch.Engine, session batch.Session, tokens int) (time.Duration, error) {
	session.Truncate(0)
	begun := time.Now()
	err := e.Eval(ctx, []batch.Step{{Session: session, Tokens: make([]int32, tokens), Logits: true}})
	return max(1, time.Since(begun)), err
}

// samples are the times of passes with each number of workers.
type samples map[int][]time.Duration

// winner returns the smallest number whose median is as good as the best, within
// what may be noise.
func (s samples) winner() int {
	medians := map[int]float64{}
	best := math.Inf(1)
	for n, took := range s {
		slices.Sort(took)
		medians[n] = float64(took[(len(took)-1)/2]+took[len(took)/2]) / 2
		best = min(best, medians[n])
	}
	for _, n := range slices.Sorted(maps.Keys(medians)) {
		if medians[n] <= best*tuneGain {
			return n
		}
	}
	return 0
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

// choiceVersion is that of how numbers are chosen. What an earlier way has chosen
// does not count.
const choiceVersion = 2

// remembered is the content of the file.
type remembered struct {
	Version int                `json:"version"`
	Threads map[string]Threads `json:"threads"`
}

// read returns what is remembered. A damaged file counts as an empty one.
func (m memory) read() map[string]Threads {
	var r remembered
	if m != "" {
		text, err := os.ReadFile(string(m))
		if err == nil && json.Unmarshal(text, &r) == nil && r.Version == choiceVersion && r.Threads != nil {
			return r.Threads
		}
	}
	return map[string]Threads{}
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
	text, err := json.MarshalIndent(remembered{choiceVersion, known}, "", "\t")
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
