package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"onebit/appliance/cite"
	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/engine"
	"onebit/engine/wire"
	"onebit/extensions"
	"onebit/extensions/abi"
)

// speaker is a backend that says the same each time, and notes what it was asked.
type speaker struct {
	mu    sync.Mutex
	says  []string // pieces of the answer
	fails error    // after the first piece; before any where there is none
	asked string

	fleeting bool // it was asked to write nothing of the prompt
}

func (s *speaker) Name() string                { return "speaker" }
func (s *speaker) Slots() int                  { return 1 }
func (s *speaker) State() engine.State         { return engine.Ready }
func (s *speaker) Ready(context.Context) error { return nil }

func (s *speaker) Generate(_ context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.fleeting = string(req.Raw), req.Fleeting
	u := engine.Usage{Prompt: 7, Cached: 2, Completion: len(s.says)}
	if !req.Stream {
		return u, emit(engine.Chunk{Raw: fmt.Appendf(nil, `{"model":"x","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, strings.Join(s.says, ""))})
	}
	for i, piece := range s.says {
		finish := "null"
		if i == len(s.says)-1 {
			finish = `"stop"`
		}
		if err := emit(engine.Chunk{Raw: fmt.Appendf(nil, `{"model":"x","choices":[{"index":0,"delta":{"content":%q},"finish_reason":%s}]}`, piece, finish)}); err != nil {
			return u, err
		}
		if s.fails != nil {
			return u, s.fails
		}
	}
	return u, s.fails
}

// wide is a fleet of one model with room in its context.
type wide struct {
	fleet
	context int
}

func (f *wide) List() []gateway.Listed {
	return []gateway.Listed{{Name: "small", Device: engine.CPU, Info: engine.Info{Context: f.context}}}
}

// papers are documents, and what was answered about them.
type papers struct {
	bound []string
	found []cite.Passage
	asked []gateway.Passages
	kept  map[string][]byte
	mute  bool
}

func (p *papers) Find(_ context.Context, q gateway.Passages) (gateway.Found, error) {
	p.asked = append(p.asked, q)
	if q.Collections[0] != "vs_1" {
		return gateway.Found{}, &wire.Error{Status: 404, Type: "t", Message: "no such collection"}
	}
	return gateway.Found{Passages: append([]cite.Passage{}, p.found...), Collections: q.Collections, How: "hybrid"}, nil
}

func (p *papers) Bound(context.Context) []string { return p.bound }
func (p *papers) Keeps(context.Context) bool     { return !p.mute }

func (p *papers) Keep(_ context.Context, id string, body []byte) error {
	p.kept[id] = body
	return nil
}
func (p *papers) Kept(_ context.Context, id string) ([]byte, error) { return p.kept[id], nil }
func (p *papers) Forget(_ context.Context, id string) error         { delete(p.kept, id); return nil }

// desk is a gateway with documents.
type desk struct {
	t       *testing.T
	speaker *speaker
	papers  *papers
	fleet   *wide
	door    *door
	decider *decider
	g       *gateway.Gateway
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, speaker: &speaker{says: []string{"It is [", "1]", " bar."}}, door: &door{}, decider: &decider{},
		papers: &papers{found: []cite.Passage{{File: "file-1", Name: "a.md", Text: "the boiler has 1.6 bar"}, {File: "file-2", Name: "b.md", Text: strings.Repeat("long ", 400)}}, kept: map[string][]byte{}}}
	d.fleet = &wide{fleet: fleet{models: map[string]engine.Backend{"small": d.speaker}}, context: 8192}
	var err error
	d.g, err = gateway.New(gateway.Config{Fleet: d.fleet, Door: d.door, Decider: d.decider, Documents: d.papers, Responses: d.papers, Limits: config.Defaults(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *desk) do(method, path, body string, header ...string) *httptest.ResponseRecorder {
	d.t.Helper()
	r := httptest.NewRequestWithContext(d.t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "let me")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.g.ServeHTTP(w, r)
	return w
}

const chatStart = `{"model":"small","messages":[{"role":"system","content":"s"},{"role":"user","content":"What pressure?"}]`

// TestPassagesInChats: each way to ask for them leads there, and nothing else does.
func TestPassagesInChats(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		header string
		bound  []string
		rag    *abi.RAG
		want   string // of the header; "" for no passages
		status int
	}{
		"a member":          {body: chatStart + `,"documents":{"collections":["vs_1"],"top_k":3}}`, want: "vs_1; n=2; hybrid"},
		"a header":          {body: chatStart + `}`, header: "vs_1", want: "vs_1; n=2; hybrid"},
		"a bound key":       {body: chatStart + `}`, bound: []string{"vs_1"}, want: "vs_1; n=2; hybrid"},
		"turned off":        {body: chatStart + `,"documents":{"collections":[]}}`, bound: []string{"vs_1"}},
		"a module":          {body: strings.Replace(chatStart, `"small"`, `"auto"`, 1) + `}`, rag: &abi.RAG{Collection: "vs_1", TopK: 2}, want: "vs_1; n=2; hybrid"},
		"another's":         {body: chatStart + `,"documents":{"collections":["vs_2"]}}`, status: 404},
		"of the wrong form": {body: chatStart + `,"documents":{"collections":"vs_1"}}`, status: 400},
		"somebody's own":    {body: chatStart + `,"documents":[{"text":"x"}]}`},
		"nothing":           {body: chatStart + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.papers.bound = c.bound
			d.decider.outcome = extensions.Outcome{Candidate: "small", RAG: c.rag}
			for _, stream := range []bool{false, true} {
				body, header := c.body, []string{}
				if stream {
					body = strings.TrimSuffix(body, "}") + `,"stream":true}`
				}
				if c.header != "" {
					header = []string{"X-1bit-Documents", c.header}
				}
				res := d.do("POST", "/v1/chat/completions", body, header...)
				if want := max(c.status, 200); res.Code != want {
					t.Fatalf("%d %s", res.Code, res.Body)
				}
				if c.status != 0 {
					continue
				}
				if got := res.Header().Get("X-1bit-Documents"); got != c.want {
					t.Errorf("the header is %q, want %q", got, c.want)
				}
				in := strings.Contains(d.speaker.asked, `the boiler has 1.6 bar`)
				cited := strings.Contains(res.Body.String(), `"annotations":[{"type":"file_citation","file_id":"file-1","filename":"a.md","index":6}]`)
				if d.speaker.fleeting != in {
					t.Errorf("streamed %v: passages %v, to be written to no file %v", stream, in, d.speaker.fleeting)
				}
				if in != (c.want != "") || cited != in || strings.Contains(d.speaker.asked, `"documents"`) && in {
					t.Errorf("streamed %v: passages %v, cited %v\n%s\n%s", stream, in, cited, d.speaker.asked, res.Body)
				}
				if o := d.door.outcomes[len(d.door.outcomes)-1]; o.Added != c.want || in && !strings.Contains(string(o.Request), "1.6 bar") {
					t.Errorf("the request log says %q of %s", o.Added, o.Request)
				}
			}
		})
	}
}

// TestPassagesFit: what has no room in the model's context is left out, and the header says so.
func TestPassagesFit(t *testing.T) {
	d := newDesk(t)
	d.fleet.context = 800
	res := d.do("POST", "/v1/chat/completions", chatStart+`,"documents":{"collections":["vs_1"]}}`)
	if got := res.Header().Get("X-1bit-Documents"); got != "vs_1; n=1; dropped=1; hybrid" || strings.Contains(d.speaker.asked, "long long") {
		t.Errorf("%q\n%s", got, d.speaker.asked)
	}
	d.fleet.context = 60
	res = d.do("POST", "/v1/chat/completions", chatStart+`,"documents":{"collections":["vs_1"]}}`)
	if got := res.Header().Get("X-1bit-Documents"); got != "vs_1; n=0; dropped=2; hybrid" || strings.Contains(d.speaker.asked, "1.6 bar") {
		t.Errorf("%q\n%s", got, d.speaker.asked)
	}
}

const asking = `{"model":"small","input":"What pressure?","tools":[{"type":"file_search","vector_store_ids":["vs_1"],"max_num_results":4}]`

// TestResponsesOverChats: over a chat, whole and streamed, with a search; going on; and ends of each kind.
func TestResponsesOverChats(t *testing.T) {
	d := newDesk(t)
	res := d.do("POST", "/v1/responses", asking+`,"include":["file_search_call.results"]}`)
	for _, want := range []string{`"type":"file_search_call"`, `"text":"the boiler has 1.6 bar"`, `"text":"It is [1] bar."`, `"filename":"a.md","index":6`, `"status":"completed"`, `"cached_tokens":2`, `"store":true`} {
		if res.Code != 200 || !strings.Contains(res.Body.String(), want) {
			t.Errorf("%d, no %s in %s", res.Code, want, res.Body)
		}
	}
	if q := d.papers.asked[0]; q.Most != 4 || q.Query != "What pressure?" || q.Lenient {
		t.Errorf("it looked for %+v", q)
	}
	var id string
	for id = range d.papers.kept {
	}
	if res := d.do("GET", "/v1/responses/"+id, ""); res.Code != 200 || !strings.Contains(res.Body.String(), "[1] bar") {
		t.Error(res.Code, res.Body)
	}
	if res := d.do("GET", "/v1/responses/"+id+"/input_items", ""); res.Code != 200 || !strings.Contains(res.Body.String(), "What pressure?") {
		t.Error(res.Code, res.Body)
	}
	res = d.do("POST", "/v1/responses", `{"input":"And then?","store":false,"previous_response_id":"`+id+`"}`)
	if res.Code != 200 || !strings.Contains(d.speaker.asked, `"content":"It is [1] bar."`) || !strings.Contains(d.speaker.asked, "What pressure?") || len(d.papers.kept) != 1 {
		t.Errorf("%d %s", res.Code, d.speaker.asked)
	}
	if res := d.do("DELETE", "/v1/responses/"+id, ""); res.Code != 200 {
		t.Error(res.Code, res.Body)
	}
	for _, c := range [][3]string{{"GET", "/v1/responses/" + id, ""}, {"DELETE", "/v1/responses/" + id, ""}, {"POST", "/v1/responses", `{"input":"x","previous_response_id":"` + id + `"}`}} {
		if res := d.do(c[0], c[1], c[2]); res.Code != http.StatusNotFound {
			t.Errorf("%s %s: %d %s", c[0], c[1], res.Code, res.Body)
		}
	}
	d.papers.mute = true
	if res := d.do("POST", "/v1/responses", `{"input":"x","tools":[{"type":"web_search\"\n"}]}`); !strings.Contains(res.Body.String(), `"store":false`) || res.Header().Get("Warning") != `299 1bit "tool web_search? is not served here and was left out"` || len(d.papers.kept) != 0 {
		t.Errorf("%s %v", res.Body, res.Header())
	}
}

// TestResponsesEnd: a stream always ends with an event that says how, and what fails before it has begun is a status.
func TestResponsesEnd(t *testing.T) {
	d := newDesk(t)
	const body = asking + `,"stream":true}`
	res := d.do("POST", "/v1/responses", body)
	if text := res.Body.String(); !strings.Contains(text, "event: response.file_search_call.searching\n") || strings.Count(text, "event: response.completed\n") != 1 || !strings.HasSuffix(text, "\n\n") {
		t.Error(text)
	}
	d.speaker.fails = &engine.StatusError{Status: 500, Body: []byte(`{"error":{"message":"it broke"}}`)}
	res = d.do("POST", "/v1/responses", body)
	if text := res.Body.String(); res.Code != 200 || strings.Count(text, "event: response.failed\n") != 1 || strings.Contains(text, "response.completed") {
		t.Error(text)
	}
	if len(d.papers.kept) != 1 {
		t.Errorf("%d responses are kept; the one that failed should not be", len(d.papers.kept))
	}
	d.speaker.says = nil
	res = d.do("POST", "/v1/responses", body)
	if res.Code != 500 || strings.Contains(res.Body.String(), "event:") {
		t.Errorf("%d %s", res.Code, res.Body)
	}
	d.speaker.fails = errors.ErrUnsupported
	if res := d.do("POST", "/v1/responses", `{"input":"x"}`); res.Code != 501 {
		t.Errorf("%d %s", res.Code, res.Body)
	}
}
