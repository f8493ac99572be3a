package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/config"
	"onebit/engine"
	"onebit/extensions"
)

// wanting is a question in the form of Anthropic's Messages.
func wanting(more string) string {
	return `{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":"hi"}]` + more + `}`
}

// telling is a backend that answers with some events and keeps what it was asked.
type telling struct {
	scripted
	asked []string
}

func (b *telling) Generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	b.asked = append(b.asked, string(req.Raw))
	return b.scripted.Generate(ctx, req, emit)
}

// tells makes a backend that says some texts, a second apart, and then ends with err.
func tells(err error, texts ...string) *telling {
	b := &telling{scripted: scripted{state: engine.Ready}}
	b.generate = func(_ context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
		u := engine.Usage{Prompt: 9, Cached: 4}
		for _, text := range texts {
			u.Completion++
			if err := emit(engine.Chunk{Raw: []byte(fmt.Sprintf(`{"model":"child","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`, text))}); err != nil {
				return u, err
			}
		}
		return u, err
	}
	return b
}

// told splits a stream of Anthropic's events, without ids, and checks that each has its name.
func told(t *testing.T, stream string) (events []string) {
	t.Helper()
	for event := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(event, "\ndata: ")
		name, named := strings.CutPrefix(name, "event: ")
		var e struct {
			Type    string
			Message struct{ ID string }
		}
		if err := json.Unmarshal([]byte(data), &e); !ok || !named || err != nil || e.Type != name {
			t.Fatalf("%q is no event with a name (%v)", event, err)
		}
		if e.Message.ID != "" {
			data = strings.Replace(data, e.Message.ID, "ID", 1)
		}
		events = append(events, strings.Replace(data, `{"type":"`+name+`"`, name, 1))
	}
	return events
}

func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tells(nil, "Hel", "lo")
		s := serve(t, b, nil)
		for _, path := range []string{"/v1/messages", "/v1/messages?beta=true", "/messages", "//v1/v1/messages/"} {
			got := s.do(t.Context(), "POST", path, wanting(""))
			var m struct {
				ID      string
				Content json.RawMessage
				Model   string
				Reason  string `json:"stop_reason"`
				Usage   json.RawMessage
			}
			if err := json.Unmarshal([]byte(got.body), &m); err != nil || got.status != 200 || !strings.HasPrefix(m.ID, "msg_") || m.Model != "served" || m.Reason != "end_turn" ||
				string(m.Content) != `[{"type":"text","text":"Hello"}]` || string(m.Usage) != `{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":2}` {
				t.Fatalf("%s: %d %s", path, got.status, got.body)
			}
			if got.header.Get("Request-Id") == "" || got.header.Get("Content-Type") != "application/json" {
				t.Error(got.header)
			}
		}
		got := s.do(t.Context(), "POST", "/v1/messages", wanting(`,"stream":true`))
		if diff := cmp.Diff([]string{
			`message_start,"message":{"id":"ID","type":"message","role":"assistant","model":"served","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}`,
			`content_block_start,"index":0,"content_block":{"type":"text","text":""}}`,
			`content_block_delta,"index":0,"delta":{"type":"text_delta","text":"Hel"}}`,
			`content_block_delta,"index":0,"delta":{"type":"text_delta","text":"lo"}}`,
			`content_block_stop,"index":0}`,
			`message_delta,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":2}}`,
			`message_stop}`,
		}, told(t, got.body)); diff != "" {
			t.Error(diff)
		}
		if !strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream") {
			t.Error(got.header)
		}
		last := b.asked[len(b.asked)-1]
		if strings.Contains(last, "claude") || !strings.Contains(last, `"return_progress":true`) || strings.Contains(b.asked[0], "return_progress") {
			t.Errorf("the backend was asked %s, and first %s", last, b.asked[0])
		}

		got = s.do(t.Context(), "POST", "/v1/messages", wanting(`,"stop_sequences":["lo"]`))
		if !strings.Contains(got.body, `"text":"Hel"`) || !strings.Contains(got.body, `"stop_reason":"stop_sequence","stop_sequence":"lo"`) || got.status != 200 {
			t.Errorf("%d %s", got.status, got.body)
		}
		if last = b.asked[len(b.asked)-1]; !strings.Contains(last, `"timings_per_token":true`) {
			t.Error(last)
		}
	})
}

