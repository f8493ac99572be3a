package runner_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"onebit/engine/chat"
	"onebit/engine/runner"
)

const person = `{"type":"object","properties":{"name":{"type":"string","maxLength":8},"age":{"type":"integer","minimum":0,"maximum":150}},"required":["name","age"],"additionalProperties":false}`

// everywhere are the requests that can say what the answer must be, with where its text is.
var everywhere = []struct {
	path, prompt string
	text         []any
}{
	{"/v1/chat/completions", hi, []any{"choices", 0, "message", "content"}},
	{"/v1/completions", `"prompt":"q:","temperature":0`, []any{"choices", 0, "text"}},
	{"/completion", `"prompt":"q:","temperature":0`, []any{"content"}},
}

func TestFormsOfAnswers(t *testing.T) {
	tests := []struct{ name, form, reply, want string }{
		{"what the model says", `"json_schema":` + person, `{"name": "Ada", "age": 36}`, `{"name": "Ada", "age": 36}`},
		{"OpenAI's schema", `"response_format":{"type":"json_schema","json_schema":{"name":"p","strict":true,"schema":` + person + `}}`, `{"name":"Ada","age":36} and more`, `{"name":"Ada","age":36}`},
		{"llama-server's", `"response_format":{"type":"json_object","schema":{"enum":["yes"]}}`, `no`, `"yes"`},
		{"any object", `"response_format":{"type":"json_object"}`, `{"a":[1,{}]}`, `{"a":[1,{}]}`},
		{"a grammar", `"grammar":"root ::= \"yes\" | \"no\""`, `no, thanks`, `no`},
		{"no form", `"response_format":{"type":"text"},"grammar":"","json_schema":null`, `what it likes`, `what it likes`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, &fakeEngine{next: after(tt.reply)}, 1, 256, func(f *fixture) {
				for _, e := range everywhere {
					v := f.ok(e.path, `{`+e.prompt+`,"reasoning_format":"none",`+tt.form+`}`)
					if got := dig(v, e.text...); got != tt.want {
						t.Errorf("%s: %s", e.path, short(v))
					}
					if reason := dig(v, "choices", 0, "finish_reason"); e.path != "/completion" && reason != "stop" {
						t.Errorf("%s: finish reason %v", e.path, reason)
					}
				}
			})
		})
	}
}

// after answers a prompt with reply, wherever the prompt ends: with the first token that is asked for.
func after(reply string) func([]int32) int32 {
	at := 0
	last := -1
	return func(tokens []int32) int32 {
		if len(tokens) != last+1 {
			at = 0
		}
		last = len(tokens)
		if at++; at <= len(reply) {
			return int32(reply[at-1])
		}
		return tokEnd
	}
}

// A model that says anything at all still says JSON of the schema, in each of several choices, streamed or not.
func TestFormsHoldWhateverTheModelSays(t *testing.T) {
	bubble(t, &fakeEngine{}, 2, 256, func(f *fixture) {
		for _, e := range everywhere[:2] {
			for seed := range 5 {
				body := fmt.Sprintf(`{%s,"reasoning_format":"none","n":3,"seed":%d,"temperature":1.5,"top_k":0,"json_schema":%s}`, strings.Replace(e.prompt, `,"temperature":0`, "", 1), seed, person)
				v := f.ok(e.path, body)
				for i := range 3 {
					text, _ := dig(v, append([]any{"choices", i}, e.text[2:]...)...).(string)
					var p struct {
						Name *string `json:"name"`
						Age  *int    `json:"age"`
					}
					d := json.NewDecoder(strings.NewReader(text))
					d.DisallowUnknownFields()
					if err := d.Decode(&p); err != nil || p.Name == nil || p.Age == nil || *p.Age > 150 || *p.Age < 0 || len([]rune(*p.Name)) > 8 {
						t.Errorf("%s: %s: %v", e.path, text, err)
					}
					if dig(v, "choices", i, "finish_reason") != "stop" {
						t.Errorf("%s: %s", e.path, short(v))
					}
				}
			}
		}
		v := f.ok("/v1/chat/completions", `{`+hi+`,"reasoning_format":"none","max_tokens":5,"json_schema":`+person+`}`)
		if text, _ := dig(v, "choices", 0, "message", "content").(string); len(text) != 5 || !strings.HasPrefix(text, "{") || dig(v, "choices", 0, "finish_reason") != "length" {
			t.Errorf("cut: %s", short(v))
		}
	})
}

