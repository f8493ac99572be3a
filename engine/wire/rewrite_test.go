package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"onebit/engine"
	"onebit/engine/wire"
)

func TestModelOfARequest(t *testing.T) {
	for _, c := range []struct{ raw, with, without string }{
		{`{}`, `{"model":"m"}`, `{}`},
		{`{ }`, `{ "model":"m"}`, `{ }`},
		{`{"b":1}`, `{"b":1,"model":"m"}`, `{"b":1}`},
		{`{"model":"x"}`, `{"model":"m"}`, `{}`},
		{`{"model" : null, "b":1}`, `{"model" : "m", "b":1}`, `{"b":1}`},
		{`{"b":1, "model":"x" }`, `{"b":1, "model":"m" }`, `{"b":1 }`},
		{`{"b":{"model":"y"},"model":"x","a":[1, 2]}`, `{"b":{"model":"y"},"model":"m","a":[1, 2]}`, `{"b":{"model":"y"},"a":[1, 2]}`},
		{`{"mod\u0065l":"x","a":1}`, `{"mod\u0065l":"m","a":1}`, `{"a":1}`},
		{`{"a":1,"model":"x","model":"y"}`, `{"a":1,"model":"m","model":"y"}`, `{"a":1}`},
		{`{"model":"x","model":"y"}`, `{"model":"m","model":"y"}`, `{}`},
	} {
		if got := string(wire.AppendModel(nil, []byte(c.raw), []byte(`"m"`))); got != c.with {
			t.Errorf("with: %s became %s, want %s", c.raw, got, c.with)
		}
		if got := string(wire.AppendWithoutModel(nil, []byte(c.raw))); got != c.without {
			t.Errorf("without: %s became %s, want %s", c.raw, got, c.without)
		}
	}
}

func TestMedia(t *testing.T) {
	for _, c := range []struct{ name, raw, visited, want string }{
		{"none", `{"messages":[{"role":"user","content":"image_url"}]}`, "", ""},
		{"a chat", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url", "image_url":{"detail":"low","url":"file:a.png"} }]}],"b":1}`,
			"messages[0].content[1].image_url.url=file:a.png", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url", "image_url":{"detail":"low","url":"NEW"} }]}],"b":1}`},
		{"bare", `{"messages":[{"content":[{"image_url":"file:a"}]}]}`, "messages[0].content[0].image_url=file:a", `{"messages":[{"content":[{"image_url":"NEW"}]}]}`},
		{"kept", `{"messages":[{"content":[{"image_url":"data:x"}]}]}`, "messages[0].content[0].image_url=data:x", ""},
		{"a response", `{"input":[{"type":"message","content":[{"type":"input_image","image_url":"file:a"}]},{"output":[{"image_url":"file:b"}]}]}`,
			"input[0].content[0].image_url=file:a input[1].output[0].image_url=file:b",
			`{"input":[{"type":"message","content":[{"type":"input_image","image_url":"NEW"}]},{"output":[{"image_url":"NEW"}]}]}`},
		{"sound and film", `{"messages":[{"content":[{"input_audio":{"data":"http://a","format":"wav"}},{"video_url":{"url":"http://b"}},{"input_video":{"url":"http://c"}}]}]}`,
			"messages[0].content[0].input_audio.data=http://a messages[0].content[1].video_url.url=http://b messages[0].content[2].input_video.url=http://c", ""},
		{"escaped", `{"messages":[{"content":[{"image\u005furl":{"url":"fil\u0065:a"}}]}]}`, "messages[0].content[0].image_url.url=file:a", `{"messages":[{"content":[{"image\u005furl":{"url":"NEW"}}]}]}`},
		{"elsewhere", `{"tools":[{"content":[{"image_url":"file:a"}]}],"metadata":{"image_url":"file:b"}}`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var visited []string
			got, err := wire.Media([]byte(c.raw), func(path, url string) (string, error) {
				visited = append(visited, path+"="+url)
				if strings.HasPrefix(url, "file:") {
					return "NEW", nil
				}
				return url, nil
			})
			if c.want == "" {
				c.want = c.raw
			}
			if err != nil || string(got) != c.want || strings.Join(visited, " ") != c.visited {
				t.Errorf("%s (%v)\nvisited %q\nwant %q", got, err, visited, c.visited)
			}
		})
	}
	mine := errors.New("no")
	if _, err := wire.Media([]byte(`{"messages":[{"content":[{"image_url":"a"},{"image_url":"b"}]}]}`), func(_, url string) (string, error) {
		if url == "b" {
			t.Error("asked again after an error")
		}
		return "", mine
	}); !errors.Is(err, mine) {
		t.Errorf("got %v", err)
	}
}

