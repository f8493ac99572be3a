package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/bench"
)

// standin is a server whose figures are made up.
type standin struct {
	mu     sync.Mutex
	clock  time.Time
	speed  float64 // tokens a second that it claims
	mute   bool    // no timings
	cached bool    // it claims to have read a few tokens only
	tokens int     // of every streamed answer; 0 is as many as asked for
	asked  []map[string]any
	fault  string   // an error event in a stream
	merge  int      // tokens that reading a cut text again joins
	torn   bool     // a stream ends without [DONE]
	lines  []string // the first of each text that was to be cut
}

func (s *standin) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *standin) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

func (s *standin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := map[string]any{}
	_ = json.NewDecoder(r.Body).Decode(&body)
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch r.URL.Path {
	case "/health":
	case "/v1/models":
		answer(map[string]any{"data": []any{map[string]any{"id": "m"}}})
	case "/v1/chat/completions":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, body)
		if s.mute {
			answer(map[string]any{"choices": []any{}})
			return
		}
		n := 1800
		if s.cached {
			n = 3
		}
		s.speed++
		answer(map[string]any{"timings": map[string]any{"prompt_n": n, "prompt_per_second": 10 * s.speed, "predicted_n": 256, "predicted_per_second": s.speed}})
	case "/tokenize":
		// a token is four bytes
		text := body["content"].(string)
		n := (len(text) + 3) / 4
		if strings.HasPrefix(text, "abc ") {
			n = max(1, n-s.merge)
		} else {
			first, _, _ := strings.Cut(text, "\n")
			s.lines = append(s.lines, first)
		}
		answer(map[string]any{"tokens": make([]int, n)})
	case "/detokenize":
		answer(map[string]any{"content": strings.Repeat("abc ", len(body["tokens"].([]any)))})
	case "/v1/completions":
		s.complete(w, body)
	default:
		http.NotFound(w, r)
	}
}

func (s *standin) complete(w http.ResponseWriter, body map[string]any) {
	s.mu.Lock()
	s.asked = append(s.asked, body)
	s.mu.Unlock()
	n := int(body["max_tokens"].(float64))
	if s.tokens > 0 {
		n = s.tokens
	}
	s.pass(500 * time.Millisecond)
	flush := w.(http.Flusher)
	for i := range n {
		if s.fault != "" && i == 2 {
			fmt.Fprintf(w, "data: {\"error\":{\"message\":%q}}\n\n", s.fault)
			return
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\"}],\"usage\":null}\n\n")
		flush.Flush()
	}
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"completion_tokens\":%d}}\n\n", n)
	if !s.torn {
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

func TestParseConfiguration(t *testing.T) {
	tests := []struct {
		text, name string
		flags      []string
		err        string
	}{
		{"base:", "base", nil, ""},
		{"four slots: --parallel 4 --alias 'a b'", "four slots", []string{"--parallel", "4", "--alias", "a b"}, ""},
		{`--alias "" -ub 64`, "--alias  -ub 64", []string{"--alias", "", "-ub", "64"}, ""},
		{"", "plain", nil, ""},
		{`path: --mtp "C:\x y"`, "path", []string{"--mtp", `C:\x y`}, ""},
		{"a: --x 'b", "", nil, "is not closed"},
		{"words without a colon", "", nil, `is not "name: flags"`},
		{"a: --port 1", "", nil, "chooses address and port"},
	}
	for _, tt := range tests {
		c, err := bench.ParseConfiguration(tt.text)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: error %v, want one with %q", tt.text, err, tt.err)
			}
			continue
		}
		if diff := cmp.Diff(bench.Configuration{Name: tt.name, Flags: tt.flags}, c); diff != "" || err != nil {
			t.Errorf("%q: error %v; differs:\n%s", tt.text, err, diff)
		}
	}
}

// house starts a stand-in for each configuration and notes the order.
type house struct {
	order []string
	open  int
	rooms map[string]*standin
	fails error
}

func (h *house) start(_ context.Context, c bench.Configuration) (*bench.Server, error) {
	if h.fails != nil {
		return nil, h.fails
	}
	h.order = append(h.order, c.Name)
	h.open++
	server := httptest.NewServer(h.rooms[c.Name])
	return &bench.Server{URL: server.URL, Stop: func() error { server.Close(); h.open--; return nil }}, nil
}