// TestMessagesErrors: errors have Anthropic's form, in a stream as well, and only for its clients.
func TestMessagesErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := fmt.Errorf("%w: it is gone", engine.ErrLost)
		for name, c := range map[string]struct {
			backend engine.Backend
			body    string
			status  int
			want    string
		}{
			"a mistake":      {tells(nil), `{"model":"m","messages":[]}`, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: Field required"},"request_id":"req_`},
			"no JSON":        {tells(nil), `{`, 400, "invalid_request_error"},
			"overloaded":     {tells(&engine.UnavailableError{Reason: "no room"}), wanting(""), 529, `"overloaded_error","message":"no room"`},
			"lost":           {tells(lost), wanting(`,"stream":true`), 502, "api_error"},
			"too long":       {tells(&engine.StatusError{Status: 400, Body: []byte(`{"error":{"message":"x","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}`)}), wanting(""), 400, "prompt is too long: 9 tokens"},
			"in the midst":   {tells(lost, "Hel"), wanting(`,"stream":true`), 200, `event: error` + "\n" + `data: {"type":"error","error":{"type":"api_error"`},
			"an address":     {tells(nil), `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x/y.png"}}]}]}`, 400, "only data: addresses are served"},
			"another method": {tells(nil), "", 405, "invalid_request_error"},
		} {
			method := "POST"
			if c.body == "" {
				method = "GET"
			}
			got := serve(t, c.backend, nil).do(t.Context(), method, "/v1/messages", c.body)
			if got.status != c.status || !strings.Contains(got.body, c.want) {
				t.Errorf("%s: %d %s", name, got.status, got.body)
			}
			if c.status == 200 {
				if events := told(t, got.body); !strings.HasPrefix(events[len(events)-1], "error") || !strings.HasPrefix(events[0], "message_start") {
					t.Errorf("%s: %v", name, events)
				}
			}
		}
		d := &door{}
		s, _ := box(t, tells(nil, "x"), d)
		for path, status := range map[string]int{"/v1/messages?anonymous=1": 401, "/v1/messages/none": 404} {
			if got := s.do(t.Context(), "POST", path, wanting("")); got.status != status || !strings.HasPrefix(got.body, `{"type":"error","error":{"type":"`) {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
	})
}

// TestMessagesWait: while nothing comes, a stream begins as it must, and pings.
func TestMessagesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &telling{scripted: scripted{state: engine.Ready}}
		b.generate = func(_ context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
			time.Sleep(25 * time.Second)
			err := emit(engine.Chunk{Raw: []byte(`{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"length"}]}`)})
			return engine.Usage{Prompt: 3, Completion: 1}, err
		}
		got := serve(t, b, func(l *config.Limits) { l.KeepAlive = 10 * time.Second }).do(t.Context(), "POST", "/v1/messages", wanting(`,"stream":true`))
		var kinds []string
		for _, e := range told(t, got.body) {
			kind, _, _ := strings.Cut(e, ",")
			kinds = append(kinds, strings.TrimSuffix(kind, "}"))
		}
		if diff := cmp.Diff([]string{"message_start", "ping", "ping", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}, kinds); diff != "" {
			t.Error(diff)
		}
	})
}

// TestMessagesSteady: a server that is alone sees neither the line that Claude Code changes in each request nor marks.
func TestMessagesSteady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tells(nil, "x")
		s := serve(t, b, nil)
		for _, hash := range []string{"aaaaa", "bbbbb"} {
			s.do(t.Context(), "POST", "/v1/messages", wanting(`,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=`+hash+`;"},{"type":"text","text":"You are kind.","cache_control":{"type":"ephemeral"}}]`))
		}
		if len(b.asked) != 2 || b.asked[0] != b.asked[1] || strings.Contains(b.asked[0], "cache_control") || !strings.Contains(b.asked[0], `"content":"You are kind."`) {
			t.Error(b.asked)
		}
	})
}

