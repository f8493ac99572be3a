package model_test

import (
	"os"
	"path/filepath"
	"testing"

	"onebit/engine/gguf"
	"onebit/engine/model"
	"onebit/engine/tensor"
)

// benchModels calls f with every model in the folder of ONEBIT_TEST_MODELS, at
// the best level of the machine.
func benchModels(b *testing.B, f func(b *testing.B, m *model.Model)) {
	dir := os.Getenv("ONEBIT_TEST_MODELS")
	if dir == "" {
		b.Skip("SKIPPED: ONEBIT_TEST_MODELS names no folder with models")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if err != nil || len(paths) == 0 {
		b.Fatalf("no models in %s (%v)", dir, err)
	}
	level, err := tensor.LevelFromEnv()
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range paths {
		b.Run(filepath.Base(path), func(b *testing.B) {
			file, err := gguf.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			defer file.Close()
			m, err := model.Load(file, model.Config{Level: level})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			f(b, m)
		})
	}
}

// rate reports tokens per second, of n tokens in each round.
func rate(b *testing.B, n int) {
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
}

func BenchmarkPrefill240(b *testing.B) {
	benchModels(b, func(b *testing.B, m *model.Model) { benchPrefill(b, m, 240) })
}

func BenchmarkPrefill1024(b *testing.B) {
	benchModels(b, func(b *testing.B, m *model.Model) { benchPrefill(b, m, 1024) })
}

func benchPrefill(b *testing.B, m *model.Model, n int) {
	s := m.NewSession()
	defer s.Close()
	if s.Capacity() < n {
		b.Skip("SKIPPED: the model's context is too short")
	}
	ids := tokens(1, n, m.Vocab())
	eval(b, m, s, ids, 1)
	for b.Loop() {
		s.Truncate(0)
		eval(b, m, s, ids, 1)
	}
	rate(b, n)
}

func BenchmarkDecode(b *testing.B) {
	benchModels(b, func(b *testing.B, m *model.Model) { benchDecode(b, m, 0, 1) })
}

func BenchmarkDecodeAt1024(b *testing.B) {
	benchModels(b, func(b *testing.B, m *model.Model) { benchDecode(b, m, 1024, 1) })
}

func BenchmarkDecodeBatch8(b *testing.B) {
	benchModels(b, func(b *testing.B, m *model.Model) { benchDecode(b, m, 0, 8) })
}

// benchDecode decodes 32 tokens in each of several sessions from a depth on.
func benchDecode(b *testing.B, m *model.Model, depth, batch int) {
	const n = 32
	if m.Capacity() < depth+n {
		b.Skip("SKIPPED: the model's context is too short")
	}
	steps := make([]model.Step, batch)
	for i := range steps {
		s := m.NewSession()
		defer s.Close()
		if depth > 0 {
			eval(b, m, s, tokens(uint64(i), depth, m.Vocab()), 0)
		}
		steps[i] = model.Step{Session: s, Tokens: tokens(9, 1, m.Vocab()), Logits: 1}
	}
	for b.Loop() {
		for i := range steps {
			steps[i].Session.Truncate(depth)
		}
		for range n {
			if err := m.Eval(b.Context(), steps); err != nil {
				b.Fatal(err)
			}
		}
	}
	rate(b, n*batch)
}

func BenchmarkLoad(b *testing.B) {
	benchModels(b, func(b *testing.B, first *model.Model) {
		path := filepath.Join(os.Getenv("ONEBIT_TEST_MODELS"), filepath.Base(b.Name()))
		for b.Loop() {
			f, err := gguf.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			m, err := model.Load(f, model.Config{Level: first.Kernels().Level})
			if err != nil {
				b.Fatal(err)
			}
			m.Close()
			f.Close()
		}
	})
}