func TestCompare(t *testing.T) {
	h := &house{rooms: map[string]*standin{"a": {speed: 0}, "b": {speed: 100}}}
	c, err := bench.Compare(t.Context(), bench.Settings{
		Configurations: []bench.Configuration{{Name: "a"}, {Name: "b"}}, Rounds: 2, PromptRuns: 2, DecodeRuns: 1, Tokens: 32, Start: h.start,
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "a", "b"}, h.order); diff != "" || h.open != 0 {
		t.Errorf("%d servers still run; order differs:\n%s", h.open, diff)
	}
	// each round: a warm-up, two prompts, three answers; the claimed speed rises by one each time
	a, b := c.Results[0].Figures, c.Results[1].Figures
	if diff := cmp.Diff([]float64{20, 30, 80, 90}, a["prompt"].Samples); diff != "" {
		t.Errorf("prompt samples differ:\n%s", diff)
	}
	if a["prompt"].Best != 90 || a["prompt"].Median != 55 || a["prompt"].Change != 0 {
		t.Errorf("prompt %+v", a["prompt"])
	}
	if got, want := b["code"].Change, 107.0/7-1; got != want {
		t.Errorf("change %g, not %g", got, want)
	}
	var out strings.Builder
	if err := c.Print(&out); err != nil || !strings.Contains(out.String(), "+1428.6%") {
		t.Errorf("error %v, printed %s", err, out.String())
	}
	room := h.rooms["a"]
	warm, prompt, decode := room.asked[0], room.asked[1], room.asked[3]
	if warm["max_tokens"] != 4.0 || decode["max_tokens"] != 32.0 || decode["cache_prompt"] != false || decode["temperature"] != 0.0 {
		t.Errorf("asked %v and %v", warm, decode)
	}
	if n := len(prompt["messages"].([]any)[0].(map[string]any)["content"].(string)); n < 8000 || n > 8100 {
		t.Errorf("a long prompt of %d bytes", n)
	}
	if diff := cmp.Diff(map[string]any{"enable_thinking": false}, decode["chat_template_kwargs"]); diff != "" {
		t.Errorf("thinking:\n%s", diff)
	}
}

