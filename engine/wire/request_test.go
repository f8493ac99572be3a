package wire_test

import (
	"encoding/json"
	"errors"
	"testing"

	"onebit/engine"
	"onebit/engine/wire"
)

func TestParseChat(t *testing.T) {
	body := `{"stream":true,"model":"m","messages":[{"role":"user","content":"hi"}],"stream_options":{"include_usage":true},"max_tokens":16.0,"x":1}`
	req, err := wire.ParseChat([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if req.Kind != engine.Chat || req.Model != "m" || !req.Stream || !req.IncludeUsage {
		t.Errorf("got %+v", req)
	}
	if string(req.Raw) != body {
		t.Errorf("Raw = %s, want the body as it was", req.Raw)
	}
}

func TestParseChatAccepts(t *testing.T) {
	for name, body := range map[string]string{
		"parts":             `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:"}}]}]}`,
		"null content":      `{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`,
		"developer role":    `{"messages":[{"role":"developer","content":"a"}]}`,
		"nulls":             `{"messages":[{"role":"user","content":"a"}],"model":null,"stream":null,"max_tokens":null,"stop":null,"stream_options":null}`,
		"escaped key":       `{"mess\u0061ges":[{"role":"user","content":"a"}]}`,
		"stop list":         `{"messages":[{"role":"user","content":"a"}],"stop":["a","b"]}`,
		"tool choice":       `{"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"function","function":{"name":"f"}}}`,
		"unknown members":   `{"messages":[{"role":"user","content":"a","x":{}}],"grammar":"root ::= \"a\"","id_slot":-1,"store":true,"metadata":{}}`,
		"negative seed":     `{"messages":[{"role":"user","content":"a"}],"seed":-1,"top_k":-1,"presence_penalty":-2}`,
		"usage, no stream":  `{"messages":[{"role":"user","content":"a"}],"stream_options":{"include_usage":true}}`,
		"space all over":    " {\n\"messages\" : [ { \"role\" : \"user\" , \"content\" : \"a\" } ] }\n",
		"braces in strings": `{"messages":[{"role":"user","content":"}]\"\\"}],"model":"}{"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := wire.ParseChat([]byte(body)); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

// refusals are bodies that must be refused, and the field that the refusal names.
var refusals = []struct{ name, body, param, code string }{
	{"empty", ``, "", "invalid_json"},
	{"not JSON", `hello`, "", "invalid_json"},
	{"cut off", `{"messages":[`, "", "invalid_json"},
	{"array", `[1]`, "", "invalid_json"},
	{"string", `"a"`, "", "invalid_json"},
	{"null", `null`, "", "invalid_json"},
	{"bad UTF-8", "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "", "invalid_json"},
	{"no messages", `{}`, "messages", "missing_required_parameter"},
	{"messages null", `{"messages":null}`, "messages", "invalid_type"},
	{"messages text", `{"messages":"hi"}`, "messages", "invalid_type"},
	{"messages empty", `{"messages":[]}`, "messages", "invalid_value"},
	{"message text", `{"messages":["hi"]}`, "messages[0]", "invalid_type"},
	{"no role", `{"messages":[{"content":"hi"}]}`, "messages[0].role", "missing_required_parameter"},
	{"unknown role", `{"messages":[{"role":"user","content":"a"},{"role":"robot","content":"hi"}]}`, "messages[1].role", "invalid_value"},
	{"role a number", `{"messages":[{"role":1,"content":"hi"}]}`, "messages[0].role", "invalid_type"},
	{"content a number", `{"messages":[{"role":"user","content":1}]}`, "messages[0].content", "invalid_type"},
	{"part a number", `{"messages":[{"role":"user","content":[1]}]}`, "messages[0].content[0]", "invalid_type"},
	{"part text a number", `{"messages":[{"role":"user","content":[{"type":"text","text":1}]}]}`, "messages[0].content[0].text", "invalid_type"},
	{"stream a string", `{"messages":[{"role":"user","content":"a"}],"stream":"true"}`, "stream", "invalid_type"},
	{"stream twice", `{"stream":true,"messages":[{"role":"user","content":"a"}],"stream":false}`, "stream", "duplicate_parameter"},
	{"model a number", `{"messages":[{"role":"user","content":"a"}],"model":1}`, "model", "invalid_type"},
	{"negative max_tokens", `{"messages":[{"role":"user","content":"a"}],"max_tokens":-1}`, "max_tokens", "invalid_value"},
	{"max_tokens text", `{"messages":[{"role":"user","content":"a"}],"max_tokens":"5"}`, "max_tokens", "invalid_type"},
	{"max_tokens a fraction", `{"messages":[{"role":"user","content":"a"}],"max_tokens":1.5}`, "max_tokens", "invalid_type"},
	{"max_tokens huge", `{"messages":[{"role":"user","content":"a"}],"max_completion_tokens":1e300}`, "max_completion_tokens", "invalid_value"},
	{"temperature text", `{"messages":[{"role":"user","content":"a"}],"temperature":"hot"}`, "temperature", "invalid_type"},
	{"temperature below 0", `{"messages":[{"role":"user","content":"a"}],"temperature":-0.5}`, "temperature", "invalid_value"},
	{"temperature infinite", `{"messages":[{"role":"user","content":"a"}],"temperature":1e999}`, "temperature", "invalid_value"},
	{"top_p above 1", `{"messages":[{"role":"user","content":"a"}],"top_p":1.5}`, "top_p", "invalid_value"},
	{"n zero", `{"messages":[{"role":"user","content":"a"}],"n":0}`, "n", "invalid_value"},
	{"stop a number", `{"messages":[{"role":"user","content":"a"}],"stop":[1]}`, "stop[0]", "invalid_type"},
	{"tools text", `{"messages":[{"role":"user","content":"a"}],"tools":["f"]}`, "tools[0]", "invalid_type"},
	{"include_usage text", `{"messages":[{"role":"user","content":"a"}],"stream_options":{"include_usage":"yes"}}`, "stream_options.include_usage", "invalid_type"},
}

func TestParseChatRefuses(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			req, err := wire.ParseChat([]byte(c.body))
			invalid, ok := errors.AsType[*engine.InvalidError](err)
			if !ok {
				t.Fatalf("got %v, %v; want an InvalidError", req, err)
			}
			if invalid.Param != c.param || invalid.Code != c.code {
				t.Errorf("got param %q code %q (%s), want %q %q", invalid.Param, invalid.Code, invalid.Message, c.param, c.code)
			}
		})
	}
}

func TestParseCompletion(t *testing.T) {
	for _, c := range []struct{ name, body, param string }{
		{"text", `{"prompt":"a"}`, ""},
		{"empty text", `{"prompt":""}`, ""},
		{"tokens", `{"prompt":[1,2,3]}`, ""},
		{"texts", `{"prompt":["a","b"]}`, ""},
		{"token lists", `{"prompt":[[1],[2,3]]}`, ""},
		{"logprobs number", `{"prompt":"a","logprobs":5}`, ""},
		{"missing", `{}`, "prompt"},
		{"null", `{"prompt":null}`, "prompt"},
		{"object", `{"prompt":{}}`, "prompt"},
		{"empty list", `{"prompt":[]}`, "prompt"},
		{"negative token", `{"prompt":[1,-2]}`, "prompt[1]"},
		{"bool", `{"prompt":[true]}`, "prompt[0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := wire.ParseCompletion([]byte(c.body))
			if c.param == "" {
				if err != nil || req.Kind != engine.Completion {
					t.Errorf("got %v, %v", req, err)
				}
				return
			}
			if invalid, ok := errors.AsType[*engine.InvalidError](err); !ok || invalid.Param != c.param {
				t.Errorf("got %v, want a refusal of %s", err, c.param)
			}
		})
	}
}

// FuzzChatRequest holds that no body makes the parser fail in another way than an InvalidError, that what it accepts is
// a JSON object whose members agree with encoding/json, and that the body is kept.
func FuzzChatRequest(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"hi"}],"model":"m","stream":true}`))
	for _, c := range refusals {
		f.Add([]byte(c.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := wire.ParseChat(body)
		if err != nil {
			if _, ok := errors.AsType[*engine.InvalidError](err); !ok {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("accepted what is not JSON: %v", err)
		}
		if string(req.Raw) != string(body) {
			t.Fatal("the body was changed")
		}
		if got := string(want["stream"]) == "true"; got != req.Stream {
			t.Fatalf("Stream = %v, the body says %v", req.Stream, got)
		}
		var model string
		if raw, ok := want["model"]; ok && json.Unmarshal(raw, &model) == nil && model != req.Model {
			t.Fatalf("Model = %q, the body says %q", req.Model, model)
		}
	})
}
