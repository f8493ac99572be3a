package backend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/backendtest"
)

// npu is a server that keeps the contract of NPU.md and has no model. What it generates is set, or "Paris." A prompt
// that holds the word overflow does not fit, and one with the word endless has no end.
type npu struct {
	mu     sync.Mutex
	text   []string
	finish string
	got    map[string]json.RawMessage
}

func (n *npu) prompt() (text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = json.Unmarshal(n.got["prompt"], &text) // an absent one is empty
	return text
}

const npuUsage = `{"prompt_tokens":14,"completion_tokens":2,"total_tokens":16,"prompt_tokens_details":{"cached_tokens":9}}`
const npuTimings = `{"prompt_ms":61.5,"predicted_ms":40.2,"predicted_per_second":49.7,"cache":"live"}`

func (n *npu) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.URL.Path == "/health" {
		return
	}
	n.mu.Lock()
	n.got = nil
	bad := r.URL.Path != "/v1/completions" || json.Unmarshal(body, &n.got) != nil
	text, finish, stream := n.text, n.finish, string(n.got["stream"]) == "true"
	n.mu.Unlock()
	if text == nil {
		text, finish = []string{"Pa", "ri", "s."}, "stop"
	}
	if bad || strings.Contains(n.prompt(), "overflow") {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"the prompt is longer than the context","type":"exceed_context_size_error","n_prompt_tokens":900,"n_ctx":512}}`)
		return
	}
	if !stream {
		fmt.Fprintf(w, `{"choices":[{"index":0,"text":%q,"finish_reason":%q}],"usage":%s,"timings":%s}`, strings.Join(text, ""), finish, npuUsage, npuTimings)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for strings.Contains(n.prompt(), "endless") && r.Context().Err() == nil {
		fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":null}]}\n\n")
		if http.NewResponseController(w).Flush() != nil {
			return
		}
	}
	for _, piece := range text {
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":%q,\"finish_reason\":null}]}\n\n", piece)
	}
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":%q}]}\n\ndata: {\"choices\":[],\"usage\":%s,\"timings\":%s}\n\ndata: [DONE]\n\n", finish, npuUsage, npuTimings)
}

// chatML returns a chat before a server.
func chatML(t *testing.T, handler http.Handler, open bool) *backend.ChatML {
	t.Helper()
	c, err := backend.NewChatML(backend.ChatMLConfig{Backend: remote(t, handler), OpenThink: open})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestChatMLConforms(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Subject {
		message := func(text string) string { return `{"messages":[{"role":"user","content":"` + text + `"}]}` }
		return backendtest.Subject{Backend: chatML(t, &npu{}, false), Good: message("hi"), Bad: message("overflow"), Long: message("endless")}
	})
}

func TestChatMLPrompt(t *testing.T) {
	const head = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
	const off = "<think>\n\n</think>\n\n"
	for _, c := range []struct {
		name, more, want string
		open             bool
	}{
		{"thinking is on", "", head, false},
		{"on, and the template opens it", "", head + "<think>\n", true},
		{"off by the template's variables", `,"chat_template_kwargs":{"enable_thinking":false}`, head + off, false},
		{"off where the template would open it", `,"chat_template_kwargs":{"enable_thinking":false}`, head + off, true},
		{"off at the top", `,"enable_thinking":false`, head + off, true},
		{"the variables win", `,"enable_thinking":false,"chat_template_kwargs":{"enable_thinking":true}`, head + "<think>\n", true},
		{"null says nothing", `,"enable_thinking":null,"chat_template_kwargs":null`, head, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &npu{}
				req := &engine.Request{Kind: engine.Chat, Raw: []byte(`{"messages":[{"role":"user","content":"hi"}]` + c.more + `}`)}
				if _, err := generate(t.Context(), chatML(t, n, c.open), req); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, n.prompt()); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		})
	}
	t.Run("a conversation", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := &npu{}
			req := &engine.Request{Kind: engine.Chat, Raw: []byte(`{"messages":[{"role":"developer","content":"be kind"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b\n"}]},` +
				`{"role":"assistant","content":"<think>\nhm\n</think>\n\nyes"},{"role":"assistant","content":null},{"role":"user","content":"<now>"}]}`)}
			if _, err := generate(t.Context(), chatML(t, n, false), req); err != nil {
				t.Fatal(err)
			}
			want := "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nab\n<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\n<now><|im_end|>\n<|im_start|>assistant\n"
			if diff := cmp.Diff(want, n.prompt()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	})
}