func TestCompareFails(t *testing.T) {
	broken := errors.New("no such device")
	for _, tt := range []struct {
		name, want string
		h          *house
		list       []bench.Configuration
	}{
		{"no timings", "no timings", &house{rooms: map[string]*standin{"a": {mute: true}}}, []bench.Configuration{{Name: "a"}}},
		{"cache", "its cache is on", &house{rooms: map[string]*standin{"a": {cached: true}}}, []bench.Configuration{{Name: "a"}}},
		{"start", "measuring \"a\": no such device", &house{fails: broken}, []bench.Configuration{{Name: "a"}}},
		{"none", "no configuration", &house{}, nil},
		{"same name", "two configurations", &house{}, []bench.Configuration{{Name: "a"}, {Name: "a"}}},
	} {
		_, err := bench.Compare(t.Context(), bench.Settings{Configurations: tt.list, Start: tt.h.start})
		if err == nil || !strings.Contains(err.Error(), tt.want) || tt.h.open != 0 {
			t.Errorf("%s: error %v, want one with %q; %d servers run", tt.name, err, tt.want, tt.h.open)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := bench.Median(tt.in); got != tt.want {
			t.Errorf("%v: %g, not %g", tt.in, got, tt.want)
		}
	}
}

func TestEffective(t *testing.T) {
	if got := bench.Effective(101, 2*time.Second, 50); got != 101.0/4 {
		t.Errorf("%g", got)
	}
}

// ticking is a clock that moves on by ten milliseconds whenever it is read, beside what the server takes.
func ticking(s *standin) func() time.Time {
	return func() time.Time {
		s.pass(10 * time.Millisecond)
		return s.now()
	}
}

func TestEndToEnd(t *testing.T) {
	s := &standin{clock: time.Unix(1e9, 0), merge: 1}
	server := httptest.NewServer(s)
	defer server.Close()
	waits, err := bench.EndToEnd{URL: server.URL, Prompt: []int{64, 700}, Tokens: 21, Runs: 3, Now: ticking(s)}.Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(waits) != 2 || len(s.asked) != 7 {
		t.Fatalf("%d waits from %d requests", len(waits), len(s.asked))
	}
	w := waits[1]
	// the first token after 500 ms and one tick, then 20 ticks: 100 tokens a second
	if w.Prompt != 700 || w.TTFT != 0.51 || w.Decode < 99.99 || w.Decode > 100.01 || w.Effective < 29.57 || w.Effective > 29.58 {
		t.Errorf("%+v", w)
	}
	last := s.asked[6]
	if slices.Sort(s.lines); len(slices.Compact(s.lines)) != 7 {
		t.Errorf("first lines %q", s.lines)
	}
	if n := len(last["prompt"].(string)); n != 4*701 || last["ignore_eos"] != true || last["stream"] != true {
		t.Errorf("a prompt of %d bytes, ignore_eos %v", n, last["ignore_eos"])
	}
	var out strings.Builder
	list := bench.Waits{}.Add(bench.Configuration{Name: "a"}, waits)
	if err := list.Print(&out); err != nil || !strings.Contains(out.String(), "29.6 tok/s") {
		t.Errorf("error %v, printed %s", err, out.String())
	}
}

func TestEndToEndFails(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		s          *standin
		e          bench.EndToEnd
	}{
		{"short answer", "5 tokens instead of 8", &standin{tokens: 5}, bench.EndToEnd{}},
		{"error event", "out of memory", &standin{fault: "out of memory"}, bench.EndToEnd{}},
		{"torn", "broke off", &standin{torn: true}, bench.EndToEnd{}},
		{"no exact text", "no text of exactly 64 tokens", &standin{merge: 1000}, bench.EndToEnd{}},
		{"tiny prompt", "a prompt of 3 tokens", &standin{}, bench.EndToEnd{Prompt: []int{3}}},
		{"one token", "at least one of two", &standin{}, bench.EndToEnd{Tokens: 1}},
	} {
		tt.s.clock = time.Unix(1e9, 0)
		server := httptest.NewServer(tt.s)
		e := tt.e
		e.URL, e.Now = server.URL, ticking(tt.s)
		if e.Prompt == nil {
			e.Prompt = []int{64}
		}
		if e.Tokens == 0 {
			e.Tokens = 8
		}
		_, err := e.Measure(t.Context())
		server.Close()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

// TestMain plays a server when the test binary is started as one.
func TestMain(m *testing.M) {
	if os.Getenv("BENCH_STANDIN") == "" {
		os.Exit(m.Run())
	}
	port := ""
	for i, arg := range os.Args {
		if arg == "--port" {
			port = os.Args[i+1]
		}
		if arg == "--broken" {
			fmt.Println("this build has no such device")
			os.Exit(1)
		}
	}
	_ = http.ListenAndServe("127.0.0.1:"+port, &standin{})
}

func TestProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := bench.Process{Program: self, Args: []string{"serve", "-m", "x"}, Env: append(os.Environ(), "BENCH_STANDIN=1")}
	s, err := p.Start(t.Context(), bench.Configuration{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := http.Get(s.URL + "/v1/models"); err != nil || reply.StatusCode != http.StatusOK {
		t.Errorf("no answer: %v", err)
	} else {
		reply.Body.Close()
	}
	if err := s.Stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	if reply, err := http.Get(s.URL + "/health"); err == nil {
		reply.Body.Close()
		t.Error("it still answers")
	}
	if _, err := p.Start(t.Context(), bench.Configuration{Name: "b", Flags: []string{"--broken"}}); err == nil ||
		!strings.Contains(err.Error(), "this build has no such device") {
		t.Errorf("a server that ends: %v", err)
	}
}

func TestLock(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	release, err := bench.Lock(t.Context(), func() { t.Error("it waited for nobody") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	if _, err := bench.Lock(ctx, func() { cancel(stop) }); !errors.Is(err, stop) {
		t.Errorf("a second holder: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	release, err = bench.Lock(t.Context(), func() { t.Error("the lock was not given back") })
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
}
