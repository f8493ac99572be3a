package runner_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestBadRequests(t *testing.T) {
	const (
		chat   = "/v1/chat/completions"
		legacy = "/v1/completions"
		native = "/completion"
	)
	user := `"messages":[{"role":"user","content":"x"}]`
	tests := []struct {
		name, path, body string
		param            string // named by the answer
		words            string // in the message
	}{
		{"not JSON", chat, `{"messages"`, "", "not JSON"},
		{"empty body", chat, ``, "", "not JSON"},
		{"an array", chat, `[]`, "", "object"},
		{"null", "/tokenize", `null`, "", "object"},
		{"text after the object", "/tokenize", `{} x`, "", "not JSON"},
		{"no messages", chat, `{}`, "messages", "required"},
		{"empty messages", chat, `{"messages":[]}`, "messages", "empty"},
		{"messages of the wrong type", chat, `{"messages":"x"}`, "messages", "array"},
		{"unknown role", chat, `{"messages":[{"role":"wizard","content":"x"}]}`, "messages[0].role", "wizard"},
		{"no role", chat, `{"messages":[{"content":"x"}]}`, "messages[0].role", "required"},
		{"no content", chat, `{"messages":[{"role":"user"}]}`, "messages[0].content", "required"},
		{"empty assistant", chat, `{"messages":[{"role":"user","content":"x"},{"role":"assistant"}]}`, "messages[1].content", "tool_calls"},
		{"content of the wrong type", chat, `{"messages":[{"role":"user","content":5}]}`, "messages[0].content", "string"},
		{"an image", chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}]}`, "messages[0].content[0].type", "text parts"},
		{"an unknown part", chat, `{"messages":[{"role":"user","content":[{"type":"smell"}]}]}`, "messages[0].content[0].type", "text parts"},
		{"template refuses", chat, `{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`, "messages", "alternate"},
		{"call to continue", chat, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","tool_calls":[{"type":"function"}]}]}`, "messages[1]", "tool calls"},
		{"negative max_tokens", chat, `{` + user + `,"max_tokens":-1}`, "max_tokens", ""},
		{"negative max_completion_tokens", chat, `{` + user + `,"max_completion_tokens":-1}`, "max_completion_tokens", ""},
		{"max_tokens of the wrong type", chat, `{` + user + `,"max_tokens":"5"}`, "max_tokens", ""},
		{"half a token", chat, `{` + user + `,"max_tokens":1.5}`, "max_tokens", ""},
		{"n_predict below -1", native, `{"prompt":"x","n_predict":-2}`, "n_predict", "between"},
		{"n_predict of the wrong type", native, `{"prompt":"x","n_predict":[]}`, "n_predict", "array"},
		{"n_predict without end", native, `{"prompt":"x","n_predict":1e300}`, "n_predict", "between"},
		{"temperature of the wrong type", chat, `{` + user + `,"temperature":"hot"}`, "temperature", ""},
		{"temperature out of range", native, `{"prompt":"x","dry_base":1,"min_p":0,"xtc_probability":1e999}`, "xtc_probability", "range"},
		{"stream of the wrong type", chat, `{` + user + `,"stream":1}`, "stream", ""},
		{"stream_options of the wrong type", chat, `{` + user + `,"stream_options":{"include_usage":"yes"}}`, "stream_options.include_usage", ""},
		{"stop of the wrong type", chat, `{` + user + `,"stop":{}}`, "stop", ""},
		{"logit_bias of the wrong type", native, `{"prompt":"x","logit_bias":"x"}`, "logit_bias", ""},
		{"no choices", chat, `{` + user + `,"n":0}`, "n", ""},
		{"too many choices", chat, `{` + user + `,"n":100000}`, "n", "between"},
		{"top_logprobs alone", chat, `{` + user + `,"top_logprobs":2}`, "top_logprobs", "logprobs"},
		{"too many top_logprobs", chat, `{` + user + `,"logprobs":true,"top_logprobs":21}`, "top_logprobs", "between"},
		{"unknown tool", chat, `{` + user + `,` + tools + `,"tool_choice":{"type":"function","function":{"name":"z"}}}`, "tool_choice", "z"},
		{"choice without tools", chat, `{` + user + `,"tool_choice":{"type":"function","function":{"name":"z"}}}`, "tool_choice", "z"},
		{"tool without a function", chat, `{` + user + `,"tools":[{"type":"web_search"},{"type":"function"}]}`, "tools[1].function.name", "required"},
		{"function without a name", chat, `{` + user + `,"tools":[{"type":"function","function":{"parameters":{}}}]}`, "tools[0].function.name", "required"},
		{"function that is none", chat, `{` + user + `,"tools":[{"type":"function","function":"f"}]}`, "tools[0].function", "object"},
		{"function with a number for a name", chat, `{` + user + `,"tools":[{"type":"function","function":{"name":1}}]}`, "tools[0].function.name", "string"},
		{"unknown tool choice", chat, `{` + user + `,"tool_choice":"maybe"}`, "tool_choice", "maybe"},
		{"kwargs of the wrong type", chat, `{` + user + `,"chat_template_kwargs":[1]}`, "chat_template_kwargs", "object"},
		{"enable_thinking of the wrong type", chat, `{` + user + `,"chat_template_kwargs":{"enable_thinking":"no"}}`, "chat_template_kwargs.enable_thinking", "boolean"},
		{"unknown reasoning format", chat, `{` + user + `,"reasoning_format":"loud"}`, "reasoning_format", "loud"},
		{"no schema", chat, `{` + user + `,"response_format":{"type":"json_schema","json_schema":{"name":"x"}}}`, "response_format.json_schema.schema", "required"},
		{"a schema that cannot be held to", chat, `{` + user + `,"response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a":{"not":{}}}}}}}`, "response_format.json_schema.schema", "#/properties/a/not"},
		{"llama-server's place for it", chat, `{` + user + `,"response_format":{"type":"json_object","schema":{"type":"x"}}}`, "response_format.schema", "#/type"},
		{"a schema that nothing satisfies", chat, `{` + user + `,"response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a":{"$ref":"#"}},"required":["a"]}}}}`, "response_format.json_schema.schema", "no text"},
		{"unknown response format", chat, `{` + user + `,"response_format":{"type":"xml"}}`, "response_format.type", "xml"},
		{"grammar", native, `{"prompt":"x","grammar":"root ::= \n \"a"}`, "grammar", "line 2, column 4"},
		{"a grammar that recurs", legacy, `{"prompt":"x","grammar":"root ::= root \"a\" | \"b\""}`, "grammar", "left recursion"},
		{"a grammar with a trigger", native, `{"prompt":"x","grammar":"root ::= \"a\"","grammar_lazy":true}`, "grammar_lazy", "not supported"},
		{"native schema", native, `{"prompt":"x","json_schema":{"items":{"uniqueItems":true}}}`, "json_schema", "#/items/uniqueItems"},
		{"two forms", native, `{"prompt":"x","json_schema":{},"grammar":"root ::= \"a\""}`, "json_schema", "only one"},
		{"a call without tools", chat, `{` + user + `,"tool_choice":"required"}`, "tool_choice", "no tools"},
		{"a choice of nothing", chat, `{` + user + `,` + tools + `,"tool_choice":{"type":"allowed_tools"}}`, "tool_choice", "function"},
		{"a call of what is no function", chat, `{` + user + `,"tools":[{"type":"web_search"}],"tool_choice":"required"}`, "tool_choice", "no tool is a function"},
		{"arguments that cannot be held to", chat, `{` + user + `,"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"a":{"if":{}}}}}}],"tool_choice":"required"}`, "tools[0].function.parameters", "#/properties/a/if"},
		{"a call and a grammar", chat, `{` + user + `,` + tools + `,"tool_choice":"required","grammar":"root ::= \"a\""}`, "grammar", "required"},
		{"a beginning that is no JSON", chat, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"Sure: "}],"json_schema":{}}`, "messages", "json_schema"},
		{"another server's schema", chat, `{` + user + `,"guided_json":{"type":"object"}}`, "guided_json", "response_format"},
		{"another server's forms", legacy, `{"prompt":"x","structured_outputs":{"regex":"a"}}`, "structured_outputs", "response_format"},
		{"mirostat", native, `{"prompt":"x","mirostat":2}`, "mirostat", "not supported"},
		{"post_sampling_probs", native, `{"prompt":"x","post_sampling_probs":true}`, "post_sampling_probs", "not supported"},
		{"no prompt", native, `{}`, "prompt", "required"},
		{"prompt of the wrong type", native, `{"prompt":5}`, "prompt", ""},
		{"a crowd of prompts", legacy, `{"prompt":["x"` + strings.Repeat(`,"x"`, 1024) + `]}`, "prompt", "more than 1024 answers"},
		{"empty list of prompts", legacy, `{"prompt":[]}`, "prompt", "empty"},
		{"prompt with an object", legacy, `{"prompt":["a",{}]}`, "prompt[1]", ""},
		{"unknown token", legacy, `{"prompt":[1,99999999]}`, "prompt[1]", "token"},
		{"negative token", "/detokenize", `{"tokens":[-1]}`, "tokens[0]", "token"},
		{"tokens of the wrong type", "/detokenize", `{"tokens":"a"}`, "tokens", "array"},
		{"echo", legacy, `{"prompt":"x","echo":true}`, "echo", "not supported"},
		{"suffix", legacy, `{"prompt":"x","suffix":"y"}`, "suffix", "not supported"},
		{"best_of", legacy, `{"prompt":"x","best_of":2}`, "best_of", "not supported"},
		{"unknown slot", native, `{"prompt":"x","id_slot":7}`, "id_slot", "slot 7"},
		{"field list of the wrong type", native, `{"prompt":"x","response_fields":[1]}`, "response_fields[0]", "string"},
		{"content of the wrong type for tokens", "/tokenize", `{"content":5}`, "content", "string"},
		{"flag of the wrong type", "/tokenize", `{"content":"x","add_special":"y"}`, "add_special", "boolean"},
		{"apply-template without messages", "/apply-template", `{}`, "messages", "required"},
	}
	bubble(t, &fakeEngine{next: echo("x")}, 1, 256, func(f *fixture) {
		for _, tt := range tests {
			r := f.post(tt.path, tt.body)
			if r.status != http.StatusBadRequest {
				t.Errorf("%s: status %d: %s", tt.name, r.status, r.body)
				continue
			}
			e := dig(r.json(t), "error")
			message, _ := dig(e, "message").(string)
			if dig(e, "type") != "invalid_request_error" || !strings.Contains(message, tt.words) {
				t.Errorf("%s: %s", tt.name, r.body)
			}
			if param, _ := dig(e, "param").(string); param != tt.param {
				t.Errorf("%s: names the field %q, want %q", tt.name, param, tt.param)
			}
		}
	})
}

// What clients send beside the fields that matter must not hurt.
func TestHarmlessFields(t *testing.T) {
	bubble(t, &fakeEngine{next: echo("x")}, 1, 256, func(f *fixture) {
		for _, extra := range []string{
			`"user":"me"`, `"store":true`, `"metadata":{"a":1}`, `"service_tier":"auto"`, `"prompt_cache_key":"k"`, `"parallel_tool_calls":true`,
			`"stream_options":{"include_usage":true}`, `"response_format":{"type":"text"}`, `"response_format":null`, `"grammar":""`, `"json_schema":null`,
			`"mirostat":0,"typical_p":1,"dry_multiplier":0,"xtc_probability":0,"top_n_sigma":-1`, `"lora":[]`, `"max_tokens":null`, `"stop":null`, `"stop":[""]`,
			`"tools":[]`, `"tool_choice":null`, `"logprobs":false`, `"seed":-1`, `"model":"another"`, `"unheard_of":[{}]`, `"max_tokens":16.0`,
		} {
			if r := f.post("/v1/chat/completions", `{`+hi+`,`+extra+`}`); r.status != http.StatusOK {
				t.Errorf("%s: status %d: %s", extra, r.status, r.body)
			}
		}
	})
}

func TestContextOverflow(t *testing.T) {
	bubble(t, &fakeEngine{next: echo("x")}, 2, 64, func(f *fixture) {
		long := strings.Repeat("y", 100)
		for path, body := range map[string]string{
			"/v1/chat/completions": `{"messages":[{"role":"user","content":"` + long + `"}],"stream":true}`,
			"/v1/completions":      `{"prompt":"` + long + `yyy"}`,
			"/completion":          `{"prompt":["a","` + long + `yyy"],"stream":true}`,
		} {
			r := f.post(path, body)
			e := dig(r.json(t), "error")
			message, _ := dig(e, "message").(string)
			if r.status != http.StatusBadRequest || dig(e, "type") != "exceed_context_size_error" || dig(e, "code") != "context_length_exceeded" ||
				dig(e, "n_prompt_tokens") != 103.0 || dig(e, "n_ctx") != 64.0 || !strings.Contains(message, "maximum context length") {
				t.Errorf("%s: %d %s", path, r.status, r.body)
			}
		}
	})
}

// An answer ends where the context does, and says so.
func TestContextFull(t *testing.T) {
	bubble(t, &fakeEngine{}, 1, 32, func(f *fixture) {
		v := f.ok("/completion", `{"prompt":"12345678","temperature":0,"response_fields":["tokens_predicted","stop_type","truncated"]}`)
		if got := short(v); got != `{"stop_type":"limit","tokens_predicted":24,"truncated":true}` {
			t.Error(got)
		}
		v = f.ok("/v1/chat/completions", `{`+hi+`}`)
		if reason := dig(v, "choices", 0, "finish_reason"); reason != "length" {
			t.Errorf("finish reason %v", reason)
		}
	})
}

func TestBodyLimit(t *testing.T) {
	e := &fakeEngine{next: echo("x")}
	f := start(t, e, configWithLimit(e, 100))
	f.awaitReady()
	r := f.post("/completion", `{"prompt":"`+strings.Repeat("x", 200)+`"}`)
	if r.status != http.StatusRequestEntityTooLarge || dig(r.json(t), "error", "code") != "request_too_large" {
		t.Errorf("status %d: %s", r.status, r.body)
	}
}

func TestUnknownRoutes(t *testing.T) {
	bubble(t, &fakeEngine{}, 1, 64, func(f *fixture) {
		tests := []struct {
			method, path string
			status       int
		}{
			{"GET", "/nothing", http.StatusNotFound},
			{"POST", "/", http.StatusNotFound},
			{"GET", "/v1/chat/completions", http.StatusMethodNotAllowed},
			{"DELETE", "/v1/models", http.StatusMethodNotAllowed},
			{"OPTIONS", "/v1/chat/completions", http.StatusMethodNotAllowed},
			{"POST", "/v1/messages", http.StatusNotImplemented},
			{"GET", "/slots/0", http.StatusMethodNotAllowed},
		}
		for _, tt := range tests {
			r := f.do(t.Context(), tt.method, tt.path, "{}")
			message, _ := dig(r.json(t), "error", "message").(string)
			if r.status != tt.status || !strings.Contains(message, tt.path) {
				t.Errorf("%s %s: %d %s", tt.method, tt.path, r.status, r.body)
			}
		}
	})
}
