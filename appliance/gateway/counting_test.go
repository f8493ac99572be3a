package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"onebit/engine"
)

// native is a backend whose own routes answer as a test says, in pieces of three bytes.
type native struct {
	scripted
	answer, kind string
	breaks       bool // before the end
}

func (n *native) Relay(*http.Request) (*http.Response, error) {
	var in io.Reader = strings.NewReader(n.answer)
	if n.breaks {
		in = io.MultiReader(in, broken{})
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {n.kind}}, Body: io.NopCloser(pieces{in})}, nil
}

type pieces struct{ io.Reader }

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(3, len(b))]) }

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestLeavingIsCounted holds that a stream costs its tokens where nobody could count them: the client left, the backend
// died, or the permission ended.
func TestLeavingIsCounted(t *testing.T) {
	bodies := map[string]string{
		"plain":          `"messages":[{"role":"user","content":"tell me a long story"}]`,
		"asks for usage": `"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"tell me a long story"}]`,
	}
	for name, body := range bodies {
		for _, device := range []engine.Device{engine.CPU, engine.Zinc} {
			synctest.Test(t, func(t *testing.T) {
				d := &door{}
				s, f := box(t, &scripted{state: engine.Ready, generate: func(ctx context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
					for range 40 {
						if err := emit(engine.Chunk{Raw: []byte(`{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}`)}); err != nil {
							return engine.Usage{}, err
						}
					}
					<-ctx.Done()
					return engine.Usage{}, context.Cause(ctx)
				}}, d)
				f.device = device
				ctx, leave := context.WithCancel(t.Context())
				go s.do(ctx, "POST", "/v1/chat/completions", `{"stream":true,`+body+`}`)
				synctest.Wait()
				leave()
				synctest.Wait()
				if len(d.outcomes) != 1 {
					t.Fatalf("outcomes %v", d.outcomes)
				}
				if u := d.outcomes[0].Usage; u.Completion != 40 || u.Prompt < 10 || u.Prompt > 50 {
					t.Errorf("%s, %s: counted %+v", name, device, u)
				}
			})
		}
	}
}

// TestLeavingUnstreamedIsCounted holds the same of an answer in one piece: what the backend knows, or its prompt at
// least. One that no backend has been asked for costs nothing.
func TestLeavingUnstreamedIsCounted(t *testing.T) {
	for name, c := range map[string]struct {
		state    engine.State
		said     engine.Usage
		least    int
		complete int
	}{
		"the backend knows": {engine.Ready, engine.Usage{Prompt: 20, Completion: 7}, 20, 7},
		"it does not":       {engine.Ready, engine.Usage{}, 10, 0},
		"not asked":         {engine.Loading, engine.Usage{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &door{}
				s, _ := box(t, &scripted{state: c.state, generate: func(ctx context.Context, _ int, _ func(engine.Chunk) error) (engine.Usage, error) {
					<-ctx.Done()
					return c.said, context.Cause(ctx)
				}}, d)
				ctx, leave := context.WithCancel(t.Context())
				go s.do(ctx, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"tell me a long story"}]}`)
				synctest.Wait()
				leave()
				synctest.Wait()
				if len(d.outcomes) != 1 {
					t.Fatalf("outcomes %v", d.outcomes)
				}
				if u := d.outcomes[0].Usage; u.Completion != c.complete || u.Prompt < c.least || u.Prompt > c.least+30 || c.least == 0 && u.Prompt != 0 {
					t.Errorf("counted %+v", u)
				}
			})
		})
	}
}

// TestNativeCompletions holds that llama-server's own /completion counts as the other routes do, whole, streamed and cut.
func TestNativeCompletions(t *testing.T) {
	const last = `{"index":0,"content":"a \"tokens_predicted\":900 \\","tokens_predicted":3,"tokens_evaluated":7,"stop":true,"timings":{"predicted_n":3}}`
	for _, c := range []struct {
		name, answer, kind string
		breaks             bool
		want               engine.Usage
	}{
		{"whole", last, "application/json", false, engine.Usage{Prompt: 7, Completion: 3}},
		{"two prompts", "[" + last + `,{"index":1,"tokens_predicted":5,"tokens_evaluated":6}]`, "application/json", false, engine.Usage{Prompt: 13, Completion: 8}},
		{"streamed", `data: {"index":0,"content":"a","tokens_predicted":1,"tokens_evaluated":7}` + "\n\ndata: " + last + "\n\n", "text/event-stream", false, engine.Usage{Prompt: 7, Completion: 3}},
		{"cut", `data: {"index":0,"content":"a","tokens_predicted":2,"tokens_evaluated":7}` + "\n\n", "text/event-stream", true, engine.Usage{Prompt: 7, Completion: 2}},
		{"without", `{"content":"a"}`, "application/json", false, engine.Usage{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &door{}
			s, _ := box(t, &native{scripted: scripted{state: engine.Ready}, answer: c.answer, kind: c.kind, breaks: c.breaks}, d)
			got := s.do(t.Context(), "POST", "/completion", `{"prompt":"hello","stream":true}`)
			synctest.Wait()
			if len(d.outcomes) != 1 || d.outcomes[0].Usage != c.want {
				t.Errorf("%s: %d %s: %+v", c.name, got.status, got.body, d.outcomes)
			}
		})
	}
}

// TestPropsNameNoFolder holds that a client learns what a model is and not where its file lies.
func TestPropsNameNoFolder(t *testing.T) {
	for _, at := range []string{`"/home/anna/models/small.gguf"`, `"C:\\models\\small.gguf"`, `"small.gguf"`} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := box(t, &native{scripted: scripted{state: engine.Ready}, answer: `{"total_slots":4,"model_path":` + at + `}`, kind: "application/json"}, &door{})
			got := s.do(t.Context(), "GET", "/props", "")
			if got.status != 200 || !strings.Contains(got.body, `"total_slots":4`) || !strings.Contains(got.body, `"model_path":"small.gguf"`) {
				t.Errorf("%s: %d %s", at, got.status, got.body)
			}
		})
	}
}

// TestServersThatDoNotCount holds that their answers cost something all the same.
func TestServersThatDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &door{}
		s, _ := box(t, &scripted{state: engine.Ready, generate: func(_ context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
			return engine.Usage{}, emit(engine.Chunk{Raw: []byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":"a long story"}}]}`)})
		}}, d)
		s.do(t.Context(), "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"tell me a long story"}]}`)
		if u := d.outcomes[0].Usage; u.Prompt < 10 || u.Completion < 10 {
			t.Errorf("counted %+v", u)
		}
	})
}
