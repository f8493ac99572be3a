package responses_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/wire"
	"onebit/engine/wire/responses"
)

func TestChat(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want string // of the chat, without what each has; or the beginning of an error
	}{
		"a text":       {`{"model":"m","input":"hi"}`, `{"messages":[{"content":"hi","role":"user"}],"model":"m"}`},
		"instructions": {`{"instructions":"be brief","input":[{"role":"developer","content":"and kind"},{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]}`, `{"messages":[{"content":"be brief\n\nand kind","role":"system"},{"content":"a\nb","role":"user"}]}`},
		"a function": {`{"input":[{"role":"user","content":"q"},{"type":"reasoning","summary":[]},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"r"}]}],
			"tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true},{"type":"web_search"}],"tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false,"max_output_tokens":5,"temperature":0}`,
			`{"max_tokens":5,"messages":[{"content":"q","role":"user"},{"content":null,"role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"f"},"id":"c1","type":"function"},{"function":{"arguments":"{}","name":"g"},"id":"c2","type":"function"}]},{"content":"r","role":"tool","tool_call_id":"c1"}],"parallel_tool_calls":false,"temperature":0,"tool_choice":{"function":{"name":"f"},"type":"function"},"tools":[{"function":{"name":"f","parameters":{"type":"object"},"strict":true},"type":"function"}]}`},
		"a mark": {`{"prompt_cache_options":{"mode":"explicit"},"input":[{"role":"user","content":[{"type":"input_text","text":"a","prompt_cache_breakpoint":{"mode":"explicit"}},{"type":"input_text","text":"b"}]},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"r","prompt_cache_breakpoint":{"mode":"explicit"}}]}]}`,
			`{"messages":[{"content":"a\nb","prompt_cache_breakpoint":{"mode":"explicit"},"role":"user"},{"content":"r","prompt_cache_breakpoint":{"mode":"explicit"},"role":"tool","tool_call_id":"c"}],"prompt_cache_options":{"mode":"explicit"}}`},
		"an image":       {`{"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:x","detail":"low"}]}]}`, `{"messages":[{"content":[{"text":"a","type":"text"},{"image_url":{"detail":"low","url":"data:x"},"type":"image_url"}],"role":"user"}]}`},
		"a form":         {`{"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}}}`, `{"messages":[{"content":"x","role":"user"}],"response_format":{"json_schema":{"name":"n","schema":{"type":"object"}},"type":"json_schema"}}`},
		"nothing":        {`{"input":[]}`, "the input is empty"},
		"a file":         {`{"input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]}`, "parts of the type"},
		"background":     {`{"input":"x","background":true}`, `"background" is not served here`},
		"no name":        {`{"input":"x","tools":[{"type":"function"}]}`, "a function needs a name"},
		"no stores":      {`{"input":"x","tools":[{"type":"file_search"}]}`, "file_search needs the ids"},
		"too many":       {`{"input":"x","tools":[{"type":"file_search","vector_store_ids":["v"],"max_num_results":51}]}`, "max_num_results is 1 to 50"},
		"a reference":    {`{"input":[{"type":"item_reference","id":"x"}]}`, "item_reference is not served here"},
		"a strange role": {`{"input":[{"role":"king","content":"x"}]}`, "the role is"},
		"only leftovers": {`{"input":[{"type":"reasoning"}]}`, "the input has no message"},
		"half an object": {`{"input":[{"type":5}]}`, "an item's type is a text"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := responses.Read([]byte(c.body))
			var chat []byte
			if err == nil {
				chat, err = r.Chat(nil)
			}
			if err != nil {
				if _, ok := errors.AsType[*engine.InvalidError](err); !ok || !strings.HasPrefix(err.Error(), c.want) {
					t.Fatalf("%T %v, want %s", err, err, c.want)
				}
				return
			}
			if _, err := wire.ParseChat(chat); err != nil {
				t.Fatal(err)
			}
			got := strings.Replace(strings.Replace(string(chat), `,"stream":true,"stream_options":{"include_usage":true}`, "", 1), `"stream":true,"stream_options":{"include_usage":true},`, "", 1)
			if got != c.want {
				t.Errorf("%s\nwant\n%s", got, c.want)
			}
		})
	}
	r, err := responses.Read([]byte(`{"input":"and?","tools":[{"type":"web_search"},{"type":"file_search","vector_store_ids":["v"],"ranking_options":{"score_threshold":0.5}}],"include":["file_search_call.results"]}`))
	if err != nil {
		t.Fatal(err)
	}
	chat, err := r.Chat([]json.RawMessage{[]byte(`{"type":"message","role":"user","content":"first"}`), []byte(`{"type":"odd"}`)})
	if err != nil || !strings.Contains(string(chat), `"first"`) {
		t.Error(string(chat), err)
	}
	if d := cmp.Diff([]string{"tool web_search", "item odd"}, r.Ignored); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(&responses.Search{Collections: []string{"v"}, Threshold: 0.5, Results: true}, r.Search); d != "" {
		t.Error(d)
	}
}

