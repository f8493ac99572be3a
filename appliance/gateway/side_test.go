package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/engine"
	"onebit/engine/backendtest"
)

// echo is a child that keeps what it was sent and answers with one text.
type echo struct {
	mu     sync.Mutex
	path   string
	body   string
	header http.Header
	kind   string
	says   string
	status int
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil || r.URL.Path == "/health" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.path, e.body, e.header = r.URL.Path, string(b), r.Header
	if e.kind != "" {
		w.Header().Set("Content-Type", e.kind)
	}
	if e.status != 0 {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(e.status)
	}
	io.WriteString(w, e.says)
}

func (e *echo) got() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.path + " " + e.body
}

func TestSideServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vectors := &echo{says: `{"model":"child","object":"list","data":[{"embedding":"AACAPw==","index":0},{"embedding":[1.5,-2],"index":1}],"usage":{"prompt_tokens":3,"total_tokens":3}}`}
		scores := &echo{says: `{"model":"child","results":[{"index":1,"relevance_score":8.609}]}`}
		s, _ := open(t, gateway.Config{
			Model: gateway.Model{Name: "m", Device: engine.Vulkan, Backend: far(t, &backendtest.Standin{}), Created: time.Unix(7, 0)},
			Side: []gateway.Model{
				{Name: "Qwen3-Embedding", Device: engine.HRX, Role: gateway.Embedding, Backend: far(t, vectors), Created: time.Unix(8, 0)},
				{Name: "bge-reranker", Device: engine.Vulkan, Role: gateway.Reranking, Backend: far(t, scores), Created: time.Unix(9, 0)},
			},
		})
		for _, path := range []string{"/v1/embeddings", "/embeddings"} {
			a := s.do(t.Context(), "POST", path, `{"model":"any", "input":["a","b"],"encoding_format":"base64"}`)
			if want := strings.Replace(vectors.says, "child", "Qwen3-Embedding", 1); a.status != 200 || a.body != want {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
			if got := vectors.got(); got != `/v1/embeddings {"input":["a","b"],"encoding_format":"base64"}` {
				t.Errorf("%s sent on: %s", path, got)
			}
		}
		for _, path := range []string{"/v1/rerank", "/rerank", "/v1/reranking", "/reranking"} {
			a := s.do(t.Context(), "POST", path, `{"query":"q","documents":["a"],"model":"any"}`)
			if want := strings.Replace(scores.says, "child", "bge-reranker", 1); a.status != 200 || a.body != want || scores.got() != `/v1/rerank {"query":"q","documents":["a"]}` {
				t.Errorf("%s: %d %s; sent on: %s", path, a.status, a.body, scores.got())
			}
		}
		want := `{"object":"list","data":[` +
			`{"id":"m","object":"model","created":7,"owned_by":"1bit","device":"vulkan"},` +
			`{"id":"Qwen3-Embedding","object":"model","created":8,"owned_by":"1bit","device":"hrx","role":"embedding"},` +
			`{"id":"bge-reranker","object":"model","created":9,"owned_by":"1bit","device":"vulkan","role":"rerank"}]}` + "\n"
		if diff := cmp.Diff(want, s.do(t.Context(), "GET", "/v1/models", "").body); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if a := s.do(t.Context(), "GET", "/v1/models/bge-reranker", ""); a.status != 200 {
			t.Errorf("one model: %d %s", a.status, a.body)
		}
		if e := refusal(t, s.do(t.Context(), "POST", "/v1/embeddings", `{}`).body); *e.Param != "input" {
			t.Errorf("got %+v", e)
		}
	})
}

