package messages_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/wire"
	"onebit/engine/wire/messages"
)

const off = `"chat_template_kwargs":{"enable_thinking":false},`

func TestChat(t *testing.T) {
	user := func(content string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":` + content + `}]}`
	}
	says := func(messages string) string {
		return `{` + off + `"max_tokens":9,"messages":[` + messages + `],"model":"m"}`
	}
	for name, c := range map[string]struct {
		body string
		want string // of the chat, without what each has; or the beginning of an error
	}{
		"a text":       {user(`"hi"`), says(`{"content":"hi","role":"user"}`)},
		"blocks":       {user(`[{"type":"text","text":"a"},{"type":"text","text":"b<"}]`), says(`{"content":"a\nb<","role":"user"}`)},
		"no blocks":    {user(`[]`), "messages: there is nothing to answer"},
		"an image":     {user(`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QQ=="}},{"type":"text","text":"what?"}]`), says(`{"content":[{"image_url":{"url":"data:image/png;base64,QQ=="},"type":"image_url"},{"text":"what?","type":"text"}],"role":"user"}`)},
		"an address":   {user(`[{"type":"image","source":{"type":"url","url":"https://x"}}]`), says(`{"content":[{"image_url":{"url":"https://x"},"type":"image_url"}],"role":"user"}`)},
		"no image":     {user(`[{"type":"image","source":{"type":"base64","media_type":"text/html","data":"QQ=="}}]`), "messages[0].content[0].source: an image has"},
		"a document":   {user(`[{"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"D"}},{"type":"document","source":{"type":"content","content":[{"type":"text","text":"E"}]}}]`), says(`{"content":"T\nD\nE","role":"user"}`)},
		"a pdf":        {user(`[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"QQ=="}}]`), "messages[0].content[0].source.type: documents are read here"},
		"a result":     {user(`[{"type":"search_result","source":"s","title":"T","content":[{"type":"text","text":"R"}]}]`), says(`{"content":"T\nR","role":"user"}`)},
		"no type":      {user(`[{"text":"x"}]`), "messages[0].content[0].type: Field required"},
		"a number":     {user(`7`), "messages[0].content: a content is"},
		"a wrong text": {user(`[{"type":"text","text":7}]`), "messages[0].content: "},

		"system": {`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[{"role":"user","content":"hi"}]}`,
			says(`{"cache_control":{"type":"ephemeral","ttl":"1h"},"content":"a\n\nb","role":"system"},{"content":"hi","role":"user"}`)},
		"system in the midst": {`{"model":"m","max_tokens":9,"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"system","content":"be brief"},{"role":"user","content":"b"}]}`,
			says(`{"content":"s","role":"system"},{"content":"a\n<system-reminder>\nbe brief\n</system-reminder>\nb","role":"user"}`)},
		"turns of one role": {`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":"c"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}]}`,
			says(`{"cache_control":{"type":"ephemeral"},"content":"a\nb","role":"user"},{"content":"c","role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"f"},"id":"t","type":"function"}]}`)},
		"an agent's turn": {`{"model":"m","max_tokens":9,"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"b":{},"a":{}}},"cache_control":{"type":"ephemeral"}},{"type":"web_search_20250305","name":"web_search"}],
			"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"I look."},{"type":"tool_use","id":"t1","name":"f","input":{"b": 1, "a": "x"}},{"type":"tool_use","id":"t2","name":"f"}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"r1"},{"type":"tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"r2"}],"cache_control":{"type":"ephemeral"}},{"type":"text","text":"go on"}]}]}`,
			`{` + off + `"max_tokens":9,"messages":[{"cache_control":{"type":"ephemeral"},"content":"q","role":"user"},{"content":"I look.","reasoning_content":"hm","role":"assistant","tool_calls":[{"function":{"arguments":"{\"b\": 1, \"a\": \"x\"}","name":"f"},"id":"t1","type":"function"},{"function":{"arguments":"{}","name":"f"},"id":"t2","type":"function"}]},{"content":"r1","role":"tool","tool_call_id":"t1"},{"cache_control":{"type":"ephemeral"},"content":"Error:\nr2","role":"tool","tool_call_id":"t2"},{"content":"go on","role":"user"}],"model":"m","tools":[{"function":{"description":"d","name":"f","parameters":{"type":"object","properties":{"b":{},"a":{}}}},"type":"function"}]}`},
		"a call alone": {`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{},"cache_control":{"type":"ephemeral"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}]}`,
			says(`{"content":"q","role":"user"},{"cache_control":{"type":"ephemeral"},"content":"","role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"f"},"id":"t","type":"function"}]},{"content":"","role":"tool","tool_call_id":"t"}`)},
		"a call without a name": {`{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t"}]}]}`, "messages[0].content[0]: a tool_use has"},
		"a lonely result":       {user(`[{"type":"tool_result","content":"x"}]`), "messages[0].content[0].tool_use_id: Field required"},

		"choices": {`{"model":"m","max_tokens":0,"tools":[{"name":"f"}],"tool_choice":{"type":"any","disable_parallel_tool_use":true},"temperature":1,"top_k":5,"top_p":0.5,"stop_sequences":["x"],"metadata":{"user_id":"u"},"service_tier":"auto","container":null,"context_management":{"edits":[]},"messages":[{"role":"user","content":"q"}]}`,
			`{` + off + `"max_tokens":0,"messages":[{"content":"q","role":"user"}],"model":"m","parallel_tool_calls":false,"temperature":1,"tool_choice":"required","tools":[{"function":{"name":"f"},"type":"function"}],"top_k":5,"top_p":0.5,"user":"u"}`},
		"one tool": {`{"model":"m","max_tokens":9,"tools":[{"name":"f","type":"custom"}],"tool_choice":{"type":"tool","name":"f"},"messages":[{"role":"user","content":"q"}]}`,
			`{` + off + `"max_tokens":9,"messages":[{"content":"q","role":"user"}],"model":"m","tool_choice":{"function":{"name":"f"},"type":"function"},"tools":[{"function":{"name":"f"},"type":"function"}]}`},
		"a strange choice": {`{"model":"m","max_tokens":9,"tools":[{"name":"f"}],"tool_choice":{"type":"x"},"messages":[{"role":"user","content":"q"}]}`, "tool_choice.type: "},
		"thinking":         {`{"model":"m","max_tokens":9,"thinking":{"type":"enabled","budget_tokens":1},"messages":[{"role":"user","content":"q"}]}`, `{"chat_template_kwargs":{"enable_thinking":true},"max_tokens":9,"messages":[{"content":"q","role":"user"}],"model":"m","thinking_budget_tokens":1}`},
		"adaptive":         {`{"model":"m","max_tokens":9,"thinking":{"type":"adaptive"},"messages":[{"role":"user","content":"q"}]}`, `{"max_tokens":9,"messages":[{"content":"q","role":"user"}],"model":"m"}`},
		"a form":           {`{"model":"m","max_tokens":9,"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},"messages":[{"role":"user","content":"q"}]}`, `{` + off + `"max_tokens":9,"messages":[{"content":"q","role":"user"}],"model":"m","response_format":{"json_schema":{"name":"output","schema":{"type":"object"}},"type":"json_schema"}}`},
		"all of it":        {`{"model":"m","max_tokens":9,"cache_control":{"type":"ephemeral"},"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`, says(`{"content":"a","role":"user"},{"content":"b","role":"assistant"},{"cache_control":{"type":"ephemeral"},"content":"c","role":"user"}`)},

		"no model":        {`{"max_tokens":9,"messages":[{"role":"user","content":"q"}]}`, "model: Field required"},
		"no limit":        {`{"model":"m","messages":[{"role":"user","content":"q"}]}`, "max_tokens: Field required"},
		"a strange limit": {`{"model":"m","max_tokens":1.5,"messages":[{"role":"user","content":"q"}]}`, "max_tokens is a whole number"},
		"a text for it":   {`{"model":"m","max_tokens":"9","messages":[{"role":"user","content":"q"}]}`, "max_tokens: a JSON string"},
		"no messages":     {`{"model":"m","max_tokens":9,"messages":[]}`, "messages: at least one"},
		"a strange role":  {`{"model":"m","max_tokens":9,"messages":[{"role":"king","content":"q"}]}`, "messages[0].role: "},
		"five marks":      {user(`[` + strings.Repeat(`{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},`, 4) + `{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]`), "A maximum of 4 blocks"},
		"a strange mark":  {user(`[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"2h"}}]`), "messages[0].content[0].cache_control: "},
		"a tool's mark":   {`{"model":"m","max_tokens":9,"tools":[{"name":"f","cache_control":7}],"messages":[{"role":"user","content":"q"}]}`, "tools[0].cache_control: "},
		"no JSON":         {`{"model":`, "the request body is not JSON"},
		"a list":          {`[]`, "the request body must be a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := messages.Read([]byte(c.body))
			if err != nil {
				if _, ok := errors.AsType[*engine.InvalidError](err); !ok || !strings.HasPrefix(err.Error(), c.want) {
					t.Fatalf("%T %v, want %s", err, err, c.want)
				}
				return
			}
			chat, err := r.Chat()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wire.ParseChat(chat); err != nil {
				t.Fatal(err)
			}
			got := strings.Replace(string(chat), `,"stream":true,"stream_options":{"include_usage":true}`, "", 1)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	r, err := messages.Read([]byte(`{"model":"m","stream":true,"max_tokens":1,"stop_sequences":["a","","b"],"mcp_servers":[{}],"tools":[{"type":"bash_20250124","name":"bash"}],"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"container_upload"},{"type":"container_upload"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"block container_upload", "mcp_servers", "tool bash_20250124"}, r.Ignored); d != "" || !r.Stream {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"a", "b"}, r.Stops); d != "" {
		t.Error(d)
	}
	if r, err = messages.ReadCount([]byte(`{"model":"m","messages":[{"role":"user","content":"q"}]}`)); err != nil || r.Model != "m" {
		t.Error(err)
	}
}

// say is an event of a chat with text.
func say(text string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}]}`, text)
}

func calling(n int, id, name, arguments string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"id":%q,"function":{"name":%q,"arguments":%q}}]}}]}`, n, id, name, arguments)
}

func finish(why string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + why + `"}]}`
}

