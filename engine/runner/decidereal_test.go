package runner_test

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onebit/engine/batch"
	"onebit/engine/runner"
	"onebit/engine/wire"
)

// smollm2 returns the path of the model that every run of the tests has.
func smollm2(t *testing.T) string {
	t.Helper()
	const name, short = "smollm2-135m-instruct-q4_1.gguf", "b179c9523d0e"
	var patterns []string
	if dir := os.Getenv("ONEBIT_TEST_MODELS"); dir != "" {
		patterns = append(patterns, filepath.Join(dir, name), filepath.Join(dir, short, "*.gguf"))
	}
	if dir, err := os.UserCacheDir(); err == nil {
		patterns = append(patterns, filepath.Join(dir, "1bit", "models", short, "*.gguf"))
	}
	for _, p := range patterns {
		if paths, err := filepath.Glob(p); err == nil && len(paths) > 0 {
			return paths[0]
		}
	}
	t.Fatalf("the model %s is neither in the folder of ONEBIT_TEST_MODELS nor in the cache: get it with `make test` or `bin/1bit model pull smollm2`", name)
	return ""
}

// TestDecideSmolLM2 does with a real model what TestDecideExactly does with a fake one.
func TestDecideSmolLM2(t *testing.T) {
	parts, err := runner.Load(t.Context(), runner.Config{Model: smollm2(t), Context: 1024, Parallel: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	body := `{"state":"` + strings.Repeat("The lamp is broken. ", 60) + `",` + questions + `}`
	req, err := wire.ParseSystemOne([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	d, err := wire.ReadDecisions(req)
	if err != nil {
		t.Fatal(err)
	}
	prompt, branches, status := runner.NewReader(parts).Decide(t.Context(), d, runner.Asked)
	if status != 200 || len(prompt) < 256 { // more than a page, so that questions share one
		t.Fatal(status, len(prompt))
	}
	logits := func(tokens []int32) []float32 {
		session, err := parts.Engine.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		steps := []batch.Step{{Session: session, Tokens: tokens, Logits: true}}
		if err := parts.Engine.Eval(t.Context(), steps); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(steps[0].Out)
	}
	want := make([][]float64, len(d.Questions))
	for i := range d.Questions {
		want[i] = naive(runner.Asked, logits, prompt, branches[i*runner.Asked.Orders:(i+1)*runner.Asked.Orders])
	}
	f := start(t, nil, runner.Config{Load: loader(parts)})
	f.awaitReady()
	v := f.ok("/v1/systemone", body)
	for i, q := range d.Questions {
		var texts []string
		for _, o := range q.Options {
			texts = append(texts, o.Text)
		}
		for o, got := range probabilities(dig(v, "answers", q.ID), texts) {
			// The model's inputs are rounded to eight bits, so that sums cut elsewhere tell in the fourth digit.
			if math.Abs(got-want[i][o]) > 2e-3 {
				t.Errorf("%s, option %d: %v, want %v", q.ID, o, got, want[i][o])
			}
		}
	}
}
