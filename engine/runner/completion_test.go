package runner_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompletion(t *testing.T) {
	tests := []struct {
		name, body string
		want       string // the picked fields
		reply      string
	}{
		{"end token", `{"prompt":"q:","response_fields":["content","tokens_predicted","tokens_evaluated","stop_type","truncated","tokens_cached"]}`,
			`{"content":"hello","stop_type":"eos","tokens_cached":7,"tokens_evaluated":2,"tokens_predicted":6,"truncated":false}`, "hello"},
		{"limit", `{"prompt":"q:","n_predict":3,"response_fields":["content","tokens_predicted","stop_type"]}`,
			`{"content":"hel","stop_type":"limit","tokens_predicted":3}`, "hello"},
		{"nothing to predict", `{"prompt":"q:","n_predict":0,"response_fields":["content","tokens_predicted","stop_type","timings/prompt_n","prompt/x","nope"]}`,
			`{"content":"","stop_type":"limit","timings/prompt_n":2,"tokens_predicted":0}`, "hello"},
		{"stop string over tokens", `{"prompt":"q:","stop":["lo w"],"response_fields":["content","stop_type","stopping_word"]}`,
			`{"content":"hel","stop_type":"word","stopping_word":"lo w"}`, "hello world"},
		{"the earliest of several", `{"prompt":"q:","stop":["world","o"],"response_fields":["content","stopping_word"]}`,
			`{"content":"hell","stopping_word":"o"}`, "hello world"},
		{"stop string not met", `{"prompt":"q:","stop":"hells","response_fields":["content","stop_type"]}`,
			`{"content":"hello","stop_type":"eos"}`, "hello"},
		{"beginning of a stop string at the end", `{"prompt":"q:","stop":"lot","response_fields":["content","stop_type"]}`,
			`{"content":"hello","stop_type":"eos"}`, "hello"},
		{"tokens", `{"prompt":"q:","return_tokens":true,"n_predict":2,"response_fields":["tokens"]}`, `{"tokens":[104,101]}`, "hello"},
		{"line end", `{"prompt":"q:","response_fields":["has_new_line"]}`, `{"has_new_line":true}`, "a\nb"},
		{"prompt of ids", `{"prompt":[113,58],"response_fields":["content","prompt"]}`, `{"content":"hello","prompt":"q:"}`, "hello"},
		{"mixed prompt", `{"prompt":[113,"<|user|>:"],"response_fields":["prompt","tokens_evaluated"]}`, `{"prompt":"q<|user|>:","tokens_evaluated":3}`, "x"},
		{"empty prompt", `{"prompt":"","response_fields":["content","stop_type","tokens_predicted"]}`, `{"content":"","stop_type":"none","tokens_predicted":0}`, "x"},
		{"whole characters", `{"prompt":"q:","response_fields":["content"]}`, `{"content":"é€😀"}`, "é€😀"},
		{"cut character", `{"prompt":"q:","n_predict":3,"response_fields":["content"]}`, "{\"content\":\"é\uFFFD\"}", "é€"},
		{"forbidden token", `{"prompt":"q:","n_predict":1,"logit_bias":[[104,false]],"response_fields":["content"]}`, `{"content":"\u0010"}`, "hello"},
		{"forbidden text", `{"prompt":"q:","n_predict":1,"logit_bias":[["h",false]],"response_fields":["content"]}`, `{"content":"\u0010"}`, "hello"},
		{"favoured token", `{"prompt":"q:","n_predict":1,"logit_bias":{"122":30},"response_fields":["content"]}`, `{"content":"z"}`, "hello"},
		{"favoured text", `{"prompt":"q:","n_predict":1,"logit_bias":{"z":30},"response_fields":["content"]}`, `{"content":"z"}`, "hello"},
		{"end token ignored", `{"prompt":"q:","n_predict":4,"ignore_eos":true,"response_fields":["stop_type","tokens_predicted"]}`,
			`{"stop_type":"limit","tokens_predicted":4}`, "ab"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, &fakeEngine{next: echo(tt.reply)}, 1, 256, func(f *fixture) {
				body := strings.Replace(tt.body, "{", `{"temperature":0,`, 1)
				if got := short(f.ok("/completion", body)); got != short(parse(t, tt.want)) {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
			})
		})
	}
}

