package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/engine"
	"onebit/engine/backendtest"
)

func TestChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := standin(t, &backendtest.Standin{Model: "child"}, nil)
		whole := s.chat("", false)
		var got struct {
			Model   string
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(whole.body), &got); err != nil || whole.status != 200 {
			t.Fatalf("%d %s: %v", whole.status, whole.body, err)
		}
		if got.Model != "served" || got.Choices[0].Message.Content != "The capital of France is Paris." {
			t.Errorf("got %+v", got)
		}
		if whole.header.Get("Content-Type") != "application/json" || whole.header.Get("X-Request-Id") == "" {
			t.Errorf("headers %v", whole.header)
		}
	})
}

func TestChatStreamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := standin(t, &backendtest.Standin{Model: "child"}, nil)
		a := s.chat("", true)
		if a.status != 200 || a.err != nil || a.header.Get("Content-Type") != "text/event-stream" || a.header.Get("X-Accel-Buffering") != "no" {
			t.Fatalf("%d %v %v", a.status, a.header, a.err)
		}
		data := events(t, a.body)
		if len(data) != 10 || data[9] != "[DONE]" || !strings.Contains(data[8], `"usage":{"prompt_tokens":12`) {
			t.Errorf("%d events: %q", len(data), data)
		}
		for _, d := range data[:9] {
			if !strings.Contains(d, `"model":"served"`) {
				t.Errorf("event %s has another name", d)
			}
		}
		if log := s.log.String(); !strings.Contains(log, "status=200") || !strings.Contains(log, "prompt=12 cached=10 completion=7") {
			t.Errorf("log %q", log)
		}
	})
}

// TestFailures holds that before the first byte a failure has its status, and after it an error event.

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		word   string
		stream bool
		status int
		events int // before the error event
		says   string
	}{
		{"refuse", false, 400, 0, "no such thing"},
		{"refuse", true, 400, 0, "no such thing"},
		{"error_first", true, 400, 0, "no such thing"},
		{"overflow", true, 400, 0, "maximum context length"},
		{"fail", true, 500, 0, "it broke"},
		{"hang_up", false, 502, 0, "went away"},
		{"hang_up", true, 502, 0, "went away"},
		{"cut", false, 502, 0, "went away"},
		{"garbage", false, 502, 0, "not a JSON object"},
		{"cut", true, 200, 2, "went away"},
		{"cut_event", true, 200, 2, "went away"},
		{"error_event", true, 200, 2, "it broke"},
		{"error_field", true, 200, 2, "it broke"},
		{"garbage", true, 200, 2, "not a JSON object"},
		{"no_end", true, 200, 7, "went away"},
	} {
		t.Run(fmt.Sprint(c.word, " stream ", c.stream), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := standin(t, &backendtest.Standin{Model: "child"}, nil)
				a := s.chat(c.word, c.stream)
				if a.status != c.status || a.err != nil {
					t.Fatalf("%d %s (%v), want %d", a.status, a.body, a.err, c.status)
				}
				object := a.body
				if a.status == 200 {
					data := events(t, a.body)
					if len(data) != c.events+1 {
						t.Fatalf("events %q, want %d and the error", data, c.events)
					}
					object = data[c.events]
				}
				if e := refusal(t, object); !strings.Contains(e.Message, c.says) {
					t.Errorf("error %+v, want %q", e, c.says)
				}
			})
		})
	}
}

func TestOverflowKeepsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := standin(t, &backendtest.Standin{}, nil)
		e := refusal(t, s.chat("overflow", true).body)
		if e.Type != "exceed_context_size_error" || e.Prompt != 900 || *e.Code != "context_length_exceeded" {
			t.Errorf("got %+v", e)
		}
	})
}

func TestStreamIsRepaired(t *testing.T) {
	for _, word := range []string{"torn", "empty"} {
		t.Run(word, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := standin(t, &backendtest.Standin{Model: "child"}, nil).chat(word, true)
				data := events(t, a.body)
				if len(data) != 10 || data[9] != "[DONE]" || strings.ToValidUTF8(a.body, "") != a.body {
					t.Errorf("%d events: %q", len(data), data)
				}
			})
		})
	}
	t.Run("no_done", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := standin(t, &backendtest.Standin{}, nil).do(t.Context(), "POST", "/chat/completions", `{"messages":[{"role":"user","content":"a"}],"stream":true,"standin":"no_done"}`)
			if data := events(t, a.body); data[len(data)-1] != "[DONE]" {
				t.Errorf("events %q, want the mark that the child left out", data)
			}
		})
	})
}