// TestMessagesFleet: on a box, names of Anthropic's models leave the choice to it, and all else is as with a chat.
func TestMessagesFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{outcome: extensions.Outcome{Candidate: "large", Class: "code", Confidence: 0.9}, decides: true}
		s, at, child := deciding(t, d, &choice{})
		got := s.do(t.Context(), "POST", "/v1/messages", wanting(`,"system":"be kind"`))
		if got.status != 200 || !strings.Contains(got.body, `"model":"large"`) || got.header.Get("X-1bit-Route") != "code 0.90 cpu" {
			t.Fatalf("%d %v %s", got.status, got.header, got.body)
		}
		if in := d.asked[0]; in.API != "messages" || in.Model != "claude-sonnet-4-5" || string(in.Body) != wanting(`,"system":"be kind"`) {
			t.Errorf("%s %s %s", in.API, in.Model, in.Body)
		}
		if o := at.outcomes[0]; o.Endpoint != "/messages" || o.Model != "large" || o.Usage.Completion == 0 || string(o.Request) != wanting(`,"system":"be kind"`) || !strings.Contains(string(o.Answer), `"type":"message"`) {
			t.Errorf("%+v", o)
		}
		if seen := child.seen.String(); strings.Contains(seen, "claude") {
			t.Error(seen)
		}
		for name, status := range map[string]int{"small": 200, "claude-opus-9": 200, "gpt-5": 404} {
			got := s.do(t.Context(), "POST", "/v1/messages", strings.Replace(wanting(""), "claude-sonnet-4-5", name, 1))
			if got.status != status {
				t.Errorf("%s: %d %s", name, got.status, got.body)
			}
		}
		if len(d.asked) != 2 {
			t.Errorf("it was asked %d times", len(d.asked))
		}
		d.outcome.Refusal = &extensions.Refusal{Status: 403, Code: "no", Message: "not here"}
		if got := s.do(t.Context(), "POST", "/v1/messages", wanting("")); got.status != 403 || !strings.Contains(got.body, `"permission_error","message":"not here"`) {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

// TestReuseShown says what was reused before the first byte of each form of answer: of a stream without what will be kept. What
// was expected of a cache when the model was chosen is not said: the server's own count is, where that was expected.
func TestReuseShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{outcome: extensions.Outcome{Candidate: "large", Why: "default; kept; cached=9000"}, decides: true}
		s, _, child := deciding(t, d, &choice{})
		for path, body := range map[string]string{
			"/v1/messages":         wanting(""),
			"/v1/chat/completions": `{"model":"auto","messages":[{"role":"user","content":"hi"}]}`,
			"/v1/completions":      `{"model":"auto","prompt":"hi"}`,
			"/v1/responses":        `{"model":"auto","input":"hi","store":false}`,
		} {
			for _, tt := range []struct {
				reuse              *engine.Reuse
				whole, stream, why string
			}{
				{&engine.Reuse{Tokens: 32, Kept: 2}, "hit tokens=32 kept=2 steady=0", "hit tokens=32 steady=0", "default; kept; cached=32"},
				{&engine.Reuse{Tokens: 31}, "miss tokens=31 kept=0 steady=0", "miss tokens=31 steady=0", "default; kept"}, // the template's own
				{&engine.Reuse{Steady: 5}, "miss tokens=0 kept=0 steady=5", "miss tokens=0 steady=5", "default; kept"},
				{nil, "", "", "default; kept"},
			} {
				child.reuse = tt.reuse
				for more, want := range map[string]string{"": tt.whole, `,"stream":true`: tt.stream} {
					got := s.do(t.Context(), "POST", path, strings.TrimSuffix(body, "}")+more+"}")
					if h, why := got.header.Get("X-1bit-Cache"), got.header.Get("X-1bit-Route-Why"); got.status != 200 || h != want || why != tt.why {
						t.Errorf("%s%s: %d %q %q %s", path, more, got.status, h, why, got.body)
					}
				}
			}
		}
		d.outcome.Why = "default" // nobody expected anything
		child.reuse = &engine.Reuse{Tokens: 70}
		if got := s.do(t.Context(), "POST", "/v1/messages", wanting("")); got.header.Get("X-1bit-Route-Why") != "default" {
			t.Error(got.header)
		}
	})
}

// counter is a server that counts, with or without a route of its own for chats.
func counter(t *testing.T, own bool, asked *string) engine.Backend {
	t.Helper()
	return far(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/health":
		case r.URL.Path == "/v1/chat/completions/input_tokens" && own:
			var b strings.Builder
			_, _ = fmt.Fprint(&b, r.ContentLength)
			*asked = b.String()
			_, _ = w.Write([]byte(`{"object":"response.input_tokens","input_tokens":12}`))
		case r.URL.Path == "/apply-template":
			_, _ = w.Write([]byte(`{"prompt":"<a>b"}`))
		case r.URL.Path == "/tokenize":
			_, _ = w.Write([]byte(`{"tokens":[1,2,3]}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
}

func TestCountTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked string
		body := `{"model":"claude-x","messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f"}]}`
		for own, want := range map[bool]string{true: `{"input_tokens":12}` + "\n", false: `{"input_tokens":3}` + "\n"} {
			b := counter(t, own, &asked)
			if err := b.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := serve(t, b, nil).do(t.Context(), "POST", "/v1/messages/count_tokens?beta=true", body); got.status != 200 || got.body != want {
				t.Errorf("%d %s", got.status, got.body)
			}
			s, f := box(t, b, &door{})
			if got := s.do(t.Context(), "POST", "/v1/messages/count_tokens", body); got.status != 200 || got.body != want || f.out != 0 {
				t.Errorf("%d %s", got.status, got.body)
			}
			f.device = engine.NPU
			if got := s.do(t.Context(), "POST", "/v1/messages/count_tokens", body); got.status != 501 || !strings.Contains(got.body, "api_error") {
				t.Errorf("%d %s", got.status, got.body)
			}
		}
	})
}

// TestModelsAnthropic: the list of models has the form that the client knows.
func TestModelsAnthropic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, tells(nil), nil)
		s.client.Transport = versioned{s.client.Transport}
		const model = `{"type":"model","id":"served","display_name":"served","created_at":"1970-01-01T00:00:07Z","lifecycle":"active"}`
		for path, want := range map[string]string{
			"/v1/models":        `{"data":[` + model + `],"has_more":false,"first_id":"served","last_id":"served"}` + "\n",
			"/v1/models/served": model + "\n",
		} {
			if got := s.do(t.Context(), "GET", path, ""); got.body != want {
				t.Errorf("%s: %s", path, got.body)
			}
		}
		if got := s.do(t.Context(), "GET", "/v1/models/none", ""); got.status != 404 || !strings.Contains(got.body, `"not_found_error"`) {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

type versioned struct{ http.RoundTripper }

func (v versioned) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Anthropic-Version", "2023-06-01")
	return v.RoundTripper.RoundTrip(r)
}