func TestChatMLSettings(t *testing.T) {
	for _, c := range []struct{ name, more, want string }{
		{"nothing said", ``, `{"max_tokens":1024,"stream":false}`},
		{"max_tokens", `,"max_tokens":7`, `{"max_tokens":7,"stream":false}`},
		{"max_completion_tokens wins", `,"max_tokens":7,"max_completion_tokens":9.0`, `{"max_tokens":9,"stream":false}`},
		{"settings", `,"temperature":0,"stop":["x"],"seed":null,"user":"me","top_k":3`, `{"max_tokens":1024,"stop":["x"],"stream":false,"temperature":0,"top_k":3}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &npu{}
				req := &engine.Request{Kind: engine.Chat, Raw: []byte(`{"messages":[{"role":"user","content":"hi"}]` + c.more + `}`)}
				if _, err := generate(t.Context(), chatML(t, n, false), req); err != nil {
					t.Fatal(err)
				}
				delete(n.got, "prompt")
				got, err := json.Marshal(n.got)
				if err != nil || string(got) != c.want {
					t.Errorf("sent %s, want %s", got, c.want)
				}
			})
		})
	}
}

// steps are the deltas of events, a letter for what each is.
func steps(t *testing.T, events []string) string {
	t.Helper()
	var all []string
	for i, e := range events {
		var o struct {
			Object, Model string
			Choices       []struct {
				Delta struct {
					Role, Content string
					Reasoning     string `json:"reasoning_content"`
				}
				Finish *string `json:"finish_reason"`
			}
			Usage, Timings json.RawMessage
		}
		if err := json.Unmarshal([]byte(e), &o); err != nil || o.Object != "chat.completion.chunk" {
			t.Fatalf("event %s: %v", e, err)
		}
		if len(o.Choices) == 0 {
			all = append(all, "usage "+string(o.Usage)+" "+string(o.Timings))
			continue
		}
		c := o.Choices[0]
		if (i == 0) != (c.Delta.Role == "assistant") {
			t.Errorf("event %d has the role %q", i, c.Delta.Role)
		}
		switch {
		case c.Finish != nil:
			all = append(all, "end "+*c.Finish)
		case c.Delta.Reasoning != "":
			all = append(all, "thought "+c.Delta.Reasoning)
		default:
			all = append(all, "text "+c.Delta.Content)
		}
	}
	return strings.Join(all, "|")
}

func TestChatMLAnswer(t *testing.T) {
	for _, c := range []struct {
		name, more string
		text       []string
		finish     string
		streamed   string
		content    string
		reasoning  string
		open       bool
	}{
		{"plain", ``, []string{"Pa", "ris."}, "stop", "text Pa|text ris.|end stop", "Paris.", "", false},
		{"thoughts", ``, []string{"<th", "ink>\nhm", "\n</thi", "nk>\n\nyes", "!"}, "stop", "thought hm|thought \n|text yes|text !|end stop", "yes!", "hm\n", false},
		{"the prompt has opened them", ``, []string{"hm</think>", "yes"}, "stop", "thought hm|text yes|end stop", "yes", "hm", true},
		{"thoughts without end", ``, []string{"<think>", "hm"}, "length", "thought hm|end length", "", "hm", false},
		{"kept in the text", `,"reasoning_format":"none"`, []string{"<think>", "hm</think>"}, "stop", "text <think>|text hm</think>|end stop", "<think>hm</think>", "", false},
		{"not looked for when off", `,"enable_thinking":false`, []string{"a<think>b"}, "stop", "text a<think>b|end stop", "a<think>b", "", false},
		{"nothing", ``, []string{}, "stop", "end stop", "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := chatML(t, &npu{text: c.text, finish: c.finish}, c.open)
				raw := []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]` + c.more + `}`)
				events, err := generate(t.Context(), b, &engine.Request{Kind: engine.Chat, Model: "m", Stream: true, Raw: raw})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.streamed, steps(t, events)); diff != "" {
					t.Errorf("streamed (-want +got)\n%s", diff)
				}
				counted, err := generate(t.Context(), b, &engine.Request{Kind: engine.Chat, Stream: true, IncludeUsage: true, Raw: raw})
				if err != nil || steps(t, counted) != c.streamed+"|usage "+npuUsage+" "+npuTimings {
					t.Errorf("with usage: %s, %v", steps(t, counted), err)
				}
				whole, err := generate(t.Context(), b, &engine.Request{Kind: engine.Chat, Model: "m", Raw: raw})
				if err != nil || len(whole) != 1 {
					t.Fatal(whole, err)
				}
				var o struct {
					Object, Model string
					Choices       []struct {
						Message struct {
							Role, Content string
							Reasoning     string `json:"reasoning_content"`
						}
						Finish string `json:"finish_reason"`
					}
					Usage, Timings json.RawMessage
				}
				if err := json.Unmarshal([]byte(whole[0]), &o); err != nil {
					t.Fatal(err)
				}
				m := o.Choices[0]
				if o.Object != "chat.completion" || o.Model != "m" || m.Message.Role != "assistant" || m.Message.Content != c.content || m.Message.Reasoning != c.reasoning ||
					m.Finish != c.finish || string(o.Usage) != npuUsage || string(o.Timings) != npuTimings {
					t.Errorf("whole: %s", whole[0])
				}
			})
		})
	}
}

