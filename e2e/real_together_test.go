//go:build unix

package e2e_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// together is a chat whose unstreamed answer is put together from a stream.
type together struct {
	name, text string
	more       obj
}

var realPlain = []together{
	{"an answer", german.text, obj{"max_tokens": 24}},
	{"cut by length", "Tell me about rivers.", obj{"max_tokens": 30}},
	{"one token", "Hello", obj{"max_tokens": 1}},
	{"signs of several bytes", "Repeat this: 日本語 🙂 é ü", obj{"max_tokens": 17}},
	{"two choices", german.text, obj{"max_tokens": 8, "n": 2}},
	{"without thinking", german.text, obj{"max_tokens": 8, "chat_template_kwargs": obj{"enable_thinking": false}}},
	{"a form", "Name a colour.", obj{"max_tokens": 40, "response_format": obj{"type": "json_schema", "json_schema": obj{"schema": obj{
		"type": "object", "properties": obj{"colour": obj{"enum": []string{"red", "blue"}}}, "required": []string{"colour"}}}}}},
	{"timings and progress", german.text, obj{"max_tokens": 8, "timings_per_token": true, "return_progress": true}},
	{"a stream was not asked for", german.text, obj{"max_tokens": 8, "stream": false, "stream_options": nil}},
}

var realToolCases = []together{
	{"a call", "What is the weather in Paris? Use the tool.", obj{"max_tokens": 64, "tools": []obj{weatherTool}}},
	{"a call that must be", "What is the weather in Paris?", obj{"max_tokens": 64, "tools": []obj{weatherTool}, "tool_choice": "required"}},
	{"a call cut by length", "What is the weather in Paris?", obj{"max_tokens": 12, "tools": []obj{weatherTool}, "tool_choice": "required"}},
	{"a tool and no call", french.text, obj{"max_tokens": 24, "tools": []obj{weatherTool}, "tool_choice": "none"}},
}

// realTogether holds that such an answer is the one that the server gives in one piece. A stop string that does not come
// makes that be asked for.
func realTogether(t *testing.T, s *server, cases []together) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ask := func(more obj) map[string]any {
				body := chat(c.text, obj{"temperature": 0, "seed": 1, "cache_prompt": false})
				maps.Copy(body, c.more)
				maps.Copy(body, more)
				r := s.post("/v1/chat/completions", body)
				if r.status != 200 {
					t.Fatalf("%d %s", r.status, r.body)
				}
				return forComparison(r.json(t))
			}
			got, want := ask(nil), ask(obj{"stop": []string{"\x01never"}})
			t.Logf("%v", dig(got, "choices", 0))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-in one piece +put together)\n%s", diff)
			}
		})
	}
}

// forComparison leaves out what no two answers have in common.
func forComparison(v map[string]any) map[string]any {
	delete(v, "created")
	if id, _ := v["id"].(string); strings.HasPrefix(id, "chatcmpl-") {
		v["id"] = "chatcmpl-"
	}
	timings, _ := v["timings"].(map[string]any)
	v["timings"] = slices.Sorted(maps.Keys(timings))
	choices, _ := v["choices"].([]any)
	for _, c := range choices {
		calls, _ := dig(c, "message", "tool_calls").([]any)
		for _, call := range calls {
			if m, ok := call.(map[string]any); ok && m["id"] != "" && m["id"] != nil {
				m["id"] = "given"
			}
		}
	}
	return v
}
