package promptcache_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/appliance/promptcache"
	"onebit/engine"
)

// fake is a server with llama-server's slots. A token is four bytes of text, and the cost of a request is the tokens that
// it computes.
type fake struct {
	t   testing.TB
	dir string // its --slot-save-path

	lies     bool // says that it restored, and computes anew
	noCut    bool // cannot cut a state back
	noSave   bool
	loose    string        // what it saves is no file but a way to this one
	half     bool          // saves a half, as on a full disk, and says that it saved
	other    bool          // it is not our own engine, and has no decisions
	decides  bool          // although it is another engine
	stalls   bool          // after it has said that it began with a prompt
	gate     chan struct{} // when it is not nil, each request waits for a token of it
	restarts int

	mu       sync.Mutex
	slots    []fakeSlot
	requests int
	cost     int // tokens computed
	saves    int
	restores int
	erases   int
	refused  int // requests of decisions
	trouble  []string
}

type fakeSlot struct {
	busy bool
	text string
	cold bool // restored by a liar
}

func newFake(t testing.TB, slots int) *fake {
	return &fake{t: t, slots: make([]fakeSlot, slots)}
}

func (f *fake) Name() string                { return "cpu" }
func (f *fake) Slots() int                  { return len(f.slots) }
func (f *fake) State() engine.State         { return engine.Ready }
func (f *fake) Ready(context.Context) error { return nil }
func (f *fake) Restarts() int               { f.mu.Lock(); defer f.mu.Unlock(); return f.restarts }

// crash loses all slots, as a server that was started anew.
func (f *fake) crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restarts++
	for i := range f.slots {
		f.slots[i] = fakeSlot{busy: f.slots[i].busy}
	}
}

type fakeBody struct {
	Messages []struct{ Role, Content string }
	Prompt   any
	Slot     *int  `json:"id_slot"`
	Reuse    *bool `json:"cache_prompt"`
	Predict  *int  `json:"n_predict"`
	Progress bool  `json:"return_progress"`
	Answer   string
	N        int
}

func (f *fake) bad(format string, args ...any) {
	f.trouble = append(f.trouble, fmt.Sprintf(format, args...))
}

// run computes a prompt and returns what it counted.
func (f *fake) run(ctx context.Context, raw []byte) (prompt, cached, predicted int, answer string, err error) {
	var b fakeBody
	if err := json.Unmarshal(raw, &b); err != nil {
		return 0, 0, 0, "", err
	}
	text, _ := b.Prompt.(string)
	for _, m := range b.Messages {
		text += "<" + m.Role + ">" + m.Content + "\n"
	}
	if b.Messages != nil {
		text += "<assistant>"
	}
	f.mu.Lock()
	if b.Slot == nil || b.Reuse == nil || *b.Slot >= len(f.slots) {
		f.bad("a request without a slot of ours: %.200s", raw)
		f.mu.Unlock()
		return 0, 0, 0, "", errors.New("no slot")
	}
	id := max(*b.Slot, 0)
	s := &f.slots[id]
	if s.busy {
		f.bad("two requests on slot %d", id)
	}
	s.busy = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		s.busy = false
	}()
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return 0, 0, 0, "", context.Cause(ctx)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	same := 0
	for *b.Reuse && !s.cold && same < len(text) && same < len(s.text) && text[same] == s.text[same] {
		same++
	}
	if f.noCut && same < len(s.text) {
		same = 0
	}
	answer = b.Answer
	if answer == "" {
		answer = fmt.Sprintf("answer %d", len(text))
	}
	if b.Predict != nil && *b.Predict == 0 {
		answer = ""
	}
	*s = fakeSlot{busy: true, text: text + answer}
	prompt, cached = len(text)/4, same/4
	f.requests++
	f.cost += prompt - cached
	return prompt, cached, len(answer) / 4, answer, nil
}