func TestRoles(t *testing.T) {
	for _, c := range []struct {
		role      gateway.Role
		path      string
		body      string
		elsewhere string
	}{
		{gateway.Embedding, "/v1/embeddings", `{"input":"a"}`, "/v1/rerank"},
		{gateway.Reranking, "/reranking", `{"query":"a","documents":["b"]}`, "/embeddings"},
	} {
		t.Run(string(c.role), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				child := &echo{says: `{"model":"child"}`}
				s, _ := open(t, gateway.Config{Model: gateway.Model{Name: "m", Device: engine.Vulkan, Role: c.role, Backend: far(t, child)}})
				if a := s.do(t.Context(), "POST", c.path, strings.Replace(c.body, "{", `{"model":"x",`, 1)); a.status != 200 || a.body != `{"model":"m"}` || !strings.HasSuffix(child.got(), " "+c.body) {
					t.Errorf("%d %s; sent on: %s", a.status, a.body, child.got())
				}
				if a := s.do(t.Context(), "POST", c.elsewhere, `{}`); a.status != 501 {
					t.Errorf("%s: %d %s", c.elsewhere, a.status, a.body)
				}
				if a := s.do(t.Context(), "GET", "/v1/models", ""); !strings.Contains(a.body, fmt.Sprintf(`"device":"vulkan %s","role":%q`, c.role, c.role)) {
					t.Errorf("models %s", a.body)
				}
				if a := s.chat("", false); a.status != 200 || !strings.HasPrefix(child.got(), "/v1/chat/completions {") || strings.Contains(child.got(), "model") {
					t.Errorf("chat: %d; sent on: %s", a.status, child.got())
				}
			})
		})
	}
}

// TestRoutesThatADeviceLacks holds that they answer 501 with path and device, whatever the body is.
func TestRoutesThatADeviceLacks(t *testing.T) {
	routes := []string{
		"POST /v1/responses", "POST /v1/embeddings", "POST /embeddings", "POST /v1/rerank", "POST /rerank", "POST /v1/reranking", "POST /tokenize",
		"POST /detokenize", "POST /apply-template", "GET /slots", "POST /slots/0", "GET /props",
	}
	for _, device := range []engine.Device{engine.Zinc, engine.DS4, engine.MLX, engine.ONNX, engine.NPU} {
		t.Run(string(device), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				child := &echo{says: "{}"}
				s, _ := open(t, gateway.Config{Model: gateway.Model{Name: "m", Device: device, Backend: far(t, child)}})
				for _, route := range routes {
					method, path, _ := strings.Cut(route, " ")
					a := s.do(t.Context(), method, path, "")
					e := refusal(t, a.body)
					if a.status != 501 || e.Message != path+" is not available on --device "+string(device) || e.Type != "not_implemented" {
						t.Errorf("%s: %d %s", route, a.status, a.body)
					}
				}
				if child.path != "" {
					t.Errorf("the child was asked for %s", child.path)
				}
			})
		})
	}
}

// TestRouteThatOneChildLacks holds that a child's own 404 becomes the 501.
func TestRouteThatOneChildLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, gateway.Config{Model: gateway.Model{Name: "m", Device: engine.CPU, Backend: far(t, &echo{status: 404, says: "File Not Found"})}})
		for _, route := range []string{`POST /v1/responses {"input":"a"}`, `POST /tokenize {}`, "GET /slots "} {
			f := strings.SplitN(route, " ", 3)
			if a := s.do(t.Context(), f[0], f[1], f[2]); a.status != 501 || refusal(t, a.body).Message != f[1]+" is not available on --device cpu" {
				t.Errorf("%s: %d %s", route, a.status, a.body)
			}
		}
	})
}

func TestNameTowardsTheChild(t *testing.T) {
	const asked = `{"model":"any","messages":[{"role":"user","content":"a"}],"temperature":0}`
	for _, c := range []struct {
		name  string
		model gateway.Model
		want  string
	}{
		{"as the client wrote it", gateway.Model{Device: engine.Vulkan}, asked},
		{"none", gateway.Model{Device: engine.Zinc, DropModel: true}, strings.Replace(asked, `"model":"any",`, "", 1)},
		{"an id", gateway.Model{Device: engine.MLX, ModelID: "mlx-community/Qwen3-0.6B-4bit"}, strings.Replace(asked, "any", "mlx-community/Qwen3-0.6B-4bit", 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				child := &echo{says: `{"id":"1","model":"child"}`}
				c.model.Name, c.model.Backend = "served", far(t, child)
				s, _ := open(t, gateway.Config{Model: c.model})
				a := s.do(t.Context(), "POST", "/v1/chat/completions", asked)
				if a.body != `{"id":"1","model":"served"}` || child.got() != "/v1/chat/completions "+c.want {
					t.Errorf("answered %s, sent on %s", a.body, child.got())
				}
			})
		})
	}
}

func TestStrictModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, gateway.Config{
			Strict: true,
			Model:  gateway.Model{Name: "m", Device: engine.Vulkan, Backend: far(t, &echo{says: "{}"})},
			Side:   []gateway.Model{{Name: "e", Device: engine.Vulkan, Role: gateway.Embedding, Backend: far(t, &echo{says: "{}"})}},
		})
		for _, c := range []struct {
			path, body string
			status     int
		}{
			{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"a"}]}`, 200},
			{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}]}`, 200},
			{"/v1/chat/completions", `{"model":"e","messages":[{"role":"user","content":"a"}]}`, 404},
			{"/v1/completions", `{"model":"gpt-5","prompt":"a"}`, 404},
			{"/v1/embeddings", `{"model":"e","input":"a"}`, 200},
			{"/v1/embeddings", `{"model":"m","input":"a"}`, 404},
		} {
			a := s.do(t.Context(), "POST", c.path, c.body)
			if a.status != c.status {
				t.Errorf("%s %s: %d %s", c.path, c.body, a.status, a.body)
			}
			if c.status == 404 {
				if e := refusal(t, a.body); *e.Code != "model_not_found" || *e.Param != "model" {
					t.Errorf("got %+v", e)
				}
			}
		}
	})
}

func TestKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, gateway.Config{Key: "s3cret", Model: gateway.Model{Name: "m", Device: engine.Vulkan, Backend: far(t, &backendtest.Standin{})}})
		for _, c := range []struct {
			path, header, value string
			status              int
		}{
			{"/health", "", "", 200},
			{"/v1/health", "", "", 200},
			{"/v1/models", "", "", 401},
			{"/metrics", "", "", 401},
			{"/nothing", "", "", 401},
			{"/v1/models", "Authorization", "Bearer s3cret", 200},
			{"/v1/models", "Authorization", "bearer  s3cret", 200},
			{"/v1/models", "X-Api-Key", "s3cret", 200},
			{"/v1/models", "Authorization", "Bearer s3cre", 401},
			{"/v1/models", "Authorization", "Basic s3cret", 401},
			{"/v1/models", "X-Api-Key", "S3cret", 401},
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.header != "" {
				req.Header.Set(c.header, c.value)
			}
			res, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || res.StatusCode != c.status {
				t.Errorf("%s with %s %s: %d %s", c.path, c.header, c.value, res.StatusCode, b)
			}
			if c.status == 401 && refusal(t, string(b)).Type != "authentication_error" {
				t.Errorf("got %s", b)
			}
		}
		if strings.Contains(s.log.String(), "s3cret") {
			t.Error("the key is shown")
		}
	})
}

func TestImages(t *testing.T) {
	dir := t.TempDir()
	png := append([]byte("\x89PNG\r\n\x1a\n"), 1, 2, 3)
	inside := filepath.Join(dir, "pictures")
	for path, b := range map[string][]byte{"pictures/a b.png": png, "pictures/text.png": []byte("hello"), "secret.png": png, "pictures/huge.png": append(png, make([]byte, 21<<20)...)} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if runtime.GOOS != "windows" {
		if err := os.Symlink("../secret.png", filepath.Join(inside, "link.png")); err != nil {
			t.Fatal(err)
		}
	}
	inlined := "data:image/png;base64," + base64.StdEncoding.EncodeToString(png)
	for _, c := range []struct {
		name, media, url string
		want             string // the address that the child gets; empty when it is refused
		says             string
	}{
		{"data", "", "data:image/png;base64,AA==", "data:image/png;base64,AA==", ""},
		{"data in capitals", "", "DATA:image/png;base64,AA==", "DATA:image/png;base64,AA==", ""},
		{"a file without a directory", "", "file:///etc/passwd", "", "--media-path"},
		{"from the network", inside, "http://169.254.169.254/latest", "", "nothing is fetched"},
		{"from the network, in capitals", inside, "HTTPS://example.com/a.png", "", "nothing is fetched"},
		{"almost from the network", inside, "httpfoo", "", "nothing is fetched"},
		{"another scheme", inside, "gopher://x", "", "nothing is fetched"},
		{"a file by its name", inside, "file://a%20b.png", inlined, ""},
		{"a file by its path", inside, "file://" + filepath.ToSlash(filepath.Join(inside, "a b.png")), inlined, ""},
		{"a file of this machine", inside, "file://localhost" + filepath.ToSlash(filepath.Join(inside, "a b.png")), inlined, ""},
		{"a file outside", inside, "file://" + filepath.ToSlash(filepath.Join(dir, "secret.png")), "", "outside"},
		{"a file above", inside, "file://../secret.png", "", "outside"},
		{"a file above, in disguise", inside, "file:..%2Fsecret.png", "", "outside"},
		{"a link that leads out", inside, "file:link.png", "", "cannot be read"},
		{"nothing", inside, "file:none.png", "", "cannot be read"},
		{"a directory", inside, "file:.", "", "not a regular file"},
		{"a text", inside, "file:text.png", "", "not an image"},
		{"too much", inside, "file:huge.png", "", "larger than 20 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				child := &echo{says: "{}"}
				s, _ := open(t, gateway.Config{MediaPath: c.media, Model: gateway.Model{Name: "m", Device: engine.Vulkan, Backend: far(t, child)}})
				body := func(url string) string {
					return `{"messages":[{"role":"user","content":[{"type":"text","text":"what?"},{"type":"image_url","image_url":{"url":"` + url + `"}}]}],"seed":1}`
				}
				for _, path := range []string{"/v1/chat/completions", "/apply-template"} {
					a := s.do(t.Context(), "POST", path, body(c.url))
					if c.want != "" {
						if want := path + " " + body(c.want); a.status != 200 || child.got() != want {
							t.Errorf("%d; sent on %s, want %s", a.status, child.got(), want)
						}
						continue
					}
					e := refusal(t, a.body)
					if a.status != 400 || *e.Param != "messages[0].content[1].image_url.url" || !strings.Contains(e.Message, c.says) || strings.Contains(e.Message, dir) && !strings.Contains(c.url, dir) {
						t.Errorf("%d %s", a.status, a.body)
					}
					if child.path != "" {
						t.Error("the child was asked")
					}
				}
			})
		})
	}
}

