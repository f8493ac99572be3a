package extensions_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onebit/extensions"
	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/wasm/wasmtest"
)

// records keeps what a manager records in memory, as JSON, like a store does.
type records struct {
	mu       sync.Mutex
	modules  map[string][]byte
	bindings map[string][]byte
	events   []extensions.Event
	values   map[[3]string]extensions.Value
	fail     error
}

func newRecords() *records {
	return &records{modules: map[string][]byte{}, bindings: map[string][]byte{}, values: map[[3]string]extensions.Value{}}
}

func (r *records) Load(context.Context) (modules []extensions.Module, bindings []extensions.Binding, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.modules {
		var m extensions.Module
		err = errors.Join(err, json.Unmarshal(b, &m))
		modules = append(modules, m)
	}
	for _, b := range r.bindings {
		var one extensions.Binding
		err = errors.Join(err, json.Unmarshal(b, &one))
		bindings = append(bindings, one)
	}
	return modules, bindings, err
}

func (r *records) Change(_ context.Context, who extensions.Who, c extensions.Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	put := func(to map[string][]byte, name string, v any) {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		to[name] = b
	}
	if c.Put != nil {
		put(r.modules, c.Put.SHA256, c.Put)
	}
	if c.Delete != nil {
		delete(r.modules, c.Delete.SHA256)
	}
	if c.Bind != nil {
		put(r.bindings, c.Bind.Name, c.Bind)
	}
	delete(r.bindings, c.Unbind)
	c.Event.ID, c.Event.Person = int64(len(r.events)+1), who.Person
	r.events = append(r.events, c.Event)
	return nil
}

func (r *records) Events(_ context.Context, after int64, limit int) ([]extensions.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events[after:]), nil
}

func (r *records) Values(_ context.Context, module, tenant string) (all []extensions.Value, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, v := range r.values {
		if k[0] == module && k[1] == tenant {
			all = append(all, v)
		}
	}
	return all, nil
}

func (r *records) PutValues(_ context.Context, values []extensions.Value) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range values {
		k := [3]string{v.Module, v.Tenant, v.Key}
		if v.Value == nil {
			delete(r.values, k)
		} else {
			r.values[k] = v
		}
	}
	return nil
}

// actions are the log's actions in order.
func (r *records) actions() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, e := range r.events {
		all = append(all, e.Action)
	}
	return strings.Join(all, " ")
}

// guest is what a module does in a test.
type guest func(r abi.Request, c host.Call) (answer string, err error)

// runner runs Go functions in the place of modules.
type runner struct {
	mu      sync.Mutex
	guests  map[string]guest // by SHA-256
	refuse  map[string]error // what Prepare says
	latest  *worker          // that was started
	running atomic.Int64
	late    atomic.Int64 // calls of a worker that was closed
	lines   []host.Line  // of each call's log
	units   atomic.Int64 // added to each count, to make one that is not steady
}

func (r *runner) Prepare(_ context.Context, j extensions.Job) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refuse[j.SHA256]
}

func (r *runner) Forget(string) error { return nil }

func (r *runner) Start(_ context.Context, j extensions.Job) (extensions.Worker, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running.Add(1)
	w := &worker{r: r, g: r.guests[j.SHA256], config: string(j.Setup.Config)}
	r.latest = w
	return w, nil
}

type worker struct {
	r      *runner
	g      guest
	config string
	closed atomic.Bool
	gone   atomic.Bool
}

func (w *worker) Call(_ context.Context, c host.Call) (host.Result, error) {
	if w.closed.Load() {
		w.r.late.Add(1)
	}
	defer func() {
		if w.closed.Load() {
			w.r.late.Add(1)
		}
	}()
	var r abi.Request
	if err := json.Unmarshal(c.Request, &r); err != nil {
		return host.Result{}, err
	}
	if w.config != "" {
		r.Headers = map[string]string{"config": w.config}
	}
	answer, err := w.g(r, c)
	return host.Result{Answer: []byte(answer), Units: 1000 + w.r.units.Load(), Pages: 3, Log: w.r.lines}, err
}

func (w *worker) Gone() bool { return w.gone.Load() }

func (w *worker) Close() error {
	if w.closed.Swap(true) {
		panic("closed twice")
	}
	w.r.running.Add(-1)
	return nil
}

// fixture is a manager with all that it works with.
type fixture struct {
	*extensions.Manager
	t       testing.TB
	dir     string
	records *records
	runner  *runner
	vault   *vault // nil: none
	kept    *shelf // nil: none
	mu      sync.Mutex
	now     time.Time
	policy  extensions.Policy
	log     bytes.Buffer
	stop    func()
}

func open(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{
		t: t, dir: t.TempDir(), records: newRecords(), runner: &runner{guests: map[string]guest{}, refuse: map[string]error{}},
		now:    time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC),
		policy: extensions.Policy{Signatures: "off", Capabilities: []abi.Capability{abi.CapKV, abi.CapMetric}, Headers: []string{"X-Team"}, Params: []string{"temperature", "max_tokens"}},
	}
	f.start()
	return f
}