// TestAnswer: the events of a message, in order, and the whole.
func TestAnswer(t *testing.T) {
	const progress = `{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}],"prompt_progress":{"total":7,"cache":2,"processed":2,"time_ms":1}}`
	for name, c := range map[string]struct {
		body   string
		chunks []string
		want   []string // events without their names; start is what all have
		whole  string   // content, and why it ended
	}{
		"a text": {chunks: []string{progress, say("Hel"), say("lo"), finish("stop"), `{"choices":[],"usage":{}}`},
			want:  []string{"start 5 2", `0 start text`, `0 text_delta "Hel"`, `0 text_delta "lo"`, `0 stop`, `end "end_turn" null 2 1 2 3`},
			whole: `[{"type":"text","text":"Hello"}] "end_turn" null`},
		"thoughts": {chunks: []string{`{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`, `{"choices":[{"index":0,"delta":{"reasoning_content":"m"}}]}`, say("x"), finish("length")},
			want:  []string{"start 0 0", `0 start thinking`, `0 thinking_delta "hm"`, `0 thinking_delta "m"`, `0 signature_delta "unsigned"`, `0 stop`, `1 start text`, `1 text_delta "x"`, `1 stop`, `end "max_tokens" null 2 1 2 3`},
			whole: `[{"type":"thinking","thinking":"hmm","signature":"unsigned"},{"type":"text","text":"x"}] "max_tokens" null`},
		"calls": {chunks: []string{say("\n\n"), calling(0, "a", "f", ""), calling(0, "", "", `{"x":`), calling(0, "", "", `1}`), calling(1, "b", "g", ""), finish("tool_calls")},
			want:  []string{"start 0 0", `0 start tool_use a f`, `0 input_json_delta "{\"x\":"`, `0 input_json_delta "1}"`, `0 stop`, `1 start tool_use b g`, `1 input_json_delta "{}"`, `1 stop`, `end "tool_use" null 2 1 2 3`},
			whole: `[{"type":"tool_use","id":"a","name":"f","input":{"x":1}},{"type":"tool_use","id":"b","name":"g","input":{}}] "tool_use" null`},
		"calls that mix": {chunks: []string{calling(0, "a", "f", `{"x"`), calling(1, "b", "g", `{"y"`), calling(0, "", "", `:1}`), calling(1, "", "", `:2}`), finish("stop")},
			want:  []string{"start 0 0", `0 start tool_use a f`, `0 input_json_delta "{\"x\""`, `0 input_json_delta ":1}"`, `0 stop`, `1 start tool_use b g`, `1 input_json_delta "{\"y\":2}"`, `1 stop`, `end "tool_use" null 2 1 2 3`},
			whole: `[{"type":"tool_use","id":"a","name":"f","input":{"x":1}},{"type":"tool_use","id":"b","name":"g","input":{"y":2}}] "tool_use" null`},
		"a call that is no JSON": {chunks: []string{calling(0, "a", "f", `oops`), finish("tool_calls")},
			want:  []string{"start 0 0", `0 start tool_use a f`, `0 input_json_delta "oops"`, `0 stop`, `end "tool_use" null 2 1 2 3`},
			whole: `[{"type":"tool_use","id":"a","name":"f","input":{"text":"oops"}}] "tool_use" null`},
		"a stop sequence": {body: `"stop_sequences":["END","ENDE"]`, chunks: []string{say("a E"), say("N"), say("x EN"), say("DE b"), say("never")},
			want:  []string{"start 0 0", `0 start text`, `0 text_delta "a "`, `0 text_delta "ENx "`, `0 stop`, `end "stop_sequence" "ENDE" 2 1 2 3`},
			whole: `[{"type":"text","text":"a ENx "}] "stop_sequence" "ENDE"`},
		"half a stop sequence": {body: `"stop_sequences":["END"]`, chunks: []string{say("a EN"), finish("stop")},
			want:  []string{"start 0 0", `0 start text`, `0 text_delta "a "`, `0 text_delta "EN"`, `0 stop`, `end "end_turn" null 2 1 2 3`},
			whole: `[{"type":"text","text":"a EN"}] "end_turn" null`},
		"filtered": {chunks: []string{finish("content_filter")},
			want: []string{"start 0 0", `end "refusal" null 2 1 2 3`}, whole: `[] "refusal" null`},
		"nothing": {want: []string{"start 0 0", `end "end_turn" null 2 1 2 3`}, whole: `[] "end_turn" null`},
	} {
		t.Run(name, func(t *testing.T) {
			if c.body != "" {
				c.body = "," + c.body
			}
			r, err := messages.Read([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"q"}]` + c.body + `}`))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			a := messages.New(r, messages.Config{ID: "msg_x", Model: "m", Counts: true, Emit: func(name string, event []byte) error {
				got = append(got, shown(t, name, event))
				return nil
			}})
			for _, chunk := range c.chunks {
				err := a.Chunk([]byte(chunk))
				if errors.Is(err, messages.ErrStopped) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			whole, err := a.Complete(engine.Usage{Prompt: 5, Cached: 2, Written: 1, Completion: 3})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(append(c.want, "message_stop"), got); d != "" {
				t.Error(d)
			}
			var m struct {
				ID, Type, Role, Model string
				Content, Usage        json.RawMessage
				Reason                json.RawMessage `json:"stop_reason"`
				Sequence              json.RawMessage `json:"stop_sequence"`
			}
			if err := json.Unmarshal(whole, &m); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.whole, fmt.Sprintf("%s %s %s", m.Content, m.Reason, m.Sequence)); d != "" {
				t.Error(d)
			}
			if m.ID != "msg_x" || m.Type != "message" || m.Role != "assistant" || m.Model != "m" || string(m.Usage) != `{"input_tokens":2,"cache_creation_input_tokens":1,"cache_read_input_tokens":2,"output_tokens":3}` {
				t.Errorf("%s", whole)
			}
		})
	}
}

// shown is an event in few words.
func shown(t *testing.T, name string, event []byte) string {
	t.Helper()
	var e struct {
		Type    string
		Index   int
		Message struct {
			ID, Type, Role, Model string
			Content               []any
			Reason                *string `json:"stop_reason"`
			Usage                 struct {
				Input  int `json:"input_tokens"`
				Cached int `json:"cache_read_input_tokens"`
				Output int `json:"output_tokens"`
			}
		}
		Block struct{ Type, ID, Name string } `json:"content_block"`
		Delta map[string]json.RawMessage
		Usage struct {
			Input   int `json:"input_tokens"`
			Written int `json:"cache_creation_input_tokens"`
			Cached  int `json:"cache_read_input_tokens"`
			Output  int `json:"output_tokens"`
		}
	}
	if err := json.Unmarshal(event, &e); err != nil || e.Type != name {
		t.Fatalf("%s: %s %v", name, event, err)
	}
	switch name {
	case "message_start":
		if m := e.Message; m.ID != "msg_x" || m.Type != "message" || m.Role != "assistant" || m.Model != "m" || m.Content == nil || m.Reason != nil {
			t.Errorf("%s", event)
		}
		return fmt.Sprintf("start %d %d", e.Message.Usage.Input, e.Message.Usage.Cached)
	case "content_block_start":
		return strings.TrimSpace(fmt.Sprintf("%d start %s %s %s", e.Index, e.Block.Type, e.Block.ID, e.Block.Name))
	case "content_block_delta":
		for _, member := range []string{"text", "thinking", "signature", "partial_json"} {
			if v := e.Delta[member]; v != nil {
				return fmt.Sprintf("%d %s %s", e.Index, strings.Trim(string(e.Delta["type"]), `"`), v)
			}
		}
	case "content_block_stop":
		return fmt.Sprintf("%d stop", e.Index)
	case "message_delta":
		return fmt.Sprintf("end %s %s %d %d %d %d", e.Delta["stop_reason"], e.Delta["stop_sequence"], e.Usage.Input, e.Usage.Written, e.Usage.Cached, e.Usage.Output)
	}
	return name
}