func TestBadRequests(t *testing.T) {
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		param, code              string
	}{
		{"not JSON", "POST", "/v1/chat/completions", "hello", 400, "", "invalid_json"},
		{"no object", "POST", "/v1/chat/completions", "[]", 400, "", "invalid_json"},
		{"no messages", "POST", "/v1/chat/completions", "{}", 400, "messages", "missing_required_parameter"},
		{"stream no bool", "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"stream":1}`, 400, "stream", "invalid_type"},
		{"no prompt", "POST", "/v1/completions", "{}", 400, "prompt", "missing_required_parameter"},
		{"too large", "POST", "/v1/chat/completions", strings.Repeat(" ", 2000), 413, "", "request_too_large"},
		{"unknown path", "POST", "/v1/nothing", "{}", 404, "", "unknown_path"},
		{"root", "GET", "/", "", 404, "", "unknown_path"},
		{"wrong method", "GET", "/v1/chat/completions", "", 405, "", "method_not_allowed"},
		{"embeddings", "POST", "/v1/embeddings", "{}", 501, "", "not_implemented"},
		{"rerank", "POST", "/rerank", "{}", 501, "", "not_implemented"},
		{"responses", "POST", "/v1/responses", `{"input":"a"}`, 501, "", "not_implemented"},
		{"a model that is not there", "GET", "/v1/models/other/name", "", 404, "model", "model_not_found"},
		{"a slot's action", "POST", "/slots/0?action=save", "{}", 501, "", ""},
		{"a slot that is none", "POST", "/slots/../props", "{}", 404, "", "unknown_path"},
		{"a slot by name", "POST", "/slots/first", "{}", 404, "", "unknown_path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := standin(t, &backendtest.Standin{}, func(l *config.Limits) { l.Body = 1000 })
				a := s.do(t.Context(), c.method, c.path, c.body)
				if a.status != c.status || a.header.Get("Content-Type") != "application/json" || a.header.Get("X-Request-Id") == "" {
					t.Fatalf("%d %v %s, want %d", a.status, a.header, a.body, c.status)
				}
				e := refusal(t, a.body)
				if (c.param != "" && (e.Param == nil || *e.Param != c.param)) || (c.code != "" && *e.Code != c.code) {
					t.Errorf("got %s", a.body)
				}
				if (c.status == 501) != (a.header.Get("X-Should-Retry") == "false") {
					t.Errorf("x-should-retry: %q", a.header.Get("X-Should-Retry"))
				}
			})
		})
	}
}

func TestUnavailableHereNamesPathAndDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := refusal(t, standin(t, &backendtest.Standin{}, nil).do(t.Context(), "POST", "/v1/embeddings", "{}").body)
		if e.Message != "/v1/embeddings is not available on --device cpu" || e.Type != "not_implemented" {
			t.Errorf("got %+v", e)
		}
	})
}

func TestPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := standin(t, &backendtest.Standin{}, nil)
		for _, p := range []string{"/v1/health", "/health", "/health/", "/v1/v1/health", "/v1/models", "/models", "/models/", "/v1/v1/models/", "/v1/models/served", "/props", "/v1/props"} {
			if a := s.do(t.Context(), "GET", p, ""); a.status != 200 {
				t.Errorf("GET %s: %d %s", p, a.status, a.body)
			}
		}
		for _, p := range []string{"/v1/chat/completions", "/chat/completions", "/v1/chat/completions/", "/v1/v1/chat/completions"} {
			if a := s.do(t.Context(), "POST", p, body("", false)); a.status != 200 {
				t.Errorf("POST %s: %d %s", p, a.status, a.body)
			}
		}
	})
}

func TestModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := serve(t, informed{&scripted{}}, nil).do(t.Context(), "GET", "/v1/models", "")
		want := `{"object":"list","data":[{"id":"served","object":"model","created":7,"owned_by":"1bit","device":"cpu","device_reason":"as asked","context_length":512,"max_model_len":512,"meta":{"n_ctx":512}}]}` + "\n"
		if diff := cmp.Diff(want, a.body); diff != "" || a.status != 200 {
			t.Errorf("%d (-want +got)\n%s", a.status, diff)
		}
	})
}