// start makes a manager over what is there.
func (f *fixture) start() {
	f.t.Helper()
	var second extensions.Vault
	if f.vault != nil {
		second = f.vault
	}
	var kept extensions.Conversations
	if f.kept != nil {
		kept = f.kept
	}
	m, err := extensions.New(extensions.Config{
		Kept: kept, Vault: second, Dir: f.dir, Records: f.records, Runner: f.runner, Policy: func() extensions.Policy { return f.policy },
		Log: slog.New(slog.NewTextHandler(&locked{f: f}, &slog.HandlerOptions{Level: slog.LevelDebug})), Now: f.clock,
	})
	f.must(err)
	f.must(m.Start(f.t.Context()))
	f.Manager = m
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { f.must(m.Run(ctx)) })
	f.stop = sync.OnceFunc(func() { cancel(); ended.Wait() })
	f.t.Cleanup(func() {
		f.stop()
		if n := f.runner.running.Load(); n != 0 {
			f.t.Errorf("%d modules run on after the end", n)
		}
		if n := f.runner.late.Load(); n != 0 {
			f.t.Errorf("%d calls of modules that had ended", n)
		}
	})
}

// locked is a log that may be written to from everywhere.
type locked struct{ f *fixture }

func (l *locked) Write(b []byte) (int, error) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	return l.f.log.Write(b)
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fixture) wait(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// module makes the bytes of a module; the name makes it another one.
func module(name string, kind abi.Kind, imports ...string) []byte {
	m := newModule()
	for _, i := range imports {
		m.Import(abi.HostModule, i, "ii", "i")
	}
	return finish(m, name, kind)
}

func newModule() *wasmtest.Module { return &wasmtest.Module{} }

func finish(m *wasmtest.Module, name string, kind abi.Kind) []byte {
	m.Memory(1, 16)
	m.Data(64, []byte(name))
	m.Func(abi.Marker, "", "", "")
	m.Func(abi.Buffer, "i", "i", "", wasmtest.I32(4096))
	m.Func(abi.Configure, "ii", "l", "", wasmtest.I64(0))
	export := abi.Route
	if kind == abi.Classifier {
		export = abi.Classify
	}
	m.Func(export, "ii", "l", "", wasmtest.I64(0))
	return m.Bytes()
}

func hashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// upload is what goes in.
type upload struct {
	module    []byte
	manifest  string
	signature string
	config    string
	assets    map[string]string
}

func (f *fixture) push(u upload) (extensions.Module, error) {
	up := f.Receive()
	defer up.Close()
	for name, text := range u.assets {
		if err := up.Asset(name, strings.NewReader(text)); err != nil {
			return extensions.Module{}, err
		}
	}
	if err := up.Module(bytes.NewReader(u.module), hashOf(u.module)); err != nil {
		return extensions.Module{}, err
	}
	if u.manifest != "" {
		up.Manifest([]byte(u.manifest))
	}
	up.Signature(u.signature)
	up.Config([]byte(u.config))
	return f.Add(f.t.Context(), extensions.Who{Person: "anna"}, up)
}

func manifest(name string, more string) string {
	return fmt.Sprintf(`{"name":%q,"version":"1.0.0","abi":1,"kind":"policy"%s}`, name, more)
}

// add uploads a policy that does what g does.
func (f *fixture) add(name string, g guest) string {
	f.t.Helper()
	b := module(name, abi.Policy)
	f.runner.mu.Lock()
	f.runner.guests[hashOf(b)] = g
	f.runner.mu.Unlock()
	m, err := f.push(upload{module: b, manifest: manifest(name, "")})
	f.must(err)
	return m.SHA256
}

// to routes to a candidate where it is offered.
func to(id string) guest {
	return func(r abi.Request, _ host.Call) (string, error) {
		if !slices.ContainsFunc(r.Candidates, func(c abi.Candidate) bool { return c.ID == id }) {
			return "", nil
		}
		return fmt.Sprintf(`{"v":1,"action":"route","candidates":[%q],"reason":"by name"}`, id), nil
	}
}

// say answers the same words to real requests, and nothing in the dry run.
func say(words string) guest {
	return func(r abi.Request, _ host.Call) (string, error) {
		if !real(r) {
			return "", nil
		}
		return words, nil
	}
}

func real(r abi.Request) bool { return strings.HasPrefix(r.ID, "real") }

// input is a request of a conversation.
func input(conversation string) extensions.Input {
	return extensions.Input{
		ID: "real-1", API: "chat", Model: "auto", Tenant: "anna", Key: "k1",
		Body: fmt.Appendf(nil, `{"max_tokens":100,"messages":[{"role":"user","content":%q}]}`, conversation),
		Candidates: []abi.Candidate{
			{ID: "small", Model: "small", Device: "cpu", Healthy: true}, {ID: "large", Model: "large", Device: "cpu", Healthy: true}, {ID: "sick", Model: "sick", Device: "cpu"},
		},
	}
}

func (f *fixture) ask(conversation string) extensions.Outcome {
	f.t.Helper()
	return f.Decide(f.t.Context(), input(conversation))
}

var anna = extensions.Who{Person: "anna"}

func (f *fixture) activate(binding, module string) {
	f.t.Helper()
	f.must(f.Activate(f.t.Context(), anna, binding, extensions.Placement{Module: module}))
}

// state is a module's, as it is shown.
func (f *fixture) state(hash string) string {
	for _, m := range f.Status().Modules {
		if m.SHA256 == hash {
			return m.State
		}
	}
	return "gone"
}

func (f *fixture) seat(binding, stage string) extensions.Seat {
	for _, b := range f.Status().Bindings {
		for _, s := range b.Seats {
			if b.Name == binding && s.Stage == stage {
				return s
			}
		}
	}
	return extensions.Seat{}
}
