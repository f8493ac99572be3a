//go:build unix

package e2e_test

import (
	"context"
	"encoding/base64"
	bits "encoding/binary"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// route is one way to serve a model, with a stand-in for its program.
type route struct {
	device string // as /v1/models has it
	args   func(t *testing.T, s *stage) []string
	name   string   // served
	shape  string   // of what reaches the child: "" as sent, "drop" without model, "id" under its id, "raw" as a prompt
	marks  []string // of the child's command line
}

func routes() []route {
	llama := func(device string, more ...string) func(t *testing.T, s *stage) []string {
		return func(t *testing.T, s *stage) []string {
			return append([]string{"-m", s.gguf("Qwen3-0.6B.gguf", nil), "--device", device, "--llama-server", standin(t, "llama-server")}, more...)
		}
	}
	return []route{
		{"vulkan", llama("vulkan"), "Qwen3-0.6B", "", []string{"--device Vulkan0 -ngl 99 --jinja"}},
		{"hrx", llama("hrx"), "Qwen3-0.6B", "", []string{"--device HRX0 -ngl 99 --jinja"}},
		{"cpu", llama("cpu"), "Qwen3-0.6B", "", []string{"-ngl 0 --jinja"}},
		{"rocm", llama("rocm"), "Qwen3-0.6B", "", []string{"--device ROCm0 -ngl 99 --jinja"}},
		{"vulkan", llama("vulkan", "--lean"), "Qwen3-0.6B", "", []string{"--device Vulkan0"}},
		{"zinc", func(t *testing.T, s *stage) []string {
			return []string{"-m", s.gguf("z.gguf", nil), "--device", "zinc", "--zinc", standin(t, "zinc"), "-c", "2048"}
		}, "z", "drop", []string{"z.gguf -p ", "-c 2048"}},
		{"ds4", func(t *testing.T, s *stage) []string {
			return []string{"-m", s.file("v4.1bp", "1BP\x00"), "--ds4", standin(t, "ds4-server"), "--ssd-streaming"}
		}, "v4", "", []string{"--host 127.0.0.1", "--ssd-streaming"}},
		{"mlx", func(t *testing.T, _ *stage) []string {
			return []string{"-m", "mlx-community/Qwen3-0.6B-4bit", "--device", "mlx", "--mlx-server", standin(t, "lemon-mlx-server")}
		}, "Qwen3-0.6B-4bit", "id", []string{"mlx-community/Qwen3-0.6B-4bit --port "}},
		{"onnx", func(t *testing.T, s *stage) []string {
			s.env = append(s.env, "ONEBIT_ONNX_SERVER="+standin(t, "ryzenai-server"))
			return []string{"-m", filepath.Dir(s.file("phi/genai_config.json", "{}"))}
		}, "phi", "", []string{"-m "}},
		{"npu", func(t *testing.T, s *stage) []string {
			s.file("Qwen3-NPU/model.q4nx", "")
			s.file("Qwen3-NPU/tokenizer.json", "{}")
			return []string{"-m", filepath.Dir(s.file("Qwen3-NPU/config.json", `{"model_type":"qwen3"}`)), "--npu", standin(t, "npu-server"), "--npu-opt", "turbo=1"}
		}, "Qwen3-NPU", "raw", []string{"turbo=1"}},
	}
}

// TestEveryDevice starts the program on each device with a stand-in for the device's server.
func TestEveryDevice(t *testing.T) {
	for _, r := range routes() {
		t.Run(r.device, func(t *testing.T) {
			st := newStage(t)
			s := st.serve(r.args(t, st)...)
			line := strings.Join(st.last("start").Args, " ")
			for _, mark := range r.marks {
				if !strings.Contains(line, mark) {
					t.Errorf("the command line %q lacks %q", line, mark)
				}
			}
			if _, _, body := s.get("/v1/models"); !strings.Contains(body, fmt.Sprintf(`"id":%q`, r.name)) || !strings.Contains(body, fmt.Sprintf(`"device":%q`, r.device)) {
				t.Errorf("models %s", body)
			}
			t.Run("not streamed", func(t *testing.T) { r.whole(t, st, s) })
			t.Run("streamed", func(t *testing.T) { r.streamed(t, s) })
			t.Run("without thinking", func(t *testing.T) { r.thoughtless(t, st, s) })
			t.Run("Anthropic's form", func(t *testing.T) { r.message(t, s) })
			t.Run("routes that it lacks", func(t *testing.T) { r.lacks(t, s) })
		})
	}
}

// costs checks usage, timings and cache fields.
func (r route) costs(t *testing.T, v map[string]any) {
	t.Helper()
	if dig(v, "usage", "prompt_tokens") != 14.0 || dig(v, "usage", "completion_tokens") != 7.0 || dig(v, "usage", "prompt_tokens_details", "cached_tokens") != 9.0 {
		t.Errorf("usage %v", v["usage"])
	}
	if speed := dig(v, "timings", "predicted_per_second"); (speed != 174.1) != (r.device == "zinc") { // which says none
		t.Errorf("timings %v", v["timings"])
	}
	if cache := dig(v, "timings", "cache"); (cache == "live") != (r.device == "npu") {
		t.Errorf("timings.cache %v", cache)
	}
}

func (r route) whole(t *testing.T, st *stage, s *server) {
	v := s.post("/v1/chat/completions", chat(capital, nil)).json(t)
	text, _ := dig(v, "choices", 0, "message", "content").(string)
	if v["model"] != r.name || !strings.Contains(text, "Paris") || dig(v, "choices", 0, "finish_reason") != "stop" {
		t.Errorf("answer %v", v)
	}
	r.costs(t, v)
	body := st.last("request").Body
	want := map[string]string{"": `"model":"any"`, "drop": capital, "id": `"model":"mlx-community/Qwen3-0.6B-4bit"`, "raw": `"prompt":"\u003c|im_start|\u003euser\n` + capital}[r.shape]
	if !strings.Contains(body, want) || (r.shape == "drop" && strings.Contains(body, `"model"`)) {
		t.Errorf("the child got %s", body)
	}
}

func (r route) streamed(t *testing.T, s *server) {
	resp, err := s.send(context.Background(), "/v1/chat/completions", chat(capital, obj{"stream": true, "stream_options": obj{"include_usage": true}}))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	n, last := 0, map[string]any{}
	done, err := events(resp.Body, func(v map[string]any) bool {
		if v["model"] != r.name || v["object"] != "chat.completion.chunk" {
			t.Errorf("chunk %v", v)
		}
		if n == 0 && dig(v, "choices", 0, "delta", "role") != "assistant" {
			t.Errorf("the first chunk has no role: %v", v)
		}
		if c, ok := dig(v, "choices", 0, "delta", "content").(string); ok {
			text.WriteString(c)
		}
		n, last = n+1, v
		return true
	})
	if err != nil || !done || n <= 3 || !strings.Contains(text.String(), "Paris") {
		t.Errorf("%d chunks, done %v, %v: %q", n, done, err, text.String())
	}
	if choices, ok := last["choices"].([]any); !ok || len(choices) != 0 {
		t.Errorf("last chunk %v", last)
	}
	r.costs(t, last)
}

func (r route) thoughtless(t *testing.T, st *stage, s *server) {
	v := s.post("/v1/chat/completions", chat(capital, obj{"chat_template_kwargs": obj{"enable_thinking": false}})).json(t)
	if thought := dig(v, "choices", 0, "message", "reasoning_content"); thought != nil {
		t.Errorf("it thought %v", thought)
	}
	body, want := st.last("request").Body, `"enable_thinking":false`
	if r.shape == "raw" {
		want = `assistant\n\u003cthink\u003e\n\n\u003c/think\u003e\n\n"`
	}
	if !strings.Contains(body, want) {
		t.Errorf("the child got %s, without %s", body, want)
	}
}

// message asks in the form of Anthropic's Messages, which every device has over its chats.
func (r route) message(t *testing.T, s *server) {
	v := s.post("/v1/messages", obj{"model": "claude-sonnet-4-5", "max_tokens": 50, "messages": []obj{{"role": "user", "content": capital}}}).json(t)
	text, _ := dig(v, "content", 0, "text").(string)
	if v["type"] != "message" || v["model"] != r.name || !strings.Contains(text, "Paris") || v["stop_reason"] != "end_turn" {
		t.Errorf("answer %v", v)
	}
	if dig(v, "usage", "input_tokens") != 5.0 || dig(v, "usage", "cache_read_input_tokens") != 9.0 || dig(v, "usage", "output_tokens") != 7.0 {
		t.Errorf("usage %v", v["usage"])
	}
	has := slices.Contains([]string{"vulkan", "hrx", "rocm", "cpu"}, r.device)
	p := s.post("/v1/messages/count_tokens", obj{"model": "x", "messages": []obj{{"role": "user", "content": "a b"}}})
	if n, _ := dig(p.json(t), "input_tokens").(float64); has && (p.status != 200 || n < 1) || !has && (p.status != 501 || dig(p.json(t), "error", "type") != "api_error") {
		t.Errorf("counting: %d %s", p.status, p.body)
	}
}

func (r route) lacks(t *testing.T, s *server) {
	has := slices.Contains([]string{"vulkan", "hrx", "rocm", "cpu"}, r.device)
	for path, body := range map[string]obj{"/tokenize": {"content": "a b"}, "/apply-template": {"messages": []obj{}}, "/v1/responses": {"input": "hi"}} {
		p := s.post(path, body)
		if has && p.status != 200 || !has && (p.status != 501 || dig(p.json(t), "error", "message") != path+" is not available on --device "+r.device) {
			t.Errorf("%s: %d %s", path, p.status, p.body)
		}
	}
	for _, path := range []string{"/props", "/slots"} {
		if status, _, body := s.get(path); (status == 200) != has || (status == 501) == has {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if p := s.post("/v1/embeddings", obj{"input": "a"}); p.status != 501 {
		t.Errorf("embeddings: %d %s", p.status, p.body)
	}
}

// TestPrivateRoute holds that a Qwen3.6-35B-A3B directory needs a server that says that it serves it.
func TestPrivateRoute(t *testing.T) {
	st := newStage(t)
	dir := filepath.Dir(st.file("q/config.json", `{"model_type":"qwen3_5_moe"}`))
	st.file("q/model.q4nx", "")
	code, _, errs := command(t, 30*time.Second, "serve", "-m", dir, "--port", "0")
	if code != 1 || !strings.Contains(errs, "the Qwen3.6-35B-A3B NPU route is not part of this build; build with -DONEBIT_NPU_PRIVATE=") {
		t.Errorf("exit %d: %s", code, errs)
	}
	st.env = append(st.env, "STANDIN_MODEL_TYPES=qwen3 qwen3_5_moe")
	s := st.serve("-m", dir, "--npu", standin(t, "npu-server"))
	s.post("/v1/chat/completions", chat(capital, nil))
	if body := st.last("request").Body; !strings.Contains(body, `assistant\n\u003cthink\u003e\n"`) {
		t.Errorf("the child got %s", body)
	}
}

// TestAdaptive spreads requests over two children and counts them.
func TestAdaptive(t *testing.T) {
	st := newStage(t)
	st.env = append(st.env, "ONEBIT_LEAN_SERVER="+standin(t, "llama-server"))
	s := st.serve("-m", st.gguf("m.gguf", nil), "--adaptive", "--adaptive-at", "2", "--llama-server", standin(t, "llama-server"))
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			if r := s.post("/v1/chat/completions", chat("!slow:150!", obj{"stream": true})); r.status != 200 {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	group.Wait()
	took := map[string]int{}
	for _, e := range st.log("request") {
		took[e.Device]++
	}
	if took["Vulkan0"] != 2 || took["ROCm0"] != 4 {
		t.Errorf("they took %v", took)
	}
	if _, _, body := s.get("/v1/models"); !strings.Contains(body, `"device":"vulkan+rocm"`) {
		t.Errorf("models %s", body)
	}
	s.stop()
	if out := s.log.String(); !strings.Contains(out, "vulkan took 2 requests") || !strings.Contains(out, "rocm took 4 requests") {
		t.Errorf("at its end it says %s", out)
	}
}

// TestLongModel sends conversations by the length of their first prompt.
func TestLongModel(t *testing.T) {
	st := newStage(t)
	st.env = append(st.env, "ONEBIT_LEAN_SERVER="+standin(t, "llama-server"))
	s := st.serve("-m", st.gguf("m.gguf", nil), "--device", "vulkan", "--llama-server", standin(t, "llama-server"),
		"--long-model", st.gguf("m-H32.gguf", map[string]uint32{"onebit.hadamard_q4_0": 32}), "--long-from", "100")
	grown := chat("one two three", nil)
	grown["messages"] = append(grown["messages"].([]obj), obj{"role": "assistant", "content": strings.Repeat("word ", 300)}, obj{"role": "user", "content": "more"})
	for _, c := range []struct {
		name, path string
		body       obj
		route      string
	}{
		{"a short chat", "/v1/chat/completions", chat("one two three", nil), "short 4 vulkan"},
		{"a long chat", "/v1/chat/completions", chat(strings.Repeat("word ", 99), nil), "long 100 rocm"},
		{"a short completion", "/v1/completions", obj{"prompt": "one two"}, "short 2 vulkan"},
		{"a long completion", "/v1/completions", obj{"prompt": strings.Repeat("word ", 200)}, "long 200 rocm"},
		{"a chat that has grown", "/v1/chat/completions", grown, "short 4 vulkan"},
	} {
		for _, stream := range []bool{false, true} {
			c.body["stream"] = stream
			r := s.post(c.path, c.body)
			if got := r.header.Get("X-1bit-Route"); r.status != 200 || got != c.route {
				t.Errorf("%s: %d, route %q, want %q", c.name, r.status, got, c.route)
			}
			if device := st.last("request").Device; (device == "ROCm0") != strings.HasPrefix(c.route, "long") {
				t.Errorf("%s: it went to %s", c.name, device)
			}
		}
	}
}

// TestSideServers serves embeddings and reranking beside a chat model, and as a model's own role.
func TestSideServers(t *testing.T) {
	st := newStage(t)
	s := st.vulkan("--embed", st.gguf("MiniLM.gguf", nil), "--rerank", st.gguf("bge.gguf", nil), "--strict-model")
	_, _, body := s.get("/v1/models")
	for _, want := range []string{`"id":"MiniLM"`, `"role":"embedding"`, `"id":"bge"`, `"role":"rerank"`} {
		if !strings.Contains(body, want) {
			t.Errorf("models lack %s: %s", want, body)
		}
	}
	v := s.post("/v1/embeddings", obj{"model": "MiniLM", "input": []string{"a river", "a mountain"}}).json(t)
	if v["model"] != "MiniLM" || dig(v, "data", 1, "index") != 1.0 || len(dig(v, "data", 0, "embedding").([]any)) != 8 {
		t.Errorf("embeddings %v", v)
	}
	packed := s.post("/embeddings", obj{"input": "a river", "encoding_format": "base64"}).json(t)
	text, _ := dig(packed, "data", 0, "embedding").(string)
	raw, err := base64.StdEncoding.DecodeString(text)
	numbers := make([]float32, 8)
	if err != nil || len(raw) != 32 {
		t.Fatalf("base64: %v, %d bytes", err, len(raw))
	}
	if _, err := bits.Decode(raw, bits.LittleEndian, numbers); err != nil {
		t.Fatal(err)
	}
	for i, x := range dig(v, "data", 0, "embedding").([]any) {
		if float32(x.(float64)) != numbers[i] {
			t.Errorf("number %d is %v as text and %v packed", i, x, numbers[i])
		}
	}
	for _, path := range []string{"/v1/rerank", "/rerank", "/v1/reranking", "/reranking"} {
		v := s.post(path, obj{"query": "a river", "documents": []string{"the mountain", "a long river"}}).json(t)
		if v["model"] != "bge" || dig(v, "results", 0, "index") != 1.0 {
			t.Errorf("%s: %v", path, v)
		}
	}
	if e := st.last("request"); e.Model != "" {
		t.Errorf("the child got the model %q", e.Model)
	}
	if r := s.post("/v1/chat/completions", chat(capital, nil)); r.status != 404 || dig(r.json(t), "error", "code") != "model_not_found" {
		t.Errorf("an unknown model: %d %s", r.status, r.body)
	}
	if r := s.post("/v1/chat/completions", chat(capital, obj{"model": "m"})); r.status != 200 {
		t.Errorf("the model: %d %s", r.status, r.body)
	}
	s = st.vulkan("--embedding")
	if r := s.post("/v1/embeddings", obj{"model": "x", "input": "a"}); r.status != 200 || r.json(t)["model"] != "m" {
		t.Errorf("the role: %d %s", r.status, r.body)
	}
	if _, _, body := s.get("/v1/models"); !strings.Contains(body, `"device":"vulkan embedding"`) {
		t.Errorf("models %s", body)
	}
}

// TestAccess holds the key, and images by their file.
func TestAccess(t *testing.T) {
	st := newStage(t)
	png := "\x89PNG\r\n\x1a\n0000"
	dir := filepath.Dir(st.file("media/a.png", png))
	st.file("secret.png", png)
	s := st.vulkan("--api-key", "s3cret", "--media-path", dir)
	if r := s.post("/v1/chat/completions", chat(capital, nil)); r.status != 401 || dig(r.json(t), "error", "code") != "invalid_api_key" {
		t.Errorf("without a key: %d %s", r.status, r.body)
	}
	picture := func(url string) (status int, body string) {
		text := fmt.Sprintf(`{"messages":[{"role":"user","content":[{"type":"text","text":"what?"},{"type":"image_url","image_url":{"url":%q}}]}]}`, url)
		req, err := http.NewRequest(http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer s3cret")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	if status, body := picture("file://" + dir + "/a.png"); status != 200 || !strings.Contains(st.last("request").Body, "data:image/png;base64,"+base64.StdEncoding.EncodeToString([]byte(png))) {
		t.Errorf("a file: %d %s", status, body)
	}
	for _, url := range []string{"file:///etc/passwd", "file://../secret.png", "http://127.0.0.1:1/a.png", "https://example.com/a.png"} {
		if status, body := picture(url); status != 400 || !strings.Contains(body, "messages[0].content[1].image_url.url") {
			t.Errorf("%s: %d %s", url, status, body)
		}
	}
	if strings.Contains(s.log.String(), "s3cret") {
		t.Error("the key is in the log")
	}
}
