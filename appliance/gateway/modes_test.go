package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/engine"
	"onebit/engine/backendtest"
)

// open puts a gateway of any configuration on a network in memory.
func open(t *testing.T, cfg gateway.Config) (*served, *gateway.Gateway) {
	t.Helper()
	log := &logbook{}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	if cfg.Limits == (config.Limits{}) {
		cfg.Limits = config.Defaults()
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	network := backendtest.NewNetwork()
	stop := network.Serve(g)
	transport := &http.Transport{DialContext: network.Dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
	})
	return &served{t: t, client: &http.Client{Transport: transport}, log: log}, g
}

// held is a backend that answers when it is let go.
type held struct {
	scripted
	name  string
	slots int
	now   chan struct{} // one receive a request
	mu    sync.Mutex
	in    int // requests that it holds
	most  int
}

func newHeld(name string, slots int) *held {
	h := &held{name: name, slots: slots, now: make(chan struct{})}
	h.state = engine.Ready
	return h
}

func (h *held) Name() string { return h.name }
func (h *held) Slots() int   { return h.slots }

func (h *held) Generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	h.mu.Lock()
	h.in++
	h.most = max(h.most, h.in)
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.in--
		h.mu.Unlock()
	}()
	if req.Stream {
		if err := emit(engine.Chunk{Raw: []byte(`{"model":"x","choices":[]}`)}); err != nil {
			return engine.Usage{}, err
		}
	}
	select {
	case <-h.now:
	case <-ctx.Done():
		return engine.Usage{}, context.Cause(ctx)
	}
	return engine.Usage{}, emit(engine.Chunk{Raw: []byte(`{"model":"x","choices":[]}`)})
}

func (h *held) set(s engine.State) {
	h.scripted.mu.Lock()
	h.state = s
	h.scripted.mu.Unlock()
}

func (h *held) holds() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.in
}

// crowd is a gateway in mode Adaptive with requests under way.
type crowd struct {
	*served
	g             *gateway.Gateway
	first, second *held
	group         sync.WaitGroup
}

func newCrowd(t *testing.T, at int, sticky bool) *crowd {
	c := &crowd{first: newHeld("vulkan", 4), second: newHeld("rocm", 16)}
	c.served, c.g = open(t, gateway.Config{
		Mode: gateway.Adaptive, AdaptiveAt: at, Sticky: sticky,
		Model:  gateway.Model{Name: "m", Device: engine.Vulkan, Backend: c.first},
		Second: gateway.Model{Name: "m", Device: engine.ROCm, Backend: c.second},
	})
	t.Cleanup(c.group.Wait)
	return c
}

// ask begins a request and returns when it has a place.
func (c *crowd) ask(who string, stream bool) {
	c.group.Go(func() {
		a := c.do(c.t.Context(), "POST", "/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"stream":%v}`, who, stream))
		if a.status != 200 {
			c.t.Errorf("%s: %d %s", who, a.status, a.body)
		}
	})
	synctest.Wait()
}

func (c *crowd) want(when string, first, second int) {
	c.t.Helper()
	synctest.Wait()
	if a, b := c.first.holds(), c.second.holds(); a != first || b != second {
		c.t.Errorf("%s: the first holds %d and the second %d, want %d and %d", when, a, b, first, second)
	}
}

func (c *crowd) drain() {
	for c.first.holds() > 0 {
		c.first.now <- struct{}{}
		synctest.Wait()
	}
	for c.second.holds() > 0 {
		c.second.now <- struct{}{}
		synctest.Wait()
	}
}

func TestAdaptive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 2, false)
		c.ask("a", false)
		c.ask("b", true)
		c.want("two requests", 2, 0)
		c.ask("c", true)
		c.ask("d", false)
		c.want("two more", 2, 2)
		c.first.now <- struct{}{}
		c.want("one answer is complete", 1, 2)
		c.ask("e", true)
		c.want("its place is taken again", 2, 2)
		c.drain()
		if got := fmt.Sprint(c.g.Counts()); got != "[{vulkan vulkan 3} {rocm rocm 2}]" {
			t.Errorf("counts %s", got)
		}
	})
}

// TestAdaptiveChoosesAndReservesInOneStep lets many requests arrive at once.
func TestAdaptiveChoosesAndReservesInOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 3, false)
		for i := range 40 {
			c.group.Go(func() {
				c.do(t.Context(), "POST", "/v1/chat/completions", body("", i%2 == 0))
			})
		}
		c.want("40 at once", 3, 37)
		c.drain()
		if c.first.most != 3 {
			t.Errorf("the first held %d", c.first.most)
		}
	})
}

func TestAdaptiveAtZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 0, false)
		c.ask("a", false)
		c.want("one request", 0, 1)
		c.drain()
	})
}