// Thoughts are free; the form begins behind them.
func TestFormsAfterThoughts(t *testing.T) {
	thinking := strings.Replace(source, "<|assistant|>{% endif %}", "<|assistant|><think>\n{% endif %}", 1)
	tests := []struct{ name, template, more, reply, reasoning, content string }{
		{"of its own accord", source, "", "<think>well {</think>\n\n{\"name\":\"A\",\"age\":1}", "well {", `{"name":"A","age":1}`},
		{"none", source, "", `{"name":"A","age":1}`, "", `{"name":"A","age":1}`},
		{"none behind line ends", source, "", "\n\n{\"name\":\"A\",\"age\":1}", "", `{"name":"A","age":1}`},
		{"begun by the prompt", thinking, "", "hm</think>{\"name\":\"A\",\"age\":1} so", "hm", `{"name":"A","age":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			withTemplate(t, tt.template, &fakeEngine{next: after(tt.reply)}, func(f *fixture) {
				message := dig(f.ok("/v1/chat/completions", `{`+hi+`,"json_schema":`+person+tt.more+`}`), "choices", 0, "message")
				reasoning, _ := dig(message, "reasoning_content").(string)
				if reasoning != tt.reasoning || dig(message, "content") != tt.content {
					t.Errorf("message %s", short(message))
				}
			})
		})
	}
}

// What the rest of a request makes impossible is a 400, or an error in a stream that has begun.
func TestFormsThatNothingFits(t *testing.T) {
	bubble(t, &fakeEngine{next: after("yes")}, 1, 64, func(f *fixture) {
		body := `{"prompt":"q:","temperature":0,"grammar":"root ::= \"yes\"","logit_bias":[["e",false]]`
		if r := f.post("/completion", body+`}`); r.status != 400 || !strings.Contains(string(r.body), "bias") {
			t.Errorf("%d %s", r.status, r.body)
		}
		events := f.events("/completion", body+`,"stream":true}`)
		if last := events[len(events)-1]; !strings.Contains(last, "bias") {
			t.Errorf("%q", events)
		}
	})
}

// A model that ends within its thoughts has not answered: it goes on.
func TestNoEndWithinThoughts(t *testing.T) {
	bubble(t, &fakeEngine{next: after("<think>hm")}, 1, 64, func(f *fixture) {
		v := f.ok("/v1/chat/completions", `{`+hi+`,"json_schema":`+person+`}`)
		if dig(v, "choices", 0, "finish_reason") != "length" || dig(v, "choices", 0, "message", "content") != "" {
			t.Error(short(v))
		}
	})
}

// withTemplate runs a test with a model of another chat template.
func withTemplate(t *testing.T, source string, e *fakeEngine, test func(f *fixture)) {
	t.Helper()
	parts := fakeParts(e, 1, 512)
	template, err := chat.New(source, "", "<|end|>")
	if err != nil {
		t.Fatal(err)
	}
	parts.Template = template
	f := start(t, e, runner.Config{Load: loader(parts)})
	f.awaitReady()
	test(f)
}

// An answer that goes on from a beginning is whole together with it.
func TestFormsGoOnFromABeginning(t *testing.T) {
	bubble(t, &fakeEngine{next: after(`da","age":3}`)}, 1, 256, func(f *fixture) {
		v := f.ok("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"{\"name\":\"A"}],"temperature":0,"json_schema":`+person+`}`)
		if text := dig(v, "choices", 0, "message", "content"); text != `da","age":3}` {
			t.Error(short(v))
		}
	})
	// between the parts of an answer too, where nothing of one's own can hide, and at its two ends
	whole := `{"name":"Ada","age":3}`
	for _, at := range []int{0, 1, 8, 14, 20, len(whole) - 1, len(whole)} {
		bubble(t, &fakeEngine{next: after(whole[at:])}, 1, 256, func(f *fixture) {
			begun, _ := json.Marshal(whole[:at])
			v := f.ok("/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":%s}],"temperature":0,"json_schema":%s}`, begun, person))
			if text := dig(v, "choices", 0, "message", "content"); text != whole[at:] {
				t.Errorf("from %d: %s", at, short(v))
			}
		})
	}
}

const twoTools = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"x":{"type":"integer","minimum":1,"maximum":9}},"required":["x"],"additionalProperties":false}}},
	{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{},"additionalProperties":false}}}]`

// Models that would rather talk call when they must, in the form of each template that is known.
func TestRequiredCalls(t *testing.T) {
	templates := map[string]string{
		"hermes":      source,
		"llama":       strings.Replace(source, "calls in <tool_call>", `calls as {"name": function, "parameters": dictionary of arguments}`, 1),
		"mistral":     strings.Replace(source, "calls in <tool_call>", "calls in [TOOL_CALLS]", 1),
		"new mistral": strings.Replace(source, "calls in <tool_call>", "calls in [TOOL_CALLS]name[ARGS]", 1),
	}
	for name, template := range templates {
		t.Run(name, func(t *testing.T) {
			for seed := range 10 {
				withTemplate(t, template, &fakeEngine{}, func(f *fixture) {
					choose := []string{`"required"`, `{"type":"function","function":{"name":"f"}}`, `"required","parallel_tool_calls":false`}[seed%3]
					v := f.ok("/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"hi"}],"temperature":1,"top_k":0,"seed":%d,"logit_bias":{"60":2,"91":2},%s,"tool_choice":%s,"reasoning_format":"none"}`, seed, twoTools, choose))
					choice := dig(v, "choices", 0)
					calls, _ := dig(choice, "message", "tool_calls").([]any)
					if len(calls) == 0 || dig(choice, "finish_reason") != "tool_calls" || dig(choice, "message", "content") != nil || seed%3 > 0 && len(calls) > 1 {
						t.Fatalf("%s", short(choice))
					}
					for _, c := range calls {
						arguments, _ := dig(c, "function", "arguments").(string)
						var x map[string]int
						err := json.Unmarshal([]byte(arguments), &x)
						switch n := dig(c, "function", "name"); {
						case err == nil && n == "f" && len(x) == 1 && x["x"] >= 1 && x["x"] <= 9:
						case err == nil && n == "g" && len(x) == 0 && seed%3 != 1:
						default:
							t.Errorf("%s", short(c))
						}
					}
				})
			}
		})
	}
}

// A line end behind a call binds nobody to a second one.
func TestALineEndBehindACall(t *testing.T) {
	bubble(t, &fakeEngine{next: after("<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>\n")}, 1, 512, func(f *fixture) {
		choice := dig(f.ok("/v1/chat/completions", `{`+hi+`,`+twoTools+`,"tool_choice":"required"}`), "choices", 0)
		if calls, _ := dig(choice, "message", "tool_calls").([]any); len(calls) != 1 || dig(choice, "finish_reason") != "tool_calls" || dig(choice, "message", "content") != nil {
			t.Error(short(choice))
		}
	})
}

func TestRequiredCallsThatAreRefused(t *testing.T) {
	for name, template := range map[string]string{
		"no calls":      strings.Replace(source, "calls in <tool_call>", "none", 1),
		"calls in tags": strings.Replace(source, "calls in <tool_call>", "calls in <tool_call><function=name>", 1),
	} {
		t.Run(name, func(t *testing.T) {
			withTemplate(t, template, &fakeEngine{next: after("x")}, func(f *fixture) {
				r := f.post("/v1/chat/completions", `{`+hi+`,`+tools+`,"tool_choice":"required"}`)
				if r.status != 400 || dig(r.json(t), "error", "param") != "tool_choice" {
					t.Errorf("%d %s", r.status, r.body)
				}
				if r := f.post("/v1/chat/completions", `{`+hi+`,`+tools+`,"tool_choice":"auto"}`); r.status != 200 {
					t.Errorf("%d %s", r.status, r.body)
				}
			})
		})
	}
}

// Beside a schema, a model with tools may call one in place of an answer.
func TestACallInPlaceOfAForm(t *testing.T) {
	for reply, calls := range map[string]int{
		`{"name":"A","age":1}`: 0,
		"<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>": 1,
	} {
		bubble(t, &fakeEngine{next: after(reply)}, 1, 512, func(f *fixture) {
			message := dig(f.ok("/v1/chat/completions", `{`+hi+`,`+twoTools+`,"json_schema":`+person+`}`), "choices", 0, "message")
			got, _ := dig(message, "tool_calls").([]any)
			if len(got) != calls || calls == 0 && dig(message, "content") != reply {
				t.Errorf("%s", short(message))
			}
		})
	}
}
