package tensor_test

import (
	"slices"
	"strings"
	"testing"

	"onebit/engine/tensor"
)

func TestLevelFromEnv(t *testing.T) {
	levels := tensor.Levels()
	best := tensor.Detect()
	t.Logf("this machine runs %v", levels)
	for _, l := range []tensor.Level{tensor.Generic, tensor.AVX2, tensor.AVX512} {
		t.Setenv("ONEBIT_CPU", l.String())
		got, err := tensor.LevelFromEnv()
		if slices.Contains(levels, l) {
			if err != nil || got != l {
				t.Errorf("%v: %v, %v", l, got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), best.String()) {
			t.Errorf("%v, which this machine lacks: %v, %v", l, got, err)
		}
	}
	t.Setenv("ONEBIT_CPU", "")
	if got, err := tensor.LevelFromEnv(); err != nil || got != best {
		t.Errorf("unset: %v, %v, want %v", got, err, best)
	}
	t.Setenv("ONEBIT_CPU", "sse9")
	if _, err := tensor.LevelFromEnv(); err == nil || !strings.Contains(err.Error(), "sse9") || !strings.Contains(err.Error(), "ONEBIT_CPU") {
		t.Errorf("an unknown word: %v", err)
	}
}

func TestLevelsAreInOrder(t *testing.T) {
	levels := tensor.Levels()
	if levels[0] != tensor.Generic || !slices.IsSorted(levels) || levels[len(levels)-1] != tensor.Detect() {
		t.Errorf("levels %v, best %v", levels, tensor.Detect())
	}
	for _, l := range levels {
		k, err := tensor.For(l)
		if err != nil {
			t.Fatal(err)
		}
		if k.R != l.PanelRows() {
			t.Errorf("%v: R is %d and PanelRows %d", l, k.R, l.PanelRows())
		}
	}
}

func FuzzParseLevel(f *testing.F) {
	for _, word := range []string{"generic", "avx2", "avx512", "", "AVX2", "avx2 ", "level 7"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		l, err := tensor.ParseLevel(word)
		if err == nil && l.String() != word {
			t.Errorf("%q became %v", word, l)
		}
	})
}