func (f *fake) Generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	if f.other && !f.decides && (req.Kind == engine.Decision || req.Kind == engine.SystemOne) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.refused++
		return engine.Usage{}, &engine.StatusError{Status: 404, Body: []byte(`{"error":{"message":"File Not Found"}}`)}
	}
	if strings.Contains(string(req.Raw), `"cache_control"`) || strings.Contains(string(req.Raw), `"prompt_cache_breakpoint"`) {
		f.mu.Lock()
		f.bad("it sees a mark: %s", req.Raw)
		f.mu.Unlock()
	}
	prompt, cached, predicted, answer, err := f.run(ctx, req.Raw)
	if err != nil {
		return engine.Usage{}, err
	}
	text, _ := json.Marshal(answer)
	timings := fmt.Sprintf(`"timings":{"cache_n":%d,"prompt_n":%d,"predicted_n":%d}`, cached, prompt-cached, predicted)
	if req.Stream {
		var b fakeBody
		_ = json.Unmarshal(req.Raw, &b) // run has read it
		for n := cached; b.Progress && n <= prompt; n += max(prompt-cached, 1) {
			if err := emit(engine.Chunk{Raw: fmt.Appendf(nil, `{"choices":[{"index":0,"delta":{"role":"assistant"}}],"prompt_progress":{"total":%d,"cache":%d,"processed":%d,"time_ms":1}}`, prompt, cached, n)}); err != nil {
				return engine.Usage{}, err
			}
			if f.stalls {
				<-ctx.Done()
				return engine.Usage{}, context.Cause(ctx)
			}
		}
		if err := emit(engine.Chunk{Raw: fmt.Appendf(nil, `{"choices":[{"index":0,"delta":{"content":%s}}]}`, text), More: true}); err != nil {
			return engine.Usage{}, err
		}
		return engine.Usage{}, emit(engine.Chunk{Raw: fmt.Appendf(nil, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],%s}`, timings)})
	}
	raw := fmt.Appendf(nil, `{"choices":[{"index":0,"message":{"role":"assistant","content":%s}}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}},%s}`,
		text, prompt, predicted, prompt+predicted, cached, timings)
	return engine.Usage{Prompt: prompt, Cached: cached, Completion: predicted}, emit(engine.Chunk{Raw: raw})
}

func (f *fake) Relay(in *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(in.Body)
	if err != nil {
		return nil, err
	}
	switch {
	case in.URL.Path == "/props" && f.other:
		return said(200, fmt.Sprintf(`{"total_slots":%d,"build_info":"b11434"}`, len(f.slots))), nil
	case in.URL.Path == "/props":
		return said(200, fmt.Sprintf(`{"total_slots":%d,"build_info":"1bit-test"}`, len(f.slots))), nil
	case in.URL.Path == "/completion":
		prompt, cached, predicted, answer, err := f.run(in.Context(), raw)
		if err != nil {
			return nil, err
		}
		text, _ := json.Marshal(answer)
		return said(200, fmt.Sprintf(`{"content":%s,"timings":{"cache_n":%d,"prompt_n":%d,"predicted_n":%d}}`, text, cached, prompt-cached, predicted)), nil
	case strings.HasPrefix(in.URL.Path, "/slots/"):
		return f.onSlot(in, raw)
	}
	return said(404, `{}`), nil
}

// stateMark begins a file of a fake and stateEnd ends it, so that a part of one is told from a whole.
const (
	stateMark = "fake state\n"
	stateEnd  = "\nend"
)

// write writes a file in two parts, as servers write theirs in many.
func write(path string, b []byte) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	half := len(b) / 2
	if _, err := f.Write(b[:half]); err != nil {
		return err
	}
	_, err = f.Write(b[half:])
	return err
}

func (f *fake) onSlot(in *http.Request, raw []byte) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, _ := strconv.Atoi(strings.TrimPrefix(in.URL.Path, "/slots/"))
	var body struct{ Filename string }
	_ = json.Unmarshal(raw, &body)
	s := &f.slots[id]
	if s.busy {
		f.bad("%s on the busy slot %d", in.URL.Query().Get("action"), id)
	}
	path := filepath.Join(f.dir, body.Filename)
	switch in.URL.Query().Get("action") {
	case "save":
		if f.noSave {
			return said(501, `{"error":{"message":"no"}}`), nil
		}
		b := []byte(stateMark + s.text + stateEnd)
		if f.loose != "" {
			if err := os.Symlink(f.loose, path); err != nil {
				return said(500, `{}`), nil
			}
			return said(200, fmt.Sprintf(`{"n_saved":%d,"n_written":0}`, len(s.text)/4)), nil
		}
		if f.half { // as llama-server: how much it wrote is 0 then
			if err := write(path, b[:len(b)/2]); err != nil {
				return said(500, `{}`), nil
			}
			return said(200, fmt.Sprintf(`{"n_saved":%d,"n_written":0}`, len(s.text)/4)), nil
		}
		if err := write(path, b); err != nil {
			return said(500, `{}`), nil
		}
		f.saves++
		return said(200, fmt.Sprintf(`{"n_saved":%d,"n_written":%d}`, len(s.text)/4, len(b))), nil
	case "restore":
		b, err := os.ReadFile(path)
		if err != nil {
			return said(400, `{"error":{"message":"no such file"}}`), nil
		}
		text := strings.TrimSuffix(strings.TrimPrefix(string(b), stateMark), stateEnd)
		*s = fakeSlot{text: text, cold: f.lies}
		f.restores++
		return said(200, fmt.Sprintf(`{"n_restored":%d,"n_read":%d}`, len(text)/4, len(b))), nil
	case "erase":
		f.erases++
		*s = fakeSlot{}
		return said(200, `{"n_erased":1}`), nil
	}
	return said(400, `{}`), nil
}

func said(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader([]byte(body)))}
}

// memory is an index in memory.
type memory struct {
	mu  sync.Mutex
	all map[string]promptcache.Entry

	entered, gate chan struct{} // when they are not nil, each Put says that it is there and waits
}

func newMemory() *memory { return &memory{all: map[string]promptcache.Entry{}} }

func (m *memory) Entries(context.Context) ([]promptcache.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []promptcache.Entry
	for _, e := range m.all {
		all = append(all, e)
	}
	return all, nil
}

func (m *memory) Put(_ context.Context, e promptcache.Entry) error {
	if m.gate != nil {
		m.entered <- struct{}{}
		<-m.gate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[e.File] = e
	return nil
}

func (m *memory) Delete(_ context.Context, file string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, file)
	return nil
}

// bench is a cache, a wrapped fake and what they stand on.
type bench struct {
	t      testing.TB
	dir    string
	secret []byte
	index  *memory
	cache  *promptcache.Cache
	server *fake
	b      *promptcache.Backend
	stop   func()

	mu       sync.Mutex // guards what follows
	settings promptcache.Settings
	now      time.Time
}

// pass lets time go by.
func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// set changes the settings.
func (b *bench) set(f func(*promptcache.Settings)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.settings)
}

func newBench(t testing.TB, slots int) *bench {
	b := &bench{
		t: t, dir: t.TempDir(), secret: bytes.Repeat([]byte{7}, 32), index: newMemory(), now: time.Unix(1_700_000_000, 0), server: newFake(t, slots),
		settings: promptcache.Settings{Budget: 1 << 30, TTL: time.Hour, Least: 64, Steady: true},
	}
	b.start()
	t.Cleanup(func() {
		b.stop()
		for _, what := range b.server.trouble {
			t.Error(what)
		}
	})
	return b
}

// start makes a cache on what there is.
func (b *bench) start() {
	b.t.Helper()
	c, err := promptcache.New(b.t.Context(), promptcache.Config{
		Dir: b.dir, Secret: b.secret, Index: b.index, Log: discard,
		Settings:  func() promptcache.Settings { b.mu.Lock(); defer b.mu.Unlock(); return b.settings },
		Now:       func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.now },
		Unwritten: func(scope string) bool { return strings.HasPrefix(scope, "secret") },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.cache = c
	b.server.dir = c.Folder("m")
	must(b.t, os.MkdirAll(b.server.dir, 0o700))
	b.b = c.Wrap("m", "identity", promptcache.Traits{}, b.server)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	b.stop = sync.OnceFunc(func() { cancel(); <-done })
}

// restart ends everything and begins anew: the states in the server are gone.
func (b *bench) restart(park bool) {
	b.t.Helper()
	if park {
		if err := b.b.Park(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
	b.stop()
	old := b.server
	b.server = newFake(b.t, len(old.slots))
	b.server.lies, b.server.noCut, b.server.trouble = old.lies, old.noCut, old.trouble
	b.start()
}

// talk is one conversation.
type talk struct {
	fleeting bool
	b        *bench
	scope    string
	stream   bool
	head     string // more members of the body
	messages []map[string]any
}

func (b *bench) talk(scope, system string) *talk {
	return &talk{b: b, scope: scope, messages: []map[string]any{{"role": "system", "content": system}}}
}

// body is the request of the moment.
func (k *talk) body() []byte {
	m, err := json.Marshal(k.messages)
	if err != nil {
		k.b.t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"messages":%s%s}`, m, k.head)
}

