package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/wire"
)

func TestAssembles(t *testing.T) {
	for body, want := range map[string]bool{
		`{"messages":[]}`: true,
		`{"messages":[],"n":3,"tools":[{}],"max_tokens":1}`:    true,
		`{"logprobs":false,"top_logprobs":null,"stop":[]}`:     true,
		`{"n_probs":0,"n_indent":0,"reasoning_format":"auto"}`: true,
		`{"logprobs":true}`:                      false,
		`{"top_logprobs":2}`:                     false,
		`{"n_probs":1}`:                          false,
		`{"stop":"x"}`:                           false,
		`{"stop":["x"]}`:                         false,
		`{"n_indent":2}`:                         false,
		`{"verbose":true}`:                       false,
		`{"reasoning_format":"deepseek-legacy"}`: false,
		`{"logprobs":true,`:                      false,
		`[]`:                                     false,
	} {
		if got := wire.Assembles([]byte(body)); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}

func TestAppendStreamed(t *testing.T) {
	const asked = `"stream":true,"stream_options":{"include_usage":true}`
	for in, want := range map[string]string{
		`{}`:                                 `{` + asked + `}`,
		`{"a": 1 }`:                          `{"a": 1 ,` + asked + `}`,
		`{"stream":false,"a":1}`:             `{"stream":true,"a":1,"stream_options":{"include_usage":true}}`,
		`{"stream_options":null,"stream":0}`: `{"stream_options":{"include_usage":true},"stream":true}`,
	} {
		if got := string(wire.AppendStreamed(nil, []byte(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// event is one chunk of a stream.
func event(choice, more string) string {
	if choice != "" {
		choice = "[" + choice + "]"
	} else {
		choice = "[]"
	}
	return `{"choices":` + choice + `,"created":5,"id":"c-1","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk"` + more + `}`
}

// delta is one choice of a chunk.
func delta(index int, delta, finish string) string {
	if finish != "null" {
		finish = `"` + finish + `"`
	}
	return fmt.Sprintf(`{"finish_reason":%s,"index":%d,"delta":%s}`, finish, index, delta)
}

// whole is an answer.
func whole(choices, more string) string {
	return `{"choices":[` + choices + `],"created":5,"model":"m","system_fingerprint":"b1","object":"chat.completion"` + more + `}`
}

func TestAssembly(t *testing.T) {
	const begin = `{"role":"assistant","content":null}`
	for _, c := range []struct {
		name   string
		events []string
		want   string
		err    error
	}{
		{"text", []string{
			event(delta(0, begin, "null"), ""),
			event(delta(0, `{"content":"Par"}`, "null"), ""),
			event(delta(0, `{"content":"is\n\u0001\"\\ <é>"}`, "null"), ""),
			event(delta(0, `{}`, "stop"), ""),
			event("", `,"usage":{"prompt_tokens":3},"timings":{"predicted_n":2}`),
		}, whole(`{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"Paris\n\u0001\"\\ <é>"}}`,
			`,"usage":{"prompt_tokens":3},"id":"c-1","timings":{"predicted_n":2}`), nil},
		{"thoughts", []string{
			event(delta(0, `{"reasoning_content":"So"}`, "null"), ""),
			event(delta(0, `{"reasoning_content":", yes"}`, "null"), ""),
			event(delta(0, `{"content":"Yes"}`, "null"), ""),
			event(delta(0, `{}`, "length"), ""),
		}, whole(`{"finish_reason":"length","index":0,"message":{"role":"assistant","content":"Yes","reasoning_content":"So, yes"}}`, `,"id":"c-1"`), nil},
		{"nothing", []string{event(delta(0, `{}`, "stop"), "")},
			whole(`{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":""}}`, `,"id":"c-1"`), nil},
		{"tools", []string{
			event(delta(0, begin, "null"), ""),
			event(delta(0, `{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"look","arguments":"{"}}]}`, "null"), ""),
			event(delta(0, `{"tool_calls":[{"index":0,"function":{"arguments":"\"x\":1}"}}]}`, "null"), ""),
			event(delta(0, `{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"go"}}]}`, "null"), ""),
			event(delta(0, `{}`, "tool_calls"), `,"timings":{}`),
		}, whole(`{"finish_reason":"tool_calls","index":0,"message":{"role":"assistant","content":"","tool_calls":[`+
			`{"type":"function","function":{"name":"look","arguments":"{\"x\":1}"},"id":"a"},`+
			`{"type":"function","function":{"name":"go","arguments":""},"id":"b"}]}}`, `,"id":"c-1","timings":{}`), nil},
		{"several choices, what the first took", []string{
			event(delta(1, `{"content":"b"}`, "null"), `,"timings":{"n":9}`),
			event(delta(0, `{"content":"a"}`, "null"), ""),
			event(delta(0, `{}`, "stop"), ""),
			event("", `,"usage":{"n":1},"timings":{"n":1}`),
			event(delta(1, `{"content":"c"}`, "null"), `,"timings":{"n":8}`),
			event(delta(1, `{}`, "length"), ""),
			event("", `,"usage":{"n":2},"timings":{"n":2}`),
		}, whole(`{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"a"}},`+
			`{"finish_reason":"length","index":1,"message":{"role":"assistant","content":"bc"}}`, `,"usage":{"n":1},"id":"c-1","timings":{"n":1}`), nil},
		{"one of two does not end", []string{
			event(delta(0, `{}`, "stop"), ""), event(delta(1, `{"content":"b"}`, "null"), ""),
		}, "", wire.ErrMalformed},
		{"no event", nil, "", wire.ErrMalformed},
		{"a choice out of range", []string{event(delta(1<<30, `{}`, "stop"), "")}, "", wire.ErrMalformed},
		{"a call out of range", []string{event(delta(0, `{"tool_calls":[{"index":-1}]}`, "stop"), "")}, "", wire.ErrMalformed},
		{"content that is no text", []string{event(delta(0, `{"content":[1]}`, "stop"), "")}, "", wire.ErrMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a wire.Assembly
			var err error
			for _, e := range c.events {
				if err = a.Add([]byte(e)); err != nil {
					break
				}
			}
			var got []byte
			if err == nil {
				got, err = a.Append(nil)
			}
			if string(got) != c.want || !errors.Is(err, c.err) {
				t.Errorf("%v (-want +got)\n%s", err, cmp.Diff(c.want, string(got)))
			}
			if err == nil && !json.Valid(got) {
				t.Error("it is not JSON")
			}
		})
	}
}

// FuzzAssembly holds that whatever is put together is JSON.
func FuzzAssembly(f *testing.F) {
	f.Add(`{"choices":[{"index":0,"delta":{"content":"a"}}]}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{}}`)
	f.Add(`{"choices":[{"index":1,"delta":{"tool_calls":[{"index":2,"id":"x"}]}}],"id":"\ud800"}`, `{}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		var a wire.Assembly
		for _, e := range []string{first, second} {
			if !json.Valid([]byte(e)) || strings.ToValidUTF8(e, "") != e {
				return // a reader of events lets nothing else through
			}
			if a.Add([]byte(e)) != nil {
				return
			}
		}
		got, err := a.Append(nil)
		if err == nil && !json.Valid(got) {
			t.Fatalf("%s and %s became %s", first, second, got)
		}
	})
}
