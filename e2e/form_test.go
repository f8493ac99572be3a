//go:build unix

package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestForms holds the built-in engine's answers to schemas and grammars, over each of the ways to ask.
func TestForms(t *testing.T) {
	s := start(t, "serve", "--port", "0", "-m", smollm2(t), "--device", "cpu", "--alias", "small", "--ctx-size", "2048")
	schema := obj{"type": "object", "properties": obj{"colour": obj{"enum": []string{"red", "blue"}}, "number": obj{"type": "integer", "minimum": 1, "maximum": 12}},
		"required": []string{"colour", "number"}, "additionalProperties": false}
	user := []obj{{"role": "user", "content": "Tell me about the sea."}}
	form := obj{"type": "json_schema", "schema": schema}
	for name, c := range map[string]struct {
		path string
		body obj
		text []any
	}{
		"chat":        {"/v1/chat/completions", obj{"messages": user, "response_format": obj{"type": "json_schema", "json_schema": obj{"name": "x", "schema": schema}}}, []any{"choices", 0, "message", "content"}},
		"completions": {"/v1/completions", obj{"prompt": "The sea", "json_schema": schema}, []any{"choices", 0, "text"}},
		"native":      {"/completion", obj{"prompt": "The sea", "json_schema": schema}, []any{"content"}},
		"messages":    {"/v1/messages", obj{"model": "small", "messages": user, "output_config": obj{"format": form}}, []any{"content", 0, "text"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.body["temperature"], c.body["seed"] = 1, 3
			c.body["max_tokens"] = 60
			if name == "messages" {
				delete(c.body, "seed")
			}
			r := s.post(c.path, c.body)
			text, _ := dig(r.json(t), c.text...).(string)
			var v struct {
				Colour string
				Number int
			}
			d := json.NewDecoder(strings.NewReader(text))
			d.DisallowUnknownFields()
			if err := d.Decode(&v); err != nil || r.status != 200 || v.Colour != "red" && v.Colour != "blue" || v.Number < 1 || v.Number > 12 {
				t.Errorf("%v: %d %s", err, r.status, r.body)
			}
		})
	}
	t.Run("a grammar", func(t *testing.T) {
		r := s.post("/v1/chat/completions", obj{"messages": user, "grammar": `root ::= ("yes" | "no") ", " [a-z]{3,5} "!"`, "max_tokens": 30})
		text, _ := dig(r.json(t), "choices", 0, "message", "content").(string)
		if r.status != 200 || !strings.HasSuffix(text, "!") || !strings.HasPrefix(text, "yes, ") && !strings.HasPrefix(text, "no, ") {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("cut by length", func(t *testing.T) {
		r := s.post("/v1/chat/completions", obj{"messages": user, "json_schema": obj{"type": "string", "minLength": 500}, "max_tokens": 10})
		if v := r.json(t); r.status != 200 || dig(v, "choices", 0, "finish_reason") != "length" {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("the official client", func(t *testing.T) {
		runTool(t, 5*time.Minute, python(t), "clients/openai_forms.py", s.URL+"/v1", "small")
	})
}

// TestRealForms does so with the 0.5B, whose template knows calls, and holds beside the reference which grammars are taken.
func TestRealForms(t *testing.T) {
	slow(t)
	own := start(t, "serve", "--port", "0", "-m", model(t, "qwen2.5-coder-0.5b"), "--device", "cpu", "--alias", "coder", "--ctx-size", "4096")
	t.Run("the official client", func(t *testing.T) {
		runTool(t, 5*time.Minute, python(t), "clients/openai_forms.py", own.URL+"/v1", "coder", "tools")
	})
	t.Run("Anthropic's choice", func(t *testing.T) {
		for _, choice := range []obj{{"type": "any", "disable_parallel_tool_use": true}, {"type": "tool", "name": "get_weather"}} {
			r := own.post("/v1/messages", obj{"model": "coder", "max_tokens": 100, "messages": []obj{{"role": "user", "content": "Tell me a joke."}}, "tool_choice": choice,
				"tools": []obj{{"name": "get_weather", "input_schema": obj{"type": "object", "properties": obj{"city": obj{"type": "string"}}, "required": []string{"city"}}}}})
			v := r.json(t)
			blocks, _ := v["content"].([]any)
			if r.status != 200 || v["stop_reason"] != "tool_use" || len(blocks) == 0 || dig(blocks[0], "type") != "tool_use" || dig(blocks[0], "input", "city") == nil {
				t.Errorf("%d %s", r.status, r.body)
			}
		}
	})
	reference := startLlama(t, "qwen2.5-coder-0.5b", "--alias", "coder", "--ctx-size", "4096")
	for name, grammar := range map[string]string{
		"a choice":                `root ::= "yes" | "no"`,
		"rules":                   "root ::= a b # both\na ::= \"x\"\n\nb ::= (\"y\"\n | \"z\")",
		"a line after a bar":      "root ::= \"a\" |\n \"b\"",
		"a line before a bar":     "root ::= \"a\"\n | \"b\"",
		"repetitions":             `root ::= "a"{2} [b]{1,} "c"{0,2} "d"*`,
		"a repetition of nothing": `root ::= {2}`,
		"no least":                `root ::= "a"{,2}`,
		"escapes":                 `root ::= "\x41\u00e4\"\\\n" [\]\-a]`,
		"an escape that is none":  `root ::= "\q"`,
		"open text":               `root ::= "a`,
		"open class":              `root ::= [a`,
		"open parenthesis":        `root ::= ("a"`,
		"nobody's rule":           `root ::= a`,
		"no root":                 `a ::= "x"`,
		"no sign":                 `root = "x"`,
		"left recursion":          `root ::= root "a" | "b"`,
		"hidden left recursion":   "root ::= a\na ::= \"x\"? a \"y\" | \"z\"",
		"right recursion":         `root ::= "a" root | "b"`,
		"negation and any":        `root ::= [^a-z\n] .`,
		"an underscore":           "root ::= a_b\na_b ::= \"x\"",
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(s *server) reply {
				return s.post("/completion", obj{"prompt": "Well:", "n_predict": 8, "temperature": 0, "grammar": grammar})
			}
			if a, b := ask(own), ask(reference); (a.status == 200) != (b.status == 200) {
				t.Errorf("%d %s\nreference: %d %s", a.status, a.body, b.status, b.body)
			}
		})
	}
}
