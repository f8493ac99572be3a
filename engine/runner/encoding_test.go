package runner_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"onebit/engine/gguf/synth"
	"onebit/engine/runner"
	"onebit/engine/tensor"
)

// encoder runs the built-in engine on a tiny random encoder.
func encoder(t *testing.T, change func(*synth.EncoderSpec), pooling string) *fixture {
	t.Helper()
	s := synth.TinyEncoder("bert", tensor.Q8_0)
	if change != nil {
		change(&s)
	}
	w, err := synth.Encoder(s)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f := start(t, nil, runner.Config{Model: path, Alias: "tiny", Pooling: pooling, CacheDir: t.TempDir()})
	f.awaitReady()
	return f
}

func ranks(s *synth.EncoderSpec) { s.Pooling, s.Scores = 4, 1 }

// floats returns a vector of decoded JSON, from numbers or base64.
func floats(t *testing.T, v any) []float64 {
	t.Helper()
	var out []float64
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			f, _ := x.(float64)
			out = append(out, f)
		}
	case string:
		raw, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(raw) >= 4; raw = raw[4:] {
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
		}
	}
	return out
}

func length(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}

func TestEmbeddings(t *testing.T) {
	f := encoder(t, nil, "")
	one := f.ok("/v1/embeddings", `{"model":"tiny","input":"The river runs by the old mill."}`)
	if one["object"] != "list" || one["model"] != "tiny" || dig(one, "data", 0, "object") != "embedding" || dig(one, "data", 0, "index") != 0.0 {
		t.Fatalf("%s", short(one))
	}
	first := floats(t, dig(one, "data", 0, "embedding"))
	if n := length(first); len(first) != 96 || math.Abs(n-1) > 1e-5 {
		t.Errorf("%d values of length %g", len(first), n)
	}
	ids := f.ok("/tokenize", `{"content":"The river runs by the old mill.","add_special":true}`)["tokens"]
	if n := dig(one, "usage", "prompt_tokens"); n != float64(len(ids.([]any))) || n != dig(one, "usage", "total_tokens") {
		t.Errorf("usage %s of ids %s", short(one["usage"]), short(ids))
	}
	// Order is kept, whatever the lengths; ids, base64 and a mix of ids and text mean the same.
	many := f.ok("/v1/embeddings", `{"encoding_format":"base64","input":["a",`+short(ids)+`,"The river runs by the old mill. The river runs by the old mill.","The river runs by the old mill."]}`)
	if got := floats(t, dig(many, "data", 1, "embedding")); short(got) != short(floats(t, dig(many, "data", 3, "embedding"))) || !near(got, first) {
		t.Errorf("ids and text differ, or base64 and numbers: %v, %v", got[:3], first[:3])
	}
	if dig(many, "data", 3, "index") != 3.0 || near(floats(t, dig(many, "data", 0, "embedding")), first) {
		t.Errorf("%s", short(many))
	}
	alone := f.ok("/v1/embeddings", `{"input":`+short(ids)+`}`)
	if !near(floats(t, dig(alone, "data", 0, "embedding")), first) || dig(alone, "data", 1) != nil {
		t.Error("ids alone are not the text")
	}
	// Fewer dimensions are the first ones, of length one again.
	cut := floats(t, dig(f.ok("/v1/embeddings", `{"dimensions":32,"input":"The river runs by the old mill."}`), "data", 0, "embedding"))
	if len(cut) != 32 || math.Abs(length(cut)-1) > 1e-5 || math.Abs(cut[0]/cut[1]-first[0]/first[1]) > 1e-4 {
		t.Errorf("%d dimensions of length %g", len(cut), length(cut))
	}
}

func near(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-6 {
			return false
		}
	}
	return true
}

