package chat_test

import (
	"testing"

	"onebit/engine/chat"
)

// What a form says is what the splitter finds.
func TestCallForm(t *testing.T) {
	sources := map[string]string{"new mistral": "{% for m in messages %}{{ m.content }}[TOOL_CALLS]{{ m.name }}[ARGS]{% endfor %}"}
	for _, name := range []string{"hermes", "qwen", "llama", "mistral", "magi"} {
		sources[name] = declaring[name]
	}
	write := func(f chat.CallForm, name, arguments string) string {
		if f.NameKey == "" {
			return name + f.NameEnd + arguments
		}
		return `{"` + f.NameKey + `": "` + name + `", "` + f.ArgumentsKey + `": ` + arguments + `}`
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			template := compile(t, source)
			form, ok := template.CallForm()
			if !ok {
				t.Fatal("the form is not known")
			}
			first, second := write(form, "f", `{"x": 1}`), write(form, "get_weather", `{}`)
			text := form.Open + first + form.Another + second + form.Close
			switch {
			case form.Single:
				text = form.Open + first + form.Close
			case !form.Lists:
				text = form.Open + first + form.Close + form.Another + form.Open + second + form.Close
			}
			s := template.Splitter(chat.SplitOptions{Tools: tools})
			var a chat.Answer
			a.Add(s.Push(text)...)
			a.Add(s.Close()...)
			want := 2
			if form.Single {
				want = 1
			}
			if len(a.Calls) != want || a.Content != "" || a.Calls[0].Name != "f" || a.Calls[0].Arguments != `{"x": 1}` || want == 2 && a.Calls[1].Name != "get_weather" || s.Finish("stop") != "tool_calls" {
				t.Errorf("%q is %+v", text, a)
			}
		})
	}
	for name, source := range map[string]string{
		"no calls":                  declaring["plain"],
		"functions in tags":         declaring["hermes"] + "<function=f>",
		"arguments in tags":         declaring["qwen"] + "<arg_key>",
		"thoughts alone are not it": declaring["think"],
	} {
		if form, ok := compile(t, source).CallForm(); ok {
			t.Errorf("%s: %+v", name, form)
		}
	}
}

func TestThoughts(t *testing.T) {
	qwen, plain := compile(t, declaring["qwen"]), compile(t, declaring["plain"])
	for prompt, want := range map[string]chat.Thoughts{
		"hello":                       {Open: "<think>", Close: "</think>"},
		"hello <think>\n":             {Open: "<think>", Close: "</think>", Begun: true},
		"hello <think>\n\n</think>\n": {Open: "<think>", Close: "</think>", Over: true},
	} {
		if got := qwen.Thoughts(prompt); got != want {
			t.Errorf("%q: %+v", prompt, got)
		}
		if got := plain.Thoughts(prompt); got != (chat.Thoughts{}) {
			t.Errorf("a template without: %+v", got)
		}
	}
}