// TestUnknown: what nobody counts is left out.
func TestUnknown(t *testing.T) {
	r, err := messages.Read([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"q"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := messages.New(r, messages.Config{}).Complete(engine.Usage{Prompt: 5, Completion: 3})
	if err != nil || !strings.Contains(string(whole), `"usage":{"input_tokens":5,"output_tokens":3}`) {
		t.Errorf("%s %v", whole, err)
	}
	broken := errors.New("the client has gone")
	a := messages.New(r, messages.Config{Emit: func(string, []byte) error { return broken }})
	if err := a.Chunk([]byte(say("x"))); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := a.Complete(engine.Usage{}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := messages.New(r, messages.Config{}).Chunk([]byte("7")); err == nil {
		t.Error("a number is no event")
	}
}

func TestError(t *testing.T) {
	for name, c := range map[string]struct {
		err    wire.Error
		status int
		want   string
	}{
		"a mistake":  {wire.Error{Status: 400, Type: wire.TypeInvalid, Param: "max_tokens", Message: "it is required"}, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: it is required"},"request_id":"r"}`},
		"no key":     {wire.Error{Status: 401, Message: "x"}, 401, `authentication_error`},
		"forbidden":  {wire.Error{Status: 403, Message: "x"}, 403, `permission_error`},
		"not there":  {wire.Error{Status: 404, Message: "x"}, 404, `not_found_error`},
		"too large":  {wire.Error{Status: 413, Message: "x"}, 413, `request_too_large`},
		"too many":   {wire.Error{Status: 429, Message: "x"}, 429, `rate_limit_error`},
		"ours":       {wire.Error{Status: 502, Message: "x"}, 502, `api_error`},
		"busy":       {wire.Error{Status: 503, Message: "x"}, 529, `overloaded_error`},
		"too late":   {wire.Error{Status: 504, Message: "x"}, 504, `timeout_error`},
		"overlong":   {*wire.FromBackend(&engine.StatusError{Status: 400, Body: []byte(`{"error":{"message":"too many tokens","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}`)}), 400, `"message":"prompt is too long: 9 tokens \u003e 8 maximum. This exceeds the maximum context length`},
		"overlong 2": {wire.Error{Status: 400, Type: wire.TypeContext, Message: "x"}, 400, `"message":"prompt is too long: x"`},
	} {
		got := string(messages.AppendError(nil, &c.err, "r"))
		if messages.Status(&c.err) != c.status || !strings.Contains(got, c.want) || !json.Valid([]byte(got)) {
			t.Errorf("%s: %d %s", name, messages.Status(&c.err), got)
		}
	}
	if http.StatusText(messages.StatusOverloaded) != "" {
		t.Error("529 has become a standard's")
	}
}

// FuzzRead: no body makes it fail otherwise than by an InvalidError, and what it makes is a sound chat.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`))
	f.Add([]byte(`{"model":"m","max_tokens":1,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"enabled","budget_tokens":1},
		"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QQ=="}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true,"content":[{"type":"text","text":"x"}]},{"type":"document","source":{"type":"text","data":"d"}}]}]}`))
	f.Add([]byte(`{"model":"m","max_tokens":0,"chat_template_kwargs":{"enable_thinking":7},"output_config":{"format":{"type":"json_schema","schema":[]}},"messages":[{"role":"system","content":"x"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := messages.Read(body)
		if err != nil {
			if _, ok := errors.AsType[*engine.InvalidError](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		chat, err := r.Chat()
		if err != nil || !json.Valid(chat) {
			t.Fatalf("%s: %v", chat, err)
		}
		if _, err := messages.ReadCount(body); err != nil {
			t.Fatal(err)
		}
		_, err = wire.ParseChat(chat)
		if _, ok := errors.AsType[*engine.InvalidError](err); err != nil && !ok {
			t.Fatalf("%s: %v", chat, err)
		}
		a := messages.New(r, messages.Config{})
		for _, chunk := range []string{say("a"), calling(0, "x", "f", "{"), finish("stop")} {
			if err := a.Chunk([]byte(chunk)); err != nil && !errors.Is(err, messages.ErrStopped) {
				t.Fatal(err)
			}
		}
		if whole, err := a.Complete(engine.Usage{Prompt: 1}); err != nil || !json.Valid(whole) {
			t.Fatalf("%s: %v", whole, err)
		}
	})
}