// TestOwnEmbeddings is llama-server's form, with the vectors of all tokens.
func TestOwnEmbeddings(t *testing.T) {
	f := encoder(t, nil, "")
	list := func(body string) []any {
		t.Helper()
		r := f.post("/embeddings", body)
		var v []any
		if err := json.Unmarshal(r.body, &v); r.status != http.StatusOK || err != nil {
			t.Fatalf("%s: %d %v %.200s", body, r.status, err, r.body)
		}
		return v
	}
	pooled := floats(t, dig(list(`{"content":"old mill"}`), 0, "embedding", 0))
	raw := floats(t, dig(list(`{"input":"old mill","embd_normalize":-1}`), 0, "embedding", 0))
	tokens := list(`{"input":["old mill"],"pooling":"none"}`)
	mean := make([]float64, 96)
	n := int(dig(tokens, 0, "tokens_evaluated").(float64))
	for i := range n {
		for j, x := range floats(t, dig(tokens, 0, "embedding", i)) {
			mean[j] += x / float64(n)
		}
	}
	if dig(tokens, 0, "embedding", n) != nil || !near(mean, raw) || math.Abs(length(pooled)-1) > 1e-5 || math.Abs(length(raw)-1) < 1e-3 {
		t.Errorf("%d tokens: mean %v, pooled %v, of length %g", n, mean[:3], raw[:3], length(pooled))
	}
	packed := list(`{"input":"old mill","pooling":"none","embd_normalize":2,"dimensions":16,"encoding_format":"base64"}`)
	all := floats(t, dig(packed, 0, "embedding"))
	if len(all) != 16*n || math.Abs(length(all[:16])-1) > 1e-5 || math.Abs(length(all[16*n-16:])-1) > 1e-5 {
		t.Errorf("%d values", len(all))
	}
	bare := encoder(t, func(s *synth.EncoderSpec) { s.Pooling = 9 }, "")
	if r := bare.post("/v1/embeddings", `{"input":"a"}`); r.status != http.StatusBadRequest || !strings.Contains(string(r.body), "--pooling") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if v := floats(t, dig(encoder(t, func(s *synth.EncoderSpec) { s.Pooling = 9 }, "cls").ok("/v1/embeddings", `{"input":"a"}`), "data", 0, "embedding")); len(v) != 96 {
		t.Errorf("--pooling cls: %d values", len(v))
	}
}

func TestRerank(t *testing.T) {
	f := encoder(t, ranks, "")
	for _, path := range []string{"/rerank", "/reranking", "/v1/rerank", "/v1/reranking"} {
		v := f.ok(path, `{"query":"the river","documents":["an old mill","the river runs","a stone",{"text":"bread"}],"top_n":3,"return_documents":true}`)
		results, _ := v["results"].([]any)
		if len(results) != 3 || dig(v, "usage", "prompt_tokens") == 0.0 || v["model"] != "tiny" {
			t.Fatalf("%s: %s", path, short(v))
		}
		last := math.Inf(1)
		for _, r := range results {
			score, ok := dig(r, "relevance_score").(float64)
			text := []string{"an old mill", "the river runs", "a stone", "bread"}[int(dig(r, "index").(float64))]
			if !ok || score > last || dig(r, "document", "text") != text {
				t.Errorf("%s: %s", path, short(v))
			}
			last = score
		}
	}
	// The score of a pair is that of its tokens, with the second part marked, whatever stands beside it.
	alone := f.ok("/v1/rerank", `{"query":"the river","documents":["a stone"]}`)
	together := f.ok("/v1/rerank", `{"query":"the river","documents":["bread","a stone"]}`)
	for _, r := range together["results"].([]any) {
		if dig(r, "index") == 1.0 && dig(r, "relevance_score") != dig(alone, "results", 0, "relevance_score") {
			t.Errorf("%s and %s", short(together), short(alone))
		}
	}
	if n := dig(f.ok("/v1/rerank", `{"query":"the river","documents":["a"]}`), "usage", "prompt_tokens"); n != 6.0 { // CLS the river SEP a SEP
		t.Errorf("%v tokens, not 6", n)
	}
	r := f.post("/v1/rerank", `{"query":"the river","texts":["bread","a stone"],"return_text":true}`)
	var list []map[string]any
	if err := json.Unmarshal(r.body, &list); err != nil || len(list) != 2 || list[0]["score"].(float64) < list[1]["score"].(float64) || list[0]["text"] == nil {
		t.Errorf("%v %s", err, r.body)
	}
}