func TestAdaptiveSticky(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1, true)
		c.ask("a", false)
		c.ask("b", false)
		c.want("a first, b second", 1, 1)
		c.drain()
		c.ask("b", true)
		c.want("b stays where it was", 0, 1)
		c.drain()
		c.ask("x", false)
		c.ask("a", false)
		c.want("a finds no room at home", 1, 1)
		c.drain()
	})
}

func TestAdaptiveGoesRoundWhoIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 2, false)
		c.first.set(engine.Down)
		c.ask("a", false)
		c.want("the first is down", 0, 1)
		if a := c.do(t.Context(), "GET", "/health", ""); a.status != 200 || a.body != `{"status":"degraded","backends":[{"name":"vulkan","status":"restarting"},{"name":"rocm","status":"ok"}]}`+"\n" {
			t.Errorf("%d %s", a.status, a.body)
		}
		c.drain()
		c.second.set(engine.Down)
		if a := c.do(t.Context(), "GET", "/health", ""); a.status != 503 || !strings.HasPrefix(a.body, `{"status":"restarting"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
		c.second.set(engine.Loading)
		if a := c.do(t.Context(), "GET", "/health", ""); a.status != 503 || !strings.HasPrefix(a.body, `{"status":"loading"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
		c.first.set(engine.Ready)
		c.second.set(engine.Ready)
		a := c.do(t.Context(), "GET", "/v1/models", "")
		if strings.Count(a.body, `"id"`) != 1 || !strings.Contains(a.body, `"device":"vulkan+rocm"`) {
			t.Errorf("models %s", a.body)
		}
	})
}

// TestAdaptiveLostRequestGoesToTheOther holds that a request whose backend dies before its first byte is sent to the one
// that stands.
func TestAdaptiveLostRequestGoesToTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := &scripted{state: engine.Ready}
		first.generate = func(context.Context, int, func(engine.Chunk) error) (engine.Usage, error) {
			first.mu.Lock()
			first.state = engine.Down
			first.mu.Unlock()
			return engine.Usage{}, engine.ErrLost
		}
		second := &scripted{state: engine.Ready, generate: whole}
		s, g := open(t, gateway.Config{
			Mode: gateway.Adaptive, AdaptiveAt: 2,
			Model:  gateway.Model{Name: "m", Device: engine.Vulkan, Backend: first},
			Second: gateway.Model{Name: "m", Device: engine.ROCm, Backend: second},
		})
		if a := s.chat("", true); a.status != 200 || first.tries != 1 || second.tries != 1 {
			t.Errorf("%d %s after %d and %d tries", a.status, a.body, first.tries, second.tries)
		}
		// two backends of one name are told apart
		if got := fmt.Sprint(g.Counts()); got != "[{cpu vulkan 1} {cpu-2 rocm 1}]" {
			t.Errorf("counts %s", got)
		}
	})
}

// counting is a child that counts a word as a token.
func counting(t *testing.T, fail *bool, asked *int) http.Handler {
	child := &backendtest.Standin{Model: "child"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apply-template" && r.URL.Path != "/tokenize" {
			child.ServeHTTP(w, r)
			return
		}
		*asked++
		if *fail {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		var in struct {
			Content  string
			Messages []struct{ Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/apply-template" {
			text := ""
			for _, m := range in.Messages {
				text += "<turn> " + m.Content + " "
			}
			json.NewEncoder(w).Encode(map[string]string{"prompt": text})
			return
		}
		json.NewEncoder(w).Encode(map[string][]int{"tokens": make([]int, len(strings.Fields(in.Content)))})
	})
}

