package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"onebit/engine"
	"onebit/engine/wire"
)

func TestTimingsUsage(t *testing.T) {
	for _, c := range []struct {
		in   string
		want engine.Usage
		ok   bool
	}{
		{`{"choices":[],"timings":{"cache_n":30,"prompt_n":6,"predicted_n":8,"prompt_ms":1.5}}`, engine.Usage{Prompt: 36, Cached: 30, Completion: 8}, true},
		{`{"timings":{"prompt_n":6,"predicted_n":8}}`, engine.Usage{Prompt: 6, Completion: 8}, true},
		{`{"choices":[{"delta":{"content":"\"timings\""}}]}`, engine.Usage{}, false},
		{`{"timings":null}`, engine.Usage{}, false},
		{`{"timings":{"predicted_n":-4}}`, engine.Usage{}, false},
		{`{"timings":{"predicted_n":"many"}}`, engine.Usage{}, false},
		{`{"timings":[1`, engine.Usage{}, false},
	} {
		if got, ok := wire.TimingsUsage([]byte(c.in)); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v", c.in, got, ok)
		}
	}
}

func TestAppendAskingUsage(t *testing.T) {
	for in, want := range map[string]string{
		`{"stream":true}`:                  `{"stream":true,"stream_options":{"include_usage":true}}`,
		`{}`:                               `{"stream_options":{"include_usage":true}}`,
		`{"stream_options":{"x":1},"a":2}`: `{"stream_options":{"x":1,"include_usage":true},"a":2}`,
		`{"stream_options":{"include_usage":false}}`: `{"stream_options":{"include_usage":true}}`,
		`{"stream_options":null,"stream":true}`:      `{"stream_options":{"include_usage":true},"stream":true}`,
	} {
		got := wire.AppendAskingUsage(nil, []byte(in))
		if string(got) != want || !json.Valid(got) {
			t.Errorf("%s became %s", in, got)
		}
	}
}

func TestOnlyUsage(t *testing.T) {
	for in, want := range map[string]bool{
		`{"choices":[],"usage":{"prompt_tokens":1}}`:  true,
		`{"choices":[ ],"usage":{"prompt_tokens":1}}`: true,
		`{"choices":[{"index":0}],"usage":{"a":1}}`:   false,
		`{"choices":[],"usage":null}`:                 false,
		`{"choices":[]}`:                              false,
		`{"choices":[`:                                false,
	} {
		if got := wire.OnlyUsage([]byte(in)); got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}

func FuzzCount(f *testing.F) {
	f.Add(`{"choices":[],"timings":{"cache_n":30,"prompt_n":6,"predicted_n":8}}`)
	f.Add(`{"stream_options":{"x":1},"a":2}`)
	f.Fuzz(func(t *testing.T, in string) {
		wire.TimingsUsage([]byte(in))
		wire.OnlyUsage([]byte(in))
		if !json.Valid([]byte(in)) || in[0] != '{' {
			return
		}
		if got := wire.AppendAskingUsage(nil, []byte(in)); !json.Valid(got) {
			t.Errorf("%s became %s", in, got)
		}
	})
}

func TestMostTokens(t *testing.T) {
	for body, want := range map[string]int{
		`{"messages":[]}`: 0, `{"max_tokens":5}`: 5, `{"max_completion_tokens":7.0,"x":{"max_tokens":1}}`: 7, `{"max_output_tokens":9}`: 9,
		`{"n_predict":-1}`: 0, `{"max_tokens":1e300}`: 0, `{"max_tokens":null}`: 0, `{"max_tok`: 0,
	} {
		if n := wire.MostTokens([]byte(body)); n != want {
			t.Errorf("%s: %d, want %d", body, n, want)
		}
	}
}

func TestGuessTokens(t *testing.T) {
	text := `{"messages":[{"role":"user","content":"sixteen letters!"}]}`
	image := `{"messages":[{"role":"user","content":[{"image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 1<<20) + `"}}]}]}`
	cut := `{"x":";base64,` + strings.Repeat("A", 1<<20)
	for body, most := range map[string]int{text: 15, image: 30, cut: 5, "": 0} {
		if n := wire.GuessTokens([]byte(body)); n > most || n < most/2 {
			t.Errorf("%.40s: %d tokens, want about %d", body, n, most)
		}
	}
}