func TestImagesTogether(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.png"), append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 3000)...), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		limits := config.Defaults()
		limits.Body = 10000
		s, _ := open(t, gateway.Config{MediaPath: dir, Limits: limits, Model: gateway.Model{Name: "m", Device: engine.Vulkan, Backend: far(t, &echo{says: "{}"})}})
		part := `{"type":"image_url","image_url":{"url":"file:a.png"}}`
		for n, want := range map[int]int{2: 200, 3: 400} {
			parts := strings.TrimSuffix(strings.Repeat(part+",", n), ",")
			if a := s.do(t.Context(), "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":[`+parts+`]}]}`); a.status != want {
				t.Errorf("%d images: %d %s", n, a.status, a.body)
			}
		}
	})
}

func TestResponses(t *testing.T) {
	event := func(kind, model string) string {
		return fmt.Sprintf("event: response.%[1]s\ndata: {\"type\":\"response.%[1]s\",\"response\":{\"id\":\"r\",\"model\":%[2]q}}\n\n", kind, model)
	}
	synctest.Test(t, func(t *testing.T) {
		child := &echo{kind: "text/event-stream", says: event("created", "child") + "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n" + event("completed", "child")}
		s, _ := open(t, gateway.Config{Model: gateway.Model{Name: "served", Device: engine.Vulkan, Backend: far(t, child)}})
		a := s.do(t.Context(), "POST", "/v1/responses", `{"input":"a","stream":true}`)
		if want := strings.ReplaceAll(child.says, "child", "served"); a.status != 200 || a.body != want || !strings.HasPrefix(child.got(), "/v1/responses ") {
			t.Errorf("%d %q, want %q", a.status, a.body, want)
		}
		child.says = event("created", "child")
		a = s.do(t.Context(), "POST", "/v1/responses", `{"input":"a","stream":true}`)
		if want := event("created", "served") + "event: error\ndata: {\"error\":"; !strings.HasPrefix(a.body, want) {
			t.Errorf("broken off: %q", a.body)
		}
		child.kind, child.says = "application/json", `{"object":"response","error":null,"model":"child"}`
		if a := s.do(t.Context(), "POST", "/responses", `{"input":"a"}`); a.body != `{"object":"response","error":null,"model":"served"}` {
			t.Errorf("whole: %q", a.body)
		}
	})
}

func TestHeadersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		child := &echo{status: 429, says: `{"error":{"message":"slowly","type":"rate_limit_error"}}`}
		s, _ := open(t, gateway.Config{Model: gateway.Model{Name: "m", Device: engine.Vulkan, Backend: far(t, child)}})
		for path, body := range map[string]string{"/v1/chat/completions": body("", true), "/tokenize": "{}"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Request-Id", "mine-1")
			res, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "7" || res.Header.Get("X-Request-Id") != "mine-1" || child.header.Get("X-Request-Id") != "mine-1" {
				t.Errorf("%s: %d %v; the child got %v", path, res.StatusCode, res.Header, child.header)
			}
		}
	})
}

// counted is a backend that was started again.
type counted struct{ *scripted }

func (counted) Restarts() int { return 2 }

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{state: engine.Ready, generate: func(ctx context.Context, try int, emit func(engine.Chunk) error) (engine.Usage, error) {
			<-time.After(300 * time.Millisecond)
			for range 3 {
				if _, err := whole(ctx, try, emit); err != nil {
					return engine.Usage{}, err
				}
			}
			return engine.Usage{Prompt: 10, Cached: 4, Completion: 3}, nil
		}}
		side := &echo{says: "# of the child\n", kind: "text/plain"}
		s, _ := open(t, gateway.Config{
			Model: gateway.Model{Name: "m", Device: engine.Vulkan, Backend: counted{b}},
			Side:  []gateway.Model{{Name: "e", Device: engine.HRX, Role: gateway.Embedding, Backend: far(t, side)}},
		})
		s.chat("", true)
		s.chat("", true)
		s.do(t.Context(), "GET", "/v1/one/path/of/many", "")
		a := s.do(t.Context(), "GET", "/metrics", "")
		if !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Errorf("headers %v", a.header)
		}
		for _, line := range []string{
			`onebit_requests_total{model="m",route="/chat/completions",status="200"} 2`,
			`onebit_requests_total{model="",route="other",status="404"} 1`,
			`onebit_requests_in_flight 1`,
			`onebit_events_relayed_total 6`,
			`onebit_tokens_total{kind="prompt",model="m"} 20`,
			`onebit_time_to_first_token_seconds_count{model="m"} 2`,
			`onebit_request_duration_seconds_sum{model="m"} 0.6`,
			`onebit_time_to_first_byte_seconds_bucket{route="/chat/completions",le="0.25"} 0`,
			`onebit_time_to_first_byte_seconds_bucket{route="/chat/completions",le="0.5"} 2`,
			`onebit_time_to_first_byte_seconds_bucket{route="/chat/completions",le="+Inf"} 2`,
			`onebit_time_to_first_byte_seconds_sum{route="/chat/completions"} 0.6`,
			`onebit_time_to_first_byte_seconds_count{route="/chat/completions"} 2`,
			`onebit_backend_state{backend="cpu",device="vulkan",state="ok"} 1`,
			`onebit_backend_state{backend="cpu",device="vulkan",state="restarting"} 0`,
			`onebit_backend_restarts_total{backend="cpu",device="vulkan"} 2`,
			`onebit_backend_requests_total{backend="cpu",device="vulkan"} 2`,
			`onebit_backend_requests_in_flight{backend="cpu-2",device="hrx"} 0`,
		} {
			if !strings.Contains(a.body, line+"\n") {
				t.Errorf("no line %s", line)
			}
		}
		for line := range strings.Lines(a.body) {
			if f := strings.Fields(line); !strings.HasPrefix(line, "# ") && (len(f) != 2 || !strings.HasPrefix(line, "onebit_")) {
				t.Errorf("odd line %q", line)
			}
		}
		if a := s.do(t.Context(), "GET", "/upstream/cpu-2/metrics", ""); a.body != side.says || side.path != "/metrics" {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.do(t.Context(), "GET", "/upstream/nobody/metrics", ""); a.status != 404 || !strings.Contains(a.body, "cpu, cpu-2") {
			t.Errorf("%d %s", a.status, a.body)
		}
		if bytes.Contains([]byte(a.body), []byte("many")) {
			t.Error("paths of clients become names")
		}
	})
}

func TestNewRefusesWhatIsMissing(t *testing.T) {
	good := gateway.Model{Name: "m", Backend: &scripted{}}
	for name, cfg := range map[string]gateway.Config{
		"a second backend": {Model: good, Mode: gateway.Adaptive},
		"a side's name":    {Model: good, Side: []gateway.Model{{Backend: &scripted{}}}},
		"a directory":      {Model: good, MediaPath: filepath.Join(t.TempDir(), "none")},
	} {
		if _, err := gateway.New(cfg); err == nil {
			t.Errorf("accepted without %s", name)
		}
	}
}