func TestOtherRequests(t *testing.T) {
	for _, c := range []struct {
		name, body string
		parse      func([]byte) (*engine.Request, error)
		param      string // of the refusal; empty when it is accepted
	}{
		{"embedding", `{"input":"a","model":"m","encoding_format":"base64"}`, wire.ParseEmbedding, ""},
		{"embedding of texts", `{"input":["a","b"]}`, wire.ParseEmbedding, ""},
		{"embedding of tokens", `{"input":[1,2]}`, wire.ParseEmbedding, ""},
		{"no input", `{}`, wire.ParseEmbedding, "input"},
		{"empty input", `{"input":[]}`, wire.ParseEmbedding, "input"},
		{"rerank", `{"query":"a","documents":["b",{"text":"c"}],"top_n":1}`, wire.ParseRerank, ""},
		{"rerank of texts", `{"query":"a","texts":["b"]}`, wire.ParseRerank, ""},
		{"no query", `{"documents":["b"]}`, wire.ParseRerank, "query"},
		{"no documents", `{"query":"a"}`, wire.ParseRerank, "documents"},
		{"empty documents", `{"query":"a","documents":[]}`, wire.ParseRerank, "documents"},
		{"response", `{"input":"a","stream":true}`, wire.ParseResponse, ""},
		{"response of items", `{"input":[{"role":"user"}]}`, wire.ParseResponse, ""},
		{"response of nothing", `{"input":null}`, wire.ParseResponse, "input"},
		{"response stream", `{"input":"a","stream":1}`, wire.ParseResponse, "stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := c.parse([]byte(c.body))
			refused, _ := errors.AsType[*engine.InvalidError](err)
			switch {
			case c.param == "" && (err != nil || req.Stream != strings.Contains(c.body, "true")):
				t.Errorf("%+v, %v", req, err)
			case c.param != "" && (refused == nil || refused.Param != c.param):
				t.Errorf("got %v, want a refusal of %s", err, c.param)
			}
		})
	}
}

func TestResponseEvents(t *testing.T) {
	raw := `{"type":"response.completed","sequence_number":9,"response":{"id":"r","model":"child","usage":{"input_tokens":3}}}`
	want := `{"type":"response.completed","sequence_number":9,"response":{"id":"r","model":"served","usage":{"input_tokens":3}}}`
	if got := string(wire.AppendResponseRenamed(nil, []byte(raw), []byte(`"served"`))); got != want {
		t.Errorf("got %s", got)
	}
	if got := string(wire.AppendResponseRenamed(nil, []byte(`{"object":"response","model":"child"}`), []byte(`"served"`))); got != `{"object":"response","model":"served"}` {
		t.Errorf("got %s", got)
	}
	name := wire.ResponseEvent([]byte(raw))
	if string(name) != "response.completed" || !wire.ResponseFinished(name) || wire.ResponseFinished([]byte("response.created")) {
		t.Errorf("event %q", name)
	}
	if got := string(wire.AppendNamedEvent(nil, name, []byte("{}"))); got != "event: response.completed\ndata: {}\n\n" {
		t.Errorf("got %q", got)
	}
	if got := string(wire.AppendNamedEvent(nil, []byte("a\nb"), []byte("{}"))); got != "data: {}\n\n" {
		t.Errorf("got %q", got)
	}
	u, err := wire.ReadUsage([]byte(`{"input_tokens":3,"input_tokens_details":{"cached_tokens":2},"output_tokens":5}`))
	if err != nil || u != (engine.Usage{Prompt: 3, Cached: 2, Completion: 5}) {
		t.Errorf("usage %+v, %v", u, err)
	}
}