// informed is a backend that knows its model.

type informed struct{ *scripted }

func (informed) Info() engine.Info { return engine.Info{Context: 512, Meta: []byte(`{"n_ctx":512}`)} }

func TestRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := standin(t, &backendtest.Standin{}, nil)
		if a := s.do(t.Context(), "POST", "/v1/tokenize", `{"b":1,"a":2}`); a.status != 200 || !strings.Contains(a.body, `"got":"{\"b\":1,\"a\":2}"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.do(t.Context(), "GET", "/props?x=1", ""); a.status != 200 || !strings.Contains(a.body, `"query":"x=1"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := serve(t, &scripted{}, nil).do(t.Context(), "GET", "/slots", ""); a.status != 200 && a.status != 501 {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

func TestRelayThatBreaksOff(t *testing.T) {
	for _, c := range []struct{ kind, want string }{
		{"application/json", ""},
		{"text/event-stream", "went away"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, far(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/health" {
						return
					}
					w.Header().Set("Content-Type", c.kind)
					io.WriteString(w, "data: {}\n\ndata: {")
					http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				})), nil)
				a := s.do(t.Context(), "POST", "/completion", "{}")
				if (a.err == nil) != (c.want != "") || !strings.Contains(a.body, c.want) {
					t.Errorf("%q, %v; want %q", a.body, a.err, c.want)
				}
			})
		})
	}
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for state, want := range map[engine.State]string{
			engine.Loading: `503 {"status":"loading"}`,
			engine.Ready:   `200 {"status":"ok"}`,
			engine.Down:    `503 {"status":"restarting"}`,
		} {
			a := serve(t, &scripted{state: state}, nil).do(t.Context(), "GET", "/health", "")
			if got := fmt.Sprintf("%d %s", a.status, a.body); got != want+"\n" {
				t.Errorf("%v: got %s", state, got)
			}
		}
	})
}

// whole emits one answer.

// TestDeadline holds that the limit that was set is the one that ends a request, and that the error names it.

// TestClientGone holds that a client's end reaches the child wherever the request stands.

// TestKeepAlive holds that a silent stream sends a comment every 15 s, before and after its first event, and that a

// failure after a comment is an event.

func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{state: engine.Ready, generate: func(context.Context, int, func(engine.Chunk) error) (engine.Usage, error) { panic("a mistake") }}
		s := serve(t, b, nil)
		a := s.chat("", false)
		if e := refusal(t, a.body); a.status != 500 || strings.Contains(e.Message, "a mistake") || !strings.Contains(s.log.String(), "a mistake") {
			t.Errorf("%d %+v; log %q", a.status, e, s.log)
		}
		b.generate = func(ctx context.Context, try int, emit func(engine.Chunk) error) (engine.Usage, error) {
			whole(ctx, try, emit)
			panic("a mistake")
		}
		if a := s.chat("", true); a.err == nil {
			t.Errorf("a panic in the middle ends as a whole answer: %q", a.body)
		}
	})
}

func TestRequestID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := standin(t, &backendtest.Standin{}, nil)
		for given, kept := range map[string]bool{"abc-123": true, "": false, "a b": false, strings.Repeat("x", 200): false, "ü": false} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/health", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Request-Id", given)
			res, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if got := res.Header.Get("X-Request-Id"); got == "" || (got == given) != kept {
				t.Errorf("given %q, got %q", given, got)
			}
		}
	})
}

func TestNewRefuses(t *testing.T) {
	if _, err := gateway.New(gateway.Config{}); err == nil {
		t.Error("accepted nothing")
	}
}

// TestAnnouncedTooLarge refuses a body by what its client says of it, before any of it has come.
func TestAnnouncedTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, &scripted{}, func(l *config.Limits) { l.Body = 100 })
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1/v1/chat/completions", io.MultiReader(strings.NewReader("{"), never{t.Context()}))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = 1 << 30
		res, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != 413 {
			t.Errorf("status %d", res.StatusCode)
		}
	})
}

// never is a body whose rest does not come.
type never struct{ ctx context.Context }

func (n never) Read([]byte) (int, error) {
	<-n.ctx.Done()
	return 0, n.ctx.Err()
}