// TestOtherKinds: a model says clearly what it is not for.
func TestOtherKinds(t *testing.T) {
	chat, vectors, ranker := builtIn(t, "llama", 1), encoder(t, nil, ""), encoder(t, ranks, "")
	const (
		embed  = `{"input":"a"}`
		rank   = `{"query":"a","documents":["b"]}`
		prompt = `{"prompt":"a"}`
		talk   = `{"messages":[{"role":"user","content":"a"}]}`
	)
	for _, c := range []struct {
		f          *fixture
		path, body string
		words      string
	}{
		{chat, "/v1/embeddings", embed, "generates text"},
		{chat, "/embedding", embed, "generates text"},
		{chat, "/v1/rerank", rank, "generates text"},
		{vectors, "/v1/chat/completions", talk, "makes embeddings"},
		{vectors, "/v1/completions", prompt, "makes embeddings"},
		{vectors, "/completion", prompt, "makes embeddings"},
		{vectors, "/apply-template", talk, "makes embeddings"},
		{vectors, "/v1/rerank", rank, "makes embeddings"},
		{ranker, "/v1/chat/completions", talk, "ranks texts"},
		{ranker, "/v1/embeddings", embed, "ranks texts"},
	} {
		r := c.f.post(c.path, c.body)
		if message, _ := dig(r.json(t), "error", "message").(string); r.status != http.StatusNotImplemented || !strings.Contains(message, c.words) ||
			r.header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d %s", c.path, r.status, r.body)
		}
	}
	for f, want := range map[*fixture]string{chat: "completion", vectors: "embedding", ranker: "rerank"} {
		if got := dig(f.get("/v1/models").json(t), "models", 0, "capabilities", 0); got != want {
			t.Errorf("capability %v, not %s", got, want)
		}
	}
	for _, path := range []string{"/slots", "/props", "/metrics", "/v1/models/tiny", "/health"} {
		if r := vectors.get(path); r.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := vectors.get("/metrics"); !strings.Contains(string(r.body), "prompt_tokens_total 0") {
		t.Errorf("%s", r.body)
	}
}