func TestLongModel(t *testing.T) {
	words := func(n int) string { return strings.Repeat("word ", n) }
	message := func(role, text string) string { return fmt.Sprintf(`{"role":%q,"content":%q}`, role, text) }
	chat := func(messages ...string) string {
		return `{"model":"a","messages":[` + strings.Join(messages, ",") + `]}`
	}
	synctest.Test(t, func(t *testing.T) {
		asked, fail := 0, false
		first, second := far(t, counting(t, &fail, &asked)), far(t, &backendtest.Standin{Model: "long"})
		s, g := open(t, gateway.Config{
			Mode: gateway.LongModel, LongFrom: 100,
			Model:  gateway.Model{Name: "m", Device: engine.Vulkan, Backend: first},
			Second: gateway.Model{Name: "m", Device: engine.ROCm, Backend: second},
		})
		for _, c := range []struct{ name, path, body, route string }{
			{"a short chat", "/v1/chat/completions", chat(message("user", "hello you")), "short 3 vulkan"},
			{"just short", "/v1/chat/completions", chat(message("user", words(98))), "short 99 vulkan"},
			{"just long", "/v1/chat/completions", chat(message("user", words(99))), "long 100 rocm"},
			{"its system message counts", "/v1/chat/completions", chat(message("system", words(99)), message("user", "b")), "long 102 rocm"},
			{"a short completion", "/v1/completions", `{"prompt":"a b"}`, "short 2 vulkan"},
			{"a long completion", "/v1/completions", `{"prompt":"` + words(100) + `"}`, "long 100 rocm"},
			{"a completion of tokens", "/v1/completions", `{"prompt":[` + strings.Repeat("1,", 100) + `1]}`, "long 101 rocm"},
			{"a chat that grew stays", "/v1/chat/completions", chat(message("user", "hello you"), message("assistant", words(200)), message("user", "more")), "short 3 vulkan"},
			{"and whatever the client calls the model", "/v1/chat/completions", strings.Replace(chat(message("user", "hello you")), `"a"`, `"b"`, 1), "short 3 vulkan"},
			{"a long one stays", "/v1/chat/completions", strings.Replace(chat(message("user", words(99)), message("user", "x")), `{`, `{"stream":true,`, 1), "long 100 rocm"},
		} {
			if a := s.do(t.Context(), "POST", c.path, c.body); a.status != 200 || a.header.Get("X-1bit-Route") != c.route {
				t.Errorf("%s: %d, route %q, want %q", c.name, a.status, a.header.Get("X-1bit-Route"), c.route)
			}
		}
		if got := fmt.Sprint(g.Counts()); got != "[{cpu vulkan 5} {cpu-2 rocm 5}]" {
			t.Errorf("counts %s", got)
		}
		before := asked
		if a := s.do(t.Context(), "POST", "/v1/chat/completions", strings.Replace(chat(message("user", words(99))), `{`, `{"standin":"refuse",`, 1)); a.status != 400 || a.header.Get("X-1bit-Route") != "long 100 rocm" || asked != before {
			t.Errorf("a refusal: %d %v; asked %d times more", a.status, a.header, asked-before)
		}
		fail = true
		if a := s.do(t.Context(), "POST", "/v1/chat/completions", chat(message("user", strings.Repeat("é", 200)))); a.header.Get("X-1bit-Route") != "long 100 rocm" {
			t.Errorf("by bytes: %q", a.header.Get("X-1bit-Route"))
		}
	})
}

func TestLongModelCountHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/apply-template" {
				io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
				return
			}
			(&backendtest.Standin{}).ServeHTTP(w, r)
		})
		s, _ := open(t, gateway.Config{
			Mode: gateway.LongModel, LongFrom: 100,
			Model:  gateway.Model{Name: "m", Device: engine.Vulkan, Backend: far(t, stall)},
			Second: gateway.Model{Name: "m", Device: engine.ROCm, Backend: far(t, &backendtest.Standin{})},
		})
		begin := time.Now()
		if a := s.chat("", false); a.status != 200 || a.header.Get("X-1bit-Route") != "short 0 vulkan" || time.Since(begin) != 30*time.Second {
			t.Errorf("%d %v after %v", a.status, a.header, time.Since(begin))
		}
	})
}

func TestConversations(t *testing.T) {
	for _, c := range []struct {
		name, a, b string
		same       bool
	}{
		{"a later turn", `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}]}`, `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`, true},
		{"another model name", `{"model":"x","messages":[{"role":"user","content":"a"}]}`, `{"model":"y","messages":[{"role":"user","content":"a"}]}`, true},
		{"other settings", `{"temperature":1,"messages":[{"role":"user","content":"a"}]}`, `{"messages":[{"role":"user","content":"a"}],"tools":[]}`, true},
		{"other spaces", `{"messages":[{"role":"user","content":[ {"type":"text"} ]}]}`, `{"messages":[{"content":[{"type":"text"}],"role":"user"}]}`, true},
		{"another opening", `{"messages":[{"role":"user","content":"a"}]}`, `{"messages":[{"role":"user","content":"b"}]}`, false},
		{"another system message", `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}]}`, `{"messages":[{"role":"user","content":"a"}]}`, false},
		{"another role", `{"messages":[{"role":"assistant","content":"a"}]}`, `{"messages":[{"role":"user","content":"a"}]}`, false},
		{"prompts", `{"prompt":"a"}`, `{"prompt":"b"}`, false},
	} {
		if got := gateway.Same(c.a, c.b); got != c.same {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	table := gateway.NewTable()
	name := func(i int) string { return fmt.Sprintf(`{"prompt":"%d"}`, i) }
	for i := range gateway.Remembered {
		table.Set(name(i), i)
	}
	table.Get(name(0)) // so 1 is the oldest
	table.Set(name(gateway.Remembered), 0)
	if _, ok := table.Get(name(1)); ok {
		t.Error("the one that was longest not asked for is still there")
	}
	if _, ok := table.Get(name(0)); !ok {
		t.Error("one that was asked for is gone")
	}
}