// say sends the next turn and takes the answer in.
func (k *talk) say(words string) engine.Usage {
	k.b.t.Helper()
	k.messages = append(k.messages, map[string]any{"role": "user", "content": words})
	u, answer, _, err := k.ask(k.b.t.Context())
	if err != nil {
		k.b.t.Fatal(err)
	}
	k.messages = append(k.messages, map[string]any{"role": "assistant", "content": answer})
	k.b.pass(time.Second)
	return u
}

func (k *talk) ask(ctx context.Context) (u engine.Usage, answer string, last engine.Chunk, err error) {
	u, err = k.b.b.Generate(ctx, &engine.Request{Kind: engine.Chat, Raw: k.body(), Scope: k.scope, Stream: k.stream, Fleeting: k.fleeting}, func(c engine.Chunk) error {
		var got struct {
			Choices []struct {
				Message, Delta struct{ Content string }
			}
		}
		if err := json.Unmarshal(c.Raw, &got); err != nil {
			return err
		}
		c.Raw = bytes.Clone(c.Raw)
		last = c
		answer += got.Choices[0].Message.Content + got.Choices[0].Delta.Content
		return nil
	})
	return u, answer, last, err
}

// long is a text of about so many tokens that no other number makes.
func long(tokens, number int) string {
	var s strings.Builder
	for i := 0; s.Len() < tokens*4; i++ {
		fmt.Fprintf(&s, "%d.%d. ", number, i)
	}
	return s.String()
}