// FuzzRewrite holds that rewriting keeps a JSON object a JSON object, and does what it says.
func FuzzRewrite(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"model":"x"}`, `{"a":1,"model":null}`, `{"messages":[{"content":[{"image_url":{"url":"file:a"}}]}]}`, `{"input":[{"content":[{"image_url":"x"}]}],"model":"y" ,"b":2}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if req, err := wire.ParseChat(raw); err == nil {
			raw = req.Raw
		} else if !json.Valid(raw) {
			wire.AppendModel(nil, raw, []byte(`"m"`)) // must not crash
			wire.AppendWithoutModel(nil, raw)
			return
		}
		object := bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))
		with := wire.AppendModel(nil, raw, []byte(`"m"`))
		without := wire.AppendWithoutModel(nil, raw)
		media, err := wire.Media(raw, func(string, string) (string, error) { return `"new"`, nil })
		if err != nil || !json.Valid(with) || !json.Valid(without) || !json.Valid(media) {
			t.Fatalf("%s became\n%s\n%s\n%s (%v)", raw, with, without, media, err)
		}
		var left map[string]json.RawMessage
		if object && json.Unmarshal(without, &left) == nil && left["model"] != nil {
			t.Errorf("%s still has a model: %s", raw, without)
		}
	})
}

func TestAppendMember(t *testing.T) {
	for _, tt := range []struct{ raw, want string }{
		{`{}`, `{"top_p":0.5}`},
		{`{"model":"m", "top_p" : 1,"x":{"top_p":2}}`, `{"model":"m", "top_p" : 0.5,"x":{"top_p":2}}`},
		{`{"x":{"top_p":2}}`, `{"x":{"top_p":2},"top_p":0.5}`},
	} {
		if got := string(wire.AppendMember(nil, []byte(tt.raw), "top_p", []byte("0.5"))); got != tt.want {
			t.Errorf("%s became %s", tt.raw, got)
		}
	}
	if !wire.Has([]byte(`{"a":{"b":1}}`), "a") || wire.Has([]byte(`{"a":{"b":1}}`), "b") {
		t.Error("a member is found where it is not, or the other way round")
	}
}

func TestWithout(t *testing.T) {
	drop := func(name string) bool { return name == "user" || name == "store" }
	for in, want := range map[string]string{
		`{"a":1,"user":"x","b":[{"user":1}],"store":true}`: `{"a":1,"b":[{"user":1}]}`,
		`{"user":"x"}`:            `{}`,
		` { "a" : 1 } `:           ` { "a" : 1 } `,
		`{"us\u0065r":1,"a":"é"}`: `{"a":"é"}`,
		`{"a\"b":1,"user":1}`:     `{"a\"b":1}`,
		`{}`:                      `{}`,
		`[1]`:                     `[1]`,
	} {
		if got := string(wire.Without([]byte(in), drop)); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// FuzzWithout holds that what is left is sound, has no such member, and has every other.
func FuzzWithout(f *testing.F) {
	f.Add(`{"a":1,"user":"x","b":[{"user":1}],"store":true}`)
	f.Add(`{"us\u0065r":1,"a":"é"}`)
	f.Fuzz(func(t *testing.T, in string) {
		var before map[string]json.RawMessage
		if json.Unmarshal([]byte(in), &before) != nil || before == nil {
			return
		}
		out := wire.Without([]byte(in), func(name string) bool { return name == "user" })
		var after map[string]json.RawMessage
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q becomes %q: %v", in, out, err)
		}
		delete(before, "user")
		if len(before) != len(after) {
			t.Errorf("%q becomes %q", in, out)
		}
	})
}
