package chat_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/chat"
)

// templates that declare what the splitter looks for.
var declaring = map[string]string{
	"plain":   "{% for m in messages %}{{ m.content }}{% endfor %}",
	"think":   "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}<think>",
	"hermes":  "{% for m in messages %}{{ m.content }}<tool_call></tool_call>{% endfor %}",
	"qwen":    "{% for m in messages %}{{ m.content }}<tool_call></tool_call></think>{% endfor %}",
	"llama":   "{{ '{\"name\": function name, \"parameters\": dictionary of arguments}' }}{% for m in messages %}{{ m.content }}{% endfor %}",
	"mistral": "{% for m in messages %}{{ m.content }}[TOOL_CALLS]{% endfor %}",
	"magi":    "{% for m in messages %}{{ m.content }}[THINK][/THINK][TOOL_CALLS]{% endfor %}",
}

func compile(t testing.TB, source string) *chat.Template {
	t.Helper()
	template, err := chat.New(source, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// counting is o with ids that count up.
func counting(o chat.SplitOptions) chat.SplitOptions {
	n := 0
	o.NewID = func() string { n++; return fmt.Sprintf("id%d", n) }
	return o
}

var (
	tools     = []string{"f", "get_weather"}
	long      = strings.Repeat("0123456789", 200)
	splitting = []struct {
		name, template, prompt string
		reasoning              bool
		tools                  []string
		text                   string
		want                   chat.Answer
	}{
		{"text", "plain", "", true, tools, " Hello <world> ", chat.Answer{Content: " Hello <world> "}},
		{"nothing", "qwen", "", true, tools, "", chat.Answer{}},
		{"white space", "plain", "", true, tools, " \n", chat.Answer{Content: " \n"}},

		{"thoughts", "think", "", true, nil, "<think>\nhm\n</think>\n\nyes ", chat.Answer{Reasoning: "hm\n", Content: "yes "}},
		{"thoughts after white space", "think", "", true, nil, "\n <think>hm</think>yes", chat.Answer{Reasoning: "hm", Content: "yes"}},
		{"no thoughts", "think", "", true, nil, "\n yes <think>no</think>", chat.Answer{Content: "yes <think>no</think>"}},
		{"thoughts without end", "think", "", true, nil, "<think>hm </thi", chat.Answer{Reasoning: "hm </thi"}},
		{"empty thoughts", "think", "", true, nil, "<think>\n\n</think>\n\nyes", chat.Answer{Content: "yes"}},
		{"thoughts opened by the prompt", "think", "...<think>\n", true, nil, "\nhm</think>yes", chat.Answer{Reasoning: "hm", Content: "yes"}},
		{"thoughts opened twice", "think", "<think>", true, nil, "<think>hm</think>yes", chat.Answer{Reasoning: "hm", Content: "yes"}},
		{"thoughts closed by the prompt", "think", "<think>\n\n</think>\n\n", true, nil, "yes", chat.Answer{Content: "yes"}},
		{"thoughts not kept apart", "think", "", false, nil, "<think>hm</think>yes", chat.Answer{Content: "<think>hm</think>yes"}},
		{"thoughts unknown to the template", "plain", "", true, nil, "<think>hm</think>yes", chat.Answer{Content: "<think>hm</think>yes"}},
		{"second thoughts", "think", "", true, nil, "<think>a</think>b<think>c</think>", chat.Answer{Reasoning: "a", Content: "b<think>c</think>"}},
		{"only part of a tag", "think", "", true, nil, "<thi", chat.Answer{Content: "<thi"}},
		{"other tags", "magi", "", true, nil, "[THINK]hm[/THINK]yes", chat.Answer{Reasoning: "hm", Content: "yes"}},

		{"call", "hermes", "", true, tools, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>",
			chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a": [1, "}"]}`}}}},
		{"call after text", "hermes", "", true, tools, "Wait.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
			chat.Answer{Content: "Wait.\n", Calls: []chat.Call{{"id1", "f", "{}"}}}},
		{"two calls", "hermes", "", true, tools, "\n<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n</tool_call>\n<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{\"b\":2}}\n</tool_call>\n",
			chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a":1}`}, {"id2", "get_weather", `{"b":2}`}}}},
		{"two calls in one tag", "hermes", "", true, tools, "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n{\"name\":\"f\"}</tool_call>",
			chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a":1}`}, {"id2", "f", `{}`}}}},
		{"calls in a list", "hermes", "", true, tools, "<tool_call>[{\"name\":\"f\",\"arguments\":{\"a\":1}}, {\"name\":\"f\"}]</tool_call>",
			chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a":1}`}, {"id2", "f", `{}`}}}},
		{"text after a call", "hermes", "", true, tools, "<tool_call>{\"name\":\"f\"}</tool_call>\n done",
			chat.Answer{Content: "\n done", Calls: []chat.Call{{"id1", "f", `{}`}}}},
		{"call without end tag", "hermes", "", true, tools, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}", chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a":1}`}}}},
		{"call without last brace", "hermes", "", true, tools, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}\n</tool_call>ok",
			chat.Answer{Content: "ok", Calls: []chat.Call{{"id1", "f", `{"a":1}`}}}},
		{"end tag in a string", "hermes", "", true, tools, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"</tool_call>\"}}</tool_call>",
			chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a":"</tool_call>"}`}}}},
		{"arguments first", "hermes", "", true, tools, "<tool_call>{\"arguments\":{\"a\":1},\"name\":\"f\"}</tool_call>", chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a":1}`}}}},
		{"arguments as text", "hermes", "", true, tools, `<tool_call>{"name":"f","arguments":"{\"a\":\"\\u00e9\"}"}</tool_call>`,
			chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a":"\u00e9"}`}}}},
		{"null arguments", "hermes", "", true, tools, `<tool_call>{"name":"f","arguments":null}</tool_call>`, chat.Answer{Calls: []chat.Call{{"id1", "f", `{}`}}}},
		{"unknown tool", "hermes", "", true, tools, `<tool_call>{"name":"g"}</tool_call>`, chat.Answer{Calls: []chat.Call{{"id1", "g", `{}`}}}},
		{"long arguments", "hermes", "", true, tools, `<tool_call>{"name":"f","arguments":{"a":"` + long + `"}}</tool_call>`,
			chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a":"` + long + `"}`}}}},
		{"call after thoughts", "qwen", "", true, tools, "<think>I <tool_call> it</think>\n\n<tool_call>\n{\"name\":\"f\"}\n</tool_call>",
			chat.Answer{Reasoning: "I <tool_call> it", Calls: []chat.Call{{"id1", "f", `{}`}}}},

		{"not JSON", "hermes", "", true, tools, "<tool_call>\nhello\n</tool_call>", chat.Answer{Content: "<tool_call>\nhello\n</tool_call>"}},
		{"bad JSON", "hermes", "", true, tools, " <tool_call>{\"name\": f}</tool_call> x", chat.Answer{Content: " <tool_call>{\"name\": f}</tool_call> x"}},
		{"bad arguments", "hermes", "", true, tools, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru}}</tool_call>",
			chat.Answer{Content: "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru}}</tool_call>"}},
		{"arguments of another kind", "hermes", "", true, tools, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
			chat.Answer{Content: "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"}},
		{"no name", "hermes", "", true, tools, "<tool_call>{\"a\": 1}</tool_call>", chat.Answer{Content: "<tool_call>{\"a\": 1}</tool_call>"}},
		{"cut off", "hermes", "", true, tools, "<tool_call>{\"name\": \"f\", \"argu", chat.Answer{Content: "<tool_call>{\"name\": \"f\", \"argu"}},
		{"cut off trigger", "hermes", "", true, tools, "so <tool_c", chat.Answer{Content: "so <tool_c"}},
		{"good call, bad call", "hermes", "", true, tools, "<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>{x}</tool_call>",
			chat.Answer{Content: "\n<tool_call>{x}</tool_call>", Calls: []chat.Call{{"id1", "f", `{}`}}}},
		{"long arguments cut off", "hermes", "", true, tools, `<tool_call>{"name":"f","arguments":{"a":"` + long,
			chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a":"` + long}}}},
		{"long arguments gone wrong", "hermes", "", true, tools, `<tool_call>{"name":"f","arguments":{"a":"` + long + "\n\"}}</tool_call>ok",
			chat.Answer{Content: "ok", Calls: []chat.Call{{"id1", "f", `{"a":"` + long + "\n\"}}"}}}},
		{"rubbish after long arguments", "hermes", "", true, tools, `<tool_call>{"name":"f","arguments":{"a":"` + long + `"}, x}</tool_call>`,
			chat.Answer{Content: ", x}</tool_call>", Calls: []chat.Call{{"id1", "f", `{"a":"` + long + `"}`}}}},
		{"no tools in the request", "hermes", "", true, nil, `<tool_call>{"name":"f"}</tool_call>`, chat.Answer{Content: `<tool_call>{"name":"f"}</tool_call>`}},
		{"bare JSON is text", "hermes", "", true, tools, `{"name":"f","arguments":{}}`, chat.Answer{Content: `{"name":"f","arguments":{}}`}},
		{"format unknown to the template", "plain", "", true, tools, `<tool_call>{"name":"f"}</tool_call>`, chat.Answer{Content: `<tool_call>{"name":"f"}</tool_call>`}},

		{"llama call", "llama", "", true, tools, ` {"name": "f", "parameters": {"a": 1}}`, chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a": 1}`}}}},
		{"llama call with tag", "llama", "", true, tools, `<|python_tag|>{"type": "function", "name": "g", "parameters": {}}`, chat.Answer{Calls: []chat.Call{{"id1", "g", `{}`}}}},
		{"llama calls", "llama", "", true, tools, `{"name": "f", "parameters": {"a": 1}}; {"name": "f", "parameters": {"a": 2}}`,
			chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a": 1}`}, {"id2", "f", `{"a": 2}`}}}},
		{"llama JSON that is no call", "llama", "", true, tools, `{"name": "Bob", "age": 3} is he`, chat.Answer{Content: `{"name": "Bob", "age": 3} is he`}},
		{"llama JSON of a known name", "llama", "", true, tools, `{"name": "f"}`, chat.Answer{Content: `{"name": "f"}`}},
		{"llama code", "llama", "", true, tools, `<|python_tag|>print(1)`, chat.Answer{Content: `<|python_tag|>print(1)`}},
		{"llama text, then JSON", "llama", "", true, tools, `So: {"name": "f", "parameters": {}}`, chat.Answer{Content: `So: {"name": "f", "parameters": {}}`}},
		{"llama long call", "llama", "", true, tools, `{"name": "f", "parameters": {"a": "` + long + `"}}`, chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a": "` + long + `"}`}}}},

		{"mistral list", "mistral", "", true, tools, `[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "abcdefghi"}, {"name": "f", "arguments": {}}]`,
			chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a": 1}`}, {"id2", "f", `{}`}}}},
		{"mistral names", "mistral", "", true, tools, `On it.[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"b": 2}`,
			chat.Answer{Content: "On it.", Calls: []chat.Call{{"id1", "f", `{"a": 1}`}, {"id2", "get_weather", `{"b": 2}`}}}},
		{"mistral name and object", "mistral", "", true, tools, `[TOOL_CALLS]f{"a": 1}`, chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a": 1}`}}}},
		{"mistral long arguments", "mistral", "", true, tools, `[TOOL_CALLS]f[ARGS]{"a": "` + long + `"}`, chat.Answer{Calls: []chat.Call{{"id1", "f", `{"a": "` + long + `"}`}}}},
		{"mistral rubbish", "mistral", "", true, tools, `[TOOL_CALLS] I shall call {"a": 1}`, chat.Answer{Content: `[TOOL_CALLS] I shall call {"a": 1}`}},
		{"mistral cut off", "mistral", "", true, tools, `[TOOL_CALLS]f[ARGS]{"a"`, chat.Answer{Content: `[TOOL_CALLS]f[ARGS]{"a"`}},
	}
)

// split runs text through a splitter in pieces that end at the cuts.
func split(s *chat.Splitter, text string, cuts ...int) (chat.Answer, []chat.Delta) {
	var all []chat.Delta
	at := 0
	for _, cut := range append(cuts, len(text)) {
		all = append(all, s.Push(text[at:cut])...)
		at = cut
	}
	all = append(all, s.Close()...)
	var a chat.Answer
	a.Add(all...)
	return a, all
}

// checkShape checks each step against what streaming clients rely on.
func checkShape(deltas []chat.Delta) error {
	began := 0
	for _, d := range deltas {
		set := 0
		for _, on := range []bool{d.Content != "", d.Reasoning != "", d.Call != nil} {
			if on {
				set++
			}
		}
		switch c := d.Call; {
		case set != 1:
			return fmt.Errorf("%+v sets %d fields", d, set)
		case c == nil:
		case c.Name != "" && (c.ID == "" || c.Arguments != "" || c.Index != began):
			return fmt.Errorf("first step of a call: %+v after %d calls", *c, began)
		case c.Name != "":
			began++
		case c.ID != "" || c.Arguments == "" || c.Index != began-1:
			return fmt.Errorf("later step of a call: %+v after %d calls", *c, began)
		}
	}
	return nil
}

func TestSplitter(t *testing.T) {
	for _, c := range splitting {
		t.Run(c.name, func(t *testing.T) {
			template := compile(t, declaring[c.template])
			o := chat.SplitOptions{Prompt: c.prompt, Reasoning: c.reasoning, Tools: c.tools}
			ways := [][]int{nil, {}}
			for i := range c.text {
				ways[1] = append(ways[1], i)
			}
			random := rand.New(rand.NewPCG(1, 2))
			for range 20 {
				var cuts []int
				for i := range c.text {
					if random.IntN(7) == 0 {
						cuts = append(cuts, i)
					}
				}
				ways = append(ways, cuts)
			}
			for _, cuts := range ways {
				s := template.Splitter(counting(o))
				got, deltas := split(s, c.text, cuts...)
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Fatalf("cut at %v (-want +got):\n%s", cuts, diff)
				}
				if err := checkShape(deltas); err != nil {
					t.Fatalf("cut at %v: %v", cuts, err)
				}
				want := "stop"
				if len(c.want.Calls) > 0 {
					want = "tool_calls"
				}
				if got := s.Finish("stop"); got != want {
					t.Errorf("finish reason %q, want %q", got, want)
				}
				if got := s.Finish("length"); got != "length" {
					t.Errorf("finish reason at the limit %q", got)
				}
			}
		})
	}
}

// TestSplitterIsPrompt expects text out as soon as it is certain.
func TestSplitterIsPrompt(t *testing.T) {
	s := compile(t, declaring["qwen"]).Splitter(counting(chat.SplitOptions{Reasoning: true, Tools: tools}))
	for i, step := range []struct {
		push string
		want []chat.Delta
	}{
		{"<thi", nil},
		{"nk>a", []chat.Delta{{Reasoning: "a"}}},
		{" b</th", []chat.Delta{{Reasoning: " b"}}},
		{"ink>\n", nil},
		{"Hello", []chat.Delta{{Content: "Hello"}}},
		{" <", []chat.Delta{{Content: " "}}},
		{"b> ", []chat.Delta{{Content: "<b> "}}},
		{"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", nil},
		{long[:600], []chat.Delta{{Call: &chat.CallDelta{ID: "id1", Name: "f"}}, {Call: &chat.CallDelta{Arguments: `{"a": "` + long[:600]}}}},
		{"x", []chat.Delta{{Call: &chat.CallDelta{Arguments: "x"}}}},
		{`"}}</tool`, []chat.Delta{{Call: &chat.CallDelta{Arguments: `"}`}}}},
		{"_call>", nil},
	} {
		got := s.Push(step.push)
		if diff := cmp.Diff(step.want, append([]chat.Delta(nil), got...)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	if got := s.Close(); len(got) > 0 {
		t.Errorf("Close returned %v", got)
	}
}

func TestCallIDs(t *testing.T) {
	for template, length := range map[string]int{"hermes": 31, "mistral": 9} {
		compiled := compile(t, declaring[template])
		seen := map[string]bool{}
		for range 100 {
			s := compiled.Splitter(chat.SplitOptions{Tools: tools})
			var a chat.Answer
			a.Add(s.Push(`<tool_call>{"name":"f"}</tool_call>[TOOL_CALLS]f[ARGS]{}`)...)
			a.Add(s.Close()...)
			if len(a.Calls) != 1 || len(a.Calls[0].ID) != length || seen[a.Calls[0].ID] {
				t.Fatalf("%s: calls %+v", template, a.Calls)
			}
			seen[a.Calls[0].ID] = true
		}
	}
}

func TestMarkers(t *testing.T) {
	for template, want := range map[string][]string{
		"plain":   nil,
		"qwen":    {"<think>", "</think>", "<tool_call>", "</tool_call>"},
		"llama":   {"<|python_tag|>"},
		"mistral": {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
		"magi":    {"[THINK]", "[/THINK]", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
	} {
		compiled := compile(t, declaring[template])
		if diff := cmp.Diff(want, compiled.Markers()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", template, diff)
		}
	}
}

// FuzzSplitter cuts a text at random places: the whole must be that of the uncut text, and hold all of it.
func FuzzSplitter(f *testing.F) {
	for i, c := range splitting {
		f.Add(c.text, uint64(i), uint8(i))
	}
	var compiled []*chat.Template
	for _, name := range slices.Sorted(maps.Keys(declaring)) {
		compiled = append(compiled, compile(f, declaring[name]))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64, which uint8) {
		random := rand.New(rand.NewPCG(seed, 1))
		template := compiled[int(which)%len(compiled)]
		run := func(cuts []int) (chat.Answer, []chat.Delta) {
			return split(template.Splitter(counting(chat.SplitOptions{Reasoning: seed%3 != 0, Tools: tools})), text, cuts...)
		}
		var cuts []int
		for at := 0; at < len(text); at += 1 + random.IntN(9) {
			cuts = append(cuts, at)
		}
		whole, steps := run(nil)
		cut, cutSteps := run(cuts)
		if diff := cmp.Diff(whole, cut); diff != "" {
			t.Errorf("cut at %v (-whole +cut):\n%s", cuts, diff)
		}
		if err := errors.Join(checkShape(steps), checkShape(cutSteps)); err != nil {
			t.Error(err)
		}
		if len(whole.Calls) == 0 {
			got := strings.Join(strings.Fields(whole.Reasoning+whole.Content), "")
			want := strings.Join(strings.Fields(text), "")
			for _, tag := range []string{"<think>", "</think>", "[THINK]", "[/THINK]"} {
				got, want = strings.ReplaceAll(got, tag, ""), strings.ReplaceAll(want, tag, "")
			}
			if got != want && !strings.Contains(text, "\ufffd") {
				t.Errorf("text %q came out as %q", want, got)
			}
		}
	})
}

// fragments make texts that come near to calls and thoughts in many ways.
var fragments = []string{
	"<think>", "</think>", "[THINK]", "[/THINK]", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>",
	`{"name": "f", "arguments": {"a": 1}}`, `{"name": "f", "parameters": {}}`, `{"name": "f", "arguments": {"a": "`, `{"arguments": {"a": [`,
	`"`, "{", "}", "[", "]", ",", ":", ";", "\n", " ", "f", `"name"`, `"f"`, `"arguments"`, "text ", "é", `\`, "1", "null", "<", "</", "tool",
	strings.Repeat("x", 300),
}

// TestSplitterAnyCut: the whole does not depend on how a text is cut.
func TestSplitterAnyCut(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, name := range slices.Sorted(maps.Keys(declaring)) {
		template := compile(t, declaring[name])
		for range 1000 {
			var b strings.Builder
			for range random.IntN(12) {
				b.WriteString(fragments[random.IntN(len(fragments))])
			}
			text := b.String()
			var cuts []int
			for i := range text {
				if random.IntN(4) == 0 {
					cuts = append(cuts, i)
				}
			}
			o := chat.SplitOptions{Reasoning: random.IntN(4) > 0, Tools: tools}
			whole, _ := split(template.Splitter(counting(o)), text)
			cut, steps := split(template.Splitter(counting(o)), text, cuts...)
			if diff := cmp.Diff(whole, cut); diff != "" {
				t.Fatalf("%s: %q cut at %v (-whole +cut):\n%s", name, text, cuts, diff)
			}
			if err := checkShape(steps); err != nil {
				t.Fatalf("%s: %q cut at %v: %v", name, text, cuts, err)
			}
		}
	}
}