func TestCompletionOfSeveralPrompts(t *testing.T) {
	bubble(t, &fakeEngine{next: echo("ok")}, 2, 256, func(f *fixture) {
		r := f.post("/completion", `{"prompt":["a:",[98,58],"c:"],"temperature":0,"response_fields":["index","content","prompt"]}`)
		want := `[{"content":"ok","index":0,"prompt":"a:"},{"content":"ok","index":1,"prompt":"b:"},{"content":"ok","index":2,"prompt":"c:"}]`
		if got := short(parse(t, string(r.body))); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// A stream must give the same text as an answer in one piece, never cut a
// character, and never show a part of a stop string.
func TestCompletionStream(t *testing.T) {
	tests := []struct {
		name, reply, stop, want string
		stopType                string
	}{
		{"plain", "hello", "", "hello", "eos"},
		{"characters of many bytes", "aé€😀b", "", "aé€😀b", "eos"},
		{"stop string", "say STOP now", "STOP", "say ", "word"},
		{"almost a stop string", "say STOOP now", "STOP", "say STOOP now", "eos"},
		{"stop string of many bytes", "one €two", "€t", "one ", "word"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, &fakeEngine{next: echo(tt.reply)}, 1, 256, func(f *fixture) {
				events := f.events("/completion", `{"prompt":"q:","temperature":0,"stream":true,"stop":[`+short(tt.stop)+`]}`)
				var text string
				var tokens int
				for i, e := range events {
					v := parse(t, e)
					part, _ := dig(v, "content").(string)
					if !valid(part) || tt.stopType == "word" && strings.Contains(part, tt.stop[:1]) {
						t.Errorf("event %d shows %q", i, part)
					}
					text += part
					ids, _ := dig(v, "tokens").([]any)
					tokens += len(ids)
					if stop := dig(v, "stop"); stop != (i == len(events)-1) {
						t.Errorf("event %d of %d has stop %v", i, len(events), stop)
					}
				}
				last := parse(t, events[len(events)-1])
				if text != tt.want || dig(last, "stop_type") != tt.stopType {
					t.Errorf("got %q and %v, want %q and %s", text, dig(last, "stop_type"), tt.want, tt.stopType)
				}
				want := len(tt.want)
				if tt.stopType == "eos" {
					want++
				}
				if tokens != want {
					t.Errorf("the events hold %d tokens, want %d", tokens, want)
				}
			})
		})
	}
}

func TestCompletionProbabilities(t *testing.T) {
	bubble(t, &fakeEngine{next: echo("é!")}, 1, 256, func(f *fixture) {
		v := f.ok("/completion", `{"prompt":"q:","temperature":0,"n_probs":2}`)
		rows, _ := dig(v, "completion_probabilities").([]any)
		if len(rows) != 4 { // two bytes, a mark and the end
			t.Fatalf("%d rows: %s", len(rows), short(rows))
		}
		first := rows[0]
		if short(dig(first, "bytes")) != "[195]" || dig(first, "token") != "" || dig(first, "id") != 195.0 {
			t.Errorf("a part of a character: %s", short(first))
		}
		if p, _ := dig(first, "logprob").(float64); p > 0 || p < -0.01 {
			t.Errorf("log-probability %v of a sure token", p)
		}
		if top, _ := dig(first, "top_logprobs").([]any); len(top) != 2 || dig(top[0], "id") != 195.0 || dig(top[1], "id") != 16.0 {
			t.Errorf("best tokens: %s", short(dig(first, "top_logprobs")))
		}
	})
}

func TestLegacyCompletion(t *testing.T) {
	bubble(t, &fakeEngine{next: echo("hello")}, 1, 256, func(f *fixture) {
		v := f.ok("/v1/completions", `{"prompt":"q:","temperature":0,"max_tokens":2,"logprobs":1}`)
		want := `{"object":"text_completion","model":"fake","finish_reason":"length","text":"he","tokens":["h","e"],"offsets":[0,1],"usage":{"completion_tokens":2,"prompt_tokens":2,"prompt_tokens_details":{"cached_tokens":0},"total_tokens":4}}`
		c := dig(v, "choices", 0)
		got := map[string]any{
			"object": dig(v, "object"), "model": dig(v, "model"), "finish_reason": dig(c, "finish_reason"), "text": dig(c, "text"),
			"tokens": dig(c, "logprobs", "tokens"), "offsets": dig(c, "logprobs", "text_offset"), "usage": dig(v, "usage"),
		}
		if d := cmp.Diff(parse(t, want), parse(t, short(got))); d != "" {
			t.Error(d)
		}
		if len(dig(c, "logprobs", "token_logprobs").([]any)) != 2 || len(dig(c, "logprobs", "top_logprobs", 0).(map[string]any)) != 1 || dig(c, "logprobs", "content", 0, "id") != 104.0 {
			t.Errorf("logprobs: %s", short(dig(c, "logprobs")))
		}
		v = f.ok("/v1/completions", `{"prompt":["a:","b:"],"temperature":0,"n":2}`)
		if choices, _ := dig(v, "choices").([]any); len(choices) != 4 || dig(choices[3], "index") != 3.0 || dig(choices[3], "logprobs") != nil || dig(choices[3], "finish_reason") != "stop" {
			t.Errorf("choices: %s", short(choices))
		}
		if n := dig(v, "usage", "prompt_tokens"); n != 4.0 {
			t.Errorf("two prompts of two tokens count as %v", n)
		}
	})
}

func TestLegacyStream(t *testing.T) {
	for _, usage := range []bool{false, true} {
		bubble(t, &fakeEngine{next: echo("hello")}, 1, 256, func(f *fixture) {
			events := f.events("/v1/completions", `{"prompt":"q:","temperature":0,"stream":true,"stream_options":{"include_usage":`+short(usage)+`}}`)
			checkStreamEnd(t, events, usage)
			var text string
			for _, e := range events[:len(events)-1] {
				part, _ := dig(parse(t, e), "choices", 0, "text").(string)
				text += part
			}
			if text != "hello" {
				t.Errorf("text %q", text)
			}
		})
	}
}

// checkStreamEnd checks an OpenAI stream's last events: the finish reason, then
// the usage if it was asked for, then the mark; and that all have one id.
func checkStreamEnd(t *testing.T, events []string, usage bool) {
	t.Helper()
	if events[len(events)-1] != "[DONE]" {
		t.Fatalf("the stream ends with %s", events[len(events)-1])
	}
	events = events[:len(events)-1]
	id := dig(parse(t, events[0]), "id")
	for i, e := range events {
		v := parse(t, e)
		choices, _ := dig(v, "choices").([]any)
		if dig(v, "id") != id || id == "" {
			t.Errorf("event %d has id %v, not %v", i, dig(v, "id"), id)
		}
		isUsage := usage && i == len(events)-1
		if (len(choices) == 0) != isUsage || (dig(v, "usage") != nil) != isUsage {
			t.Errorf("event %d of %d: %s", i, len(events), e)
		}
	}
	last := len(events) - 1
	if usage {
		last--
	}
	if reason := dig(parse(t, events[last]), "choices", 0, "finish_reason"); reason != "stop" {
		t.Errorf("the last choice has the finish reason %v", reason)
	}
}