func TestChatMLRefuses(t *testing.T) {
	message := func(s string) string { return `{"messages":[` + s + `]}` }
	for _, c := range []struct{ name, body, param string }{
		{"an image", message(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:x"}}]}`), "messages[0].content[1]"},
		{"tools", `{"messages":[],"tools":[{}]}`, "tools"},
		{"a tool's answer", message(`{"role":"tool","content":"a"}`), "messages[0].role"},
		{"a call", message(`{"role":"assistant","content":"","tool_calls":[{}]}`), "messages[0].tool_calls"},
		{"two answers", `{"messages":[],"n":2}`, "n"},
		{"logprobs", `{"messages":[],"logprobs":true}`, "logprobs"},
		{"thinking in words", `{"messages":[],"chat_template_kwargs":{"enable_thinking":"no"}}`, "chat_template_kwargs.enable_thinking"},
		{"content of another kind", message(`{"role":"user","content":5}`), "messages[0].content"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := generate(t.Context(), chatML(t, &npu{}, false), &engine.Request{Kind: engine.Chat, Raw: []byte(c.body)})
				e, ok := errors.AsType[*engine.InvalidError](err)
				if !ok || e.Param != c.param {
					t.Errorf("got %v, want a refusal of %s", err, c.param)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []engine.Kind{engine.Embedding, engine.Rerank, engine.Response} {
			if _, err := generate(t.Context(), chatML(t, &npu{}, false), &engine.Request{Kind: kind, Raw: []byte(`{}`)}); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%v: %v", kind, err)
			}
		}
	})
}

func TestChatMLPassesRawPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &npu{}
		events, err := generate(t.Context(), chatML(t, n, false), &engine.Request{Kind: engine.Completion, Raw: []byte(`{"prompt":"as it is","max_tokens":3}`)})
		if err != nil || len(events) != 1 || n.prompt() != "as it is" || !strings.Contains(events[0], `"text":"Paris."`) {
			t.Errorf("%v, %v", events, err)
		}
	})
}

// still is a backend that generates nothing and keeps the request.
type still struct {
	engine.Backend
	raw []byte
}

func (s *still) Generate(_ context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	s.raw = req.Raw
	return engine.Usage{}, emit(engine.Chunk{Raw: req.Raw})
}

// FuzzChatML holds that any chat becomes a request that is JSON, or is refused.
func FuzzChatML(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"role":"user","content":"hi"}]}`, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},"b"]}],"enable_thinking":false}`,
		`{"messages":null,"choices":[{"text":"<think>a</think>b","finish_reason":"stop"}],"max_tokens":1e300}`,
	} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, stream bool) {
		inner := &still{}
		c, err := backend.NewChatML(backend.ChatMLConfig{Backend: inner})
		if err != nil {
			t.Fatal(err)
		}
		events, err := generate(t.Context(), c, &engine.Request{Kind: engine.Chat, Stream: stream, Raw: raw})
		if inner.raw != nil && !json.Valid(inner.raw) {
			t.Errorf("%s became %s", raw, inner.raw)
		}
		for _, e := range events {
			if !json.Valid([]byte(e)) {
				t.Errorf("event %s", e)
			}
		}
		if err == nil && len(events) == 0 {
			t.Error("no answer and no error")
		}
	})
}
