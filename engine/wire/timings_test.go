package wire_test

import (
	"testing"

	"onebit/engine/wire"
)

func TestTimingsOf(t *testing.T) {
	for in, want := range map[string]wire.Timings{
		`{"choices":[],"timings":{"cache_n":30,"prompt_n":6,"prompt_ms":1.5,"predicted_n":8,"predicted_ms":40,"x":[1]}}`: {Prompt: 6, Answer: 8, PromptMs: 1.5, AnswerMs: 40},
		`{"timings":{"prompt_n":-6,"prompt_ms":1e99,"predicted_n":"8"}}`:                                                 {},
		`{"choices":[{"delta":{"content":"\"timings\""}}]}`:                                                              {},
		`{"timings":null}`: {}, `{"timings":[1`: {}, `{}`: {}, ``: {},
	} {
		if got, ok := wire.TimingsOf([]byte(in)); got != want || ok != (want != wire.Timings{}) {
			t.Errorf("%s: %+v, %v", in, got, ok)
		}
	}
}

func FuzzTimingsOf(f *testing.F) {
	f.Add(`{"choices":[],"timings":{"cache_n":30,"prompt_n":6,"prompt_ms":1.5,"predicted_n":8}}`)
	f.Add(`{"timings":{"prompt_n":1e400}}`)
	f.Fuzz(func(t *testing.T, in string) {
		if got, _ := wire.TimingsOf([]byte(in)); got.Prompt < 0 || got.Answer < 0 || !(got.PromptMs >= 0) || !(got.AnswerMs >= 0) {
			t.Errorf("%s: %+v", in, got)
		}
	})
}