// answered runs events of a chat and returns the types of the events of the response, and its last object.
func answered(t *testing.T, cfg responses.Config, body string, chunks []string, end func(*responses.Answer)) (types []string, last map[string]any) {
	t.Helper()
	r, err := responses.Read([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	number := 0.0
	cfg.ID, cfg.Model, cfg.Created = "resp_x", "m", time.Unix(7, 0)
	cfg.Emit = func(event []byte) error {
		var e struct {
			Type     string
			Number   float64 `json:"sequence_number"`
			Response map[string]any
		}
		if err := json.Unmarshal(event, &e); err != nil {
			t.Fatal(err)
		}
		if e.Number != number {
			t.Errorf("%s is number %v, want %v", e.Type, e.Number, number)
		}
		number++
		types, last = append(types, strings.TrimPrefix(e.Type, "response.")), e.Response
		return nil
	}
	a := responses.New(r, cfg)
	for _, c := range chunks {
		if err := a.Chunk([]byte(c)); err != nil {
			t.Fatal(err)
		}
	}
	end(a)
	return types, last
}

type marks struct{}

func (marks) Write(string) []responses.Annotation { return nil }
func (marks) End() []responses.Annotation         { return []responses.Annotation{"note"} }

func TestAnswer(t *testing.T) {
	complete := func(a *responses.Answer) {
		if _, err := a.Complete(engine.Usage{Prompt: 5, Cached: 2, Written: 1, Completion: 3}); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		cfg    responses.Config
		chunks []string
		end    func(*responses.Answer)
		want   string // types of events
		last   string // of the whole
	}{
		"a text": {chunks: []string{`{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}`, `{"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}`, `{"choices":[]}`}, end: complete,
			want: "created in_progress output_item.added content_part.added output_text.delta output_text.delta output_text.done content_part.done output_item.done completed", last: `"text":"Hello"`},
		"a search with notes": {cfg: responses.Config{Queries: []string{"q"}, Marker: marks{}}, chunks: []string{`{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}`}, end: complete,
			want: "created in_progress output_item.added file_search_call.in_progress file_search_call.searching file_search_call.completed output_item.done output_item.added content_part.added output_text.delta output_text.annotation.added output_text.done content_part.done output_item.done completed", last: `"annotations":["note"]`},
		"thoughts, a text and calls": {chunks: []string{`{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`, `{"choices":[{"index":0,"delta":{"content":"x"}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}]}`, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`}, end: complete,
			want: "created in_progress output_item.added reasoning_text.delta reasoning_text.done output_item.done output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done output_item.added function_call_arguments.delta function_call_arguments.done output_item.done completed", last: `"arguments":"{}"`},
		"cut short": {chunks: []string{`{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"length"}]}`}, end: complete,
			want: "created in_progress output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done incomplete", last: `"reason":"max_output_tokens"`},
		"nothing said": {end: complete,
			want: "created in_progress output_item.added content_part.added output_text.done content_part.done output_item.done completed", last: `"text":""`},
		"broken off": {chunks: []string{`{"choices":[{"index":0,"delta":{"content":"x"}}]}`}, end: func(a *responses.Answer) { a.Fail("backend_lost", "it went away", engine.Usage{}) },
			want: "created in_progress output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done failed", last: `"code":"backend_lost"`},
	} {
		t.Run(name, func(t *testing.T) {
			types, last := answered(t, c.cfg, `{"input":"x","metadata":{"a":"b"}}`, c.chunks, c.end)
			if d := cmp.Diff(strings.Fields(c.want), types); d != "" {
				t.Error(d)
			}
			whole, err := json.Marshal(last)
			if err != nil || !strings.Contains(string(whole), c.last) || !strings.Contains(string(whole), `"metadata":{"a":"b"}`) {
				t.Errorf("%s %v", whole, err)
			}
			if c.last != `"code":"backend_lost"` && !strings.Contains(string(whole), `"input_tokens":5,"input_tokens_details":{"cache_write_tokens":1,"cached_tokens":2}`) {
				t.Errorf("the usage: %s", whole)
			}
		})
	}
}

// FuzzRead: no body makes it fail otherwise than by an InvalidError, and what it makes is a sound chat.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"input":"x"}`))
	f.Add([]byte(`{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"c"}],"tools":[{"type":"file_search","vector_store_ids":["v"]}],"text":{"format":{"type":"json_object"}}}`))
	f.Add([]byte(`{"input":[{"type":"function_call_output","output":null}],"tool_choice":{},"include":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := responses.Read(body)
		var chat []byte
		if err == nil {
			chat, err = r.Chat(nil)
		}
		if err != nil {
			if _, ok := errors.AsType[*engine.InvalidError](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if !json.Valid(chat) {
			t.Fatalf("%s", chat)
		}
	})
}
