package rig_test

import (
	"errors"
	"strings"
	"testing"

	"onebit/e2e/rig"
)

// TestProseOf: a text has as many tokens as were wanted and no more than the next word brings, however many a word has.
func TestProseOf(t *testing.T) {
	counts := map[string]func(string) int{
		"a token a word":       func(s string) int { return len(strings.Fields(s)) },
		"many tokens a word":   func(s string) int { return len(s) / 2 },
		"few tokens of a word": func(s string) int { return len(strings.Fields(s)) / 3 },
	}
	for name, count := range counts {
		for _, want := range []int{1, 17, 8000} {
			text, err := rig.ProseOf(want, 3, func(s string) (int, error) { return count(s), nil })
			if n := count(text); err != nil || n < want || n > want+8 {
				t.Errorf("%s: %d tokens and not %d, %v", name, n, want, err)
			}
		}
	}
	if _, err := rig.ProseOf(100, 0, func(string) (int, error) { return 0, nil }); err == nil {
		t.Error("a text without tokens is long enough")
	}
	gone := errors.New("gone")
	if _, err := rig.ProseOf(100, 0, func(string) (int, error) { return 0, gone }); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}