func TestBadTexts(t *testing.T) {
	vectors, ranker := encoder(t, nil, ""), encoder(t, ranks, "")
	long := strings.Repeat("mill ", 200) // tokens beyond the 128 of the model
	for _, c := range []struct {
		f                        *fixture
		path, body, param, words string
	}{
		{vectors, "/v1/embeddings", `{}`, "input", "required"},
		{vectors, "/v1/embeddings", `{"input":[]}`, "input", "empty"},
		{vectors, "/v1/embeddings", `{"input":[[]]}`, "input[0]", "empty"},
		{vectors, "/v1/embeddings", `{"input":{"a":1}}`, "input", ""},
		{vectors, "/v1/embeddings", `{"input":[1.5]}`, "", ""},
		{vectors, "/v1/embeddings", `{"input":[99999]}`, "input[0]", "no token"},
		{vectors, "/v1/embeddings", `{"input":[-1]}`, "input[0]", ""},
		{vectors, "/v1/embeddings", `{"input":"a","dimensions":97}`, "dimensions", "between 1 and 96"},
		{vectors, "/v1/embeddings", `{"input":"a","dimensions":0}`, "dimensions", ""},
		{vectors, "/v1/embeddings", `{"input":"a","encoding_format":"int8"}`, "encoding_format", "base64"},
		{vectors, "/v1/embeddings", `{"input":["a","` + long + `"]}`, "input[1]", "maximum context length is 128 tokens"},
		{vectors, "/v1/embeddings", `{"input":[` + strings.Repeat(`"a",`, 4096) + `"a"]}`, "input", "4097 texts"},
		{vectors, "/v1/embeddings", `not JSON`, "", "JSON"},
		{vectors, "/embeddings", `{"input":"a","pooling":"max"}`, "pooling", "max"},
		{vectors, "/embeddings", `{"input":"a","embd_normalize":0}`, "embd_normalize", "Euclidean"},
		{vectors, "/embeddings", `{}`, "input", "required"},
		{ranker, "/v1/rerank", `{"documents":["a"]}`, "query", "required"},
		{ranker, "/v1/rerank", `{"query":"a"}`, "documents", "required"},
		{ranker, "/v1/rerank", `{"query":"a","documents":[]}`, "documents", "empty"},
		{ranker, "/v1/rerank", `{"query":"a","documents":[{"title":"b"}]}`, "documents[0]", "text"},
		{ranker, "/v1/rerank", `{"query":"a","documents":["a","` + long + `"]}`, "documents[1]", "maximum context length"},
		{ranker, "/v1/rerank", `{"query":5,"documents":["a"]}`, "query", "string"},
	} {
		r := c.f.post(c.path, c.body)
		v := r.json(t)
		param, _ := dig(v, "error", "param").(string)
		message, _ := dig(v, "error", "message").(string)
		if r.status != http.StatusBadRequest || c.param != "" && param != c.param || !strings.Contains(message, c.words) {
			t.Errorf("%s %.80s: %d %.300s", c.path, c.body, r.status, r.body)
		}
		if strings.Contains(c.words, "maximum") && (dig(v, "error", "n_ctx") != 128.0 || dig(v, "error", "n_prompt_tokens") == nil || dig(v, "error", "type") != "exceed_context_size_error") {
			t.Errorf("%s: no counts: %.300s", c.path, r.body)
		}
	}
}

// TestEmbeddingsTogether: requests that run together get the vectors that each gets alone.
func TestEmbeddingsTogether(t *testing.T) {
	f := encoder(t, nil, "")
	body := func(i int) string {
		return fmt.Sprintf(`{"input":[%s,"the mill"]}`, short(strings.Repeat("a stone ", 1+i)))
	}
	want := make([]string, 16)
	for i := range want {
		want[i] = short(f.ok("/v1/embeddings", body(i))["data"])
	}
	var all sync.WaitGroup
	for i := range want {
		all.Go(func() {
			r := f.post("/v1/embeddings", body(i))
			if r.status != http.StatusOK || short(r.json(t)["data"]) != want[i] {
				t.Errorf("request %d: %d, or another vector than alone", i, r.status)
			}
		})
	}
	all.Wait()
}

// FuzzEmbeddings: whatever the body is, the answer is a success or a problem of the client's.
func FuzzEmbeddings(f *testing.F) {
	s := synth.TinyEncoder("bert", tensor.F32)
	s.Layers, s.Width, s.Heads, s.FFN, s.Context = 1, 32, 1, 32, 16
	w, err := synth.Encoder(s)
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "tiny.gguf")
	if err := w.WriteFile(path); err != nil {
		f.Fatal(err)
	}
	f.Add(`{"input":"a"}`)
	f.Add(`{"input":["a",[1,2],[3,"b"]],"encoding_format":"base64","dimensions":3}`)
	f.Add(`{"content":"a","pooling":"none","embd_normalize":2}`)
	r, err := runner.New(runner.Config{Model: path, Alias: "tiny", Listener: newQuietListener(), CacheDir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		<-done
	})
	f.Fuzz(func(t *testing.T, body string) {
		fix := &fixture{t: t, runner: r}
		fix.awaitReady()
		for _, route := range []string{"/v1/embeddings", "/embeddings", "/v1/rerank"} {
			if r := fix.post(route, body); r.status >= 500 && r.status != http.StatusNotImplemented {
				t.Errorf("%s %q: %d %s", route, body, r.status, r.body)
			}
		}
	})
}
