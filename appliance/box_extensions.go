package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"onebit/appliance/auth"
	"onebit/appliance/pool"
	"onebit/appliance/queue"
	"onebit/appliance/telemetry"
	"onebit/engine"
	"onebit/extensions"
	"onebit/extensions/worker"
	"onebit/store"
)

// newExtensions makes the manager of modules. It starts nothing.
func (b *box) newExtensions(run extensions.Runner) (*extensions.Manager, error) {
	return extensions.New(extensions.Config{
		Dir: b.extensionsDir(), Records: moduleRecords{b.store}, Vault: moduleVault{b.store}, Runner: run, Log: b.log,
		Policy:   func() extensions.Policy { return b.now.Load().cfg.Extensions.Policy() },
		Services: extensions.Services{Tokens: b.countTokens, Embed: b.embed, Decide: b.decideFor},
		Scorer:   b.scorer,
		Kept:     talks{b.store, b.log},
	})
}

// extensionsDir is where modules and what is compiled of them lie.
func (b *box) extensionsDir() string { return filepath.Join(b.options.state, "extensions") }

// moduleRecords keeps what the manager of modules records in the store.
type moduleRecords struct{ s *store.Store }

func (r moduleRecords) Load(ctx context.Context) (modules []extensions.Module, bindings []extensions.Binding, err error) {
	rows, err := r.s.Extensions(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, row := range rows {
		var m extensions.Module
		if err := json.Unmarshal(row.Detail, &m); err != nil {
			return nil, nil, fmt.Errorf("reading what is known of the module %s: %w", row.SHA256, err)
		}
		m.SHA256, m.Size, m.By, m.Added = row.SHA256, row.Size, row.By, row.Added
		modules = append(modules, m)
	}
	texts, err := r.s.ExtensionBindings(ctx)
	if err != nil {
		return nil, nil, err
	}
	for name, text := range texts {
		var one extensions.Binding
		if err := json.Unmarshal(text, &one); err != nil {
			return nil, nil, fmt.Errorf("reading the binding %q: %w", name, err)
		}
		one.Name = name
		bindings = append(bindings, one)
	}
	return modules, bindings, nil
}

func (r moduleRecords) Change(ctx context.Context, who extensions.Who, c extensions.Change) error {
	a := store.Actor{Person: who.Person, Key: who.Key, Admin: true} // whoever asks has been let in as one
	e := store.ExtensionEvent{Action: c.Event.Action, Module: c.Event.Module, Binding: c.Event.Binding, Detail: c.Event.Detail}
	switch {
	case c.Put != nil:
		row, err := moduleRow(c.Put)
		if err != nil {
			return err
		}
		return r.s.PutExtension(ctx, a, row, e)
	case c.Delete != nil:
		return r.s.DeleteExtension(ctx, a, store.Extension{SHA256: c.Delete.SHA256, Name: c.Delete.Manifest.Name}, c.Values, e)
	case c.Bind != nil:
		text, err := json.Marshal(c.Bind)
		if err != nil {
			return err
		}
		return r.s.PutExtensionBinding(ctx, a, c.Bind.Name, text, e)
	case c.Unbind != "":
		return r.s.PutExtensionBinding(ctx, a, c.Unbind, nil, e)
	}
	return r.s.LogExtension(ctx, a, e)
}

func moduleRow(m *extensions.Module) (store.Extension, error) {
	detail, err := json.Marshal(m)
	return store.Extension{SHA256: m.SHA256, Name: m.Manifest.Name, Version: m.Manifest.Version, Kind: string(m.Manifest.Kind), Size: m.Size, Detail: detail}, err
}

func (r moduleRecords) Events(ctx context.Context, after int64, limit int) ([]extensions.Event, error) {
	rows, err := r.s.ExtensionLog(ctx, store.System(), after, limit)
	var all []extensions.Event
	for _, e := range rows {
		all = append(all, extensions.Event{ID: e.ID, Time: e.Time, Person: e.Person, Key: e.Key, Action: e.Action, Module: e.Module, Binding: e.Binding, Detail: e.Detail})
	}
	return all, err
}

func (r moduleRecords) Values(ctx context.Context, module, tenant string) ([]extensions.Value, error) {
	rows, err := r.s.ExtensionValues(ctx, module, tenant)
	var all []extensions.Value
	for _, v := range rows {
		all = append(all, extensions.Value{Module: v.Module, Tenant: v.Tenant, Key: v.Name, Value: v.Value, Expires: v.Expires})
	}
	return all, err
}

func (r moduleRecords) PutValues(ctx context.Context, values []extensions.Value) error {
	rows := make([]store.ExtensionValue, 0, len(values))
	for _, v := range values {
		rows = append(rows, store.ExtensionValue{Module: v.Module, Tenant: v.Tenant, Name: v.Key, Value: v.Value, Expires: v.Expires})
	}
	return r.s.PutExtensionValues(ctx, rows)
}

// moduleVault keeps the bytes of modules in the store as well, so that a copy of the box's state has them.
type moduleVault struct{ s *store.Store }

func (v moduleVault) Keep(ctx context.Context, r io.Reader) (string, error) {
	hash, _, err := v.s.PutBlob(ctx, store.System(), r)
	return hash, err
}

func (v moduleVault) Fetch(ctx context.Context, hash string, w io.Writer) error {
	_, err := v.s.Blob(ctx, store.System(), hash, w)
	return err
}

func (v moduleVault) Drop(ctx context.Context, hash string) error {
	if err := v.s.DeleteBlob(ctx, store.System(), hash); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

// talks keeps in the store where conversations are.
type talks struct {
	s   *store.Store
	log *slog.Logger
}

func (t talks) May(names []string) bool { return t.s.MayKnowConversation(names) }

func (t talks) Find(ctx context.Context, names []string) *extensions.Conversation {
	c, err := t.s.FindConversation(ctx, names)
	if err != nil {
		if !errors.Is(err, store.ErrNotFound) {
			t.log.Debug("a conversation is taken for a new one", "error", err)
		}
		return nil
	}
	return &extensions.Conversation{
		ID: c.ID, Names: c.Names, Place: c.Place, Class: c.Class, Sure: c.Confidence, Module: c.Module, Tokens: int(c.Tokens), Turns: int(c.Turns),
		Until: c.Until, First: c.First, Used: c.Used, Detail: c.Detail,
	}
}

func (t talks) Put(c extensions.Conversation) {
	err := t.s.PutConversation(store.Conversation{
		ID: c.ID, Names: c.Names, Owner: store.Actor{Person: c.Owner.Person, Key: c.Owner.Key}, Place: c.Place, Class: c.Class, Confidence: c.Sure,
		Module: c.Module, Tokens: int64(c.Tokens), Turns: int64(c.Turns), Until: c.Until, First: c.First, Used: c.Used, Detail: c.Detail,
	})
	if err != nil {
		t.log.Debug("a conversation is not kept", "error", err)
	}
}

// chooser decides for the data plane, on behalf of whoever asks.
type chooser struct{ b *box }

func (c chooser) Decides() bool { return c.b.extensions.Decides() }

func (c chooser) Decide(ctx context.Context, in extensions.Input) extensions.Outcome {
	c.b.awaitBuilt(ctx)
	p := auth.From(ctx)
	in.Tenant, in.Key = p.Person, p.Actor.Key
	in.Private = c.b.privacy(p) == store.PrivacyNone
	return c.b.extensions.Decide(ctx, in)
}

func (c chooser) Settle(ctx context.Context, o extensions.Outcome, s extensions.Served) {
	c.b.extensions.Settle(ctx, o, s)
}

// How long the box may take for a module, within what its call may take.
const (
	countLimit = 10 * time.Millisecond
	embedLimit = 2 * time.Second
	maxDecided = 64 << 10 // bytes of an answer
)

// errNotNow says that the box cannot do something for a module at the moment.
var errNotNow = errors.New("no model for it is in memory")

// relaying is a backend that has more routes than the common ones.
type relaying interface {
	Relay(*http.Request) (*http.Response, error)
}

// countTokens counts by the vocabulary of the first chat model, or at a guess while that is not in memory or busy.
func (b *box) countTokens(ctx context.Context, text string) (int, error) {
	guess := (len(text) + 3) / 4
	r, ok := b.inMemory("chat").(relaying)
	if !ok {
		return guess, nil
	}
	ctx, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	body, err := json.Marshal(map[string]string{"content": text})
	if err != nil {
		return guess, nil
	}
	in, err := http.NewRequestWithContext(ctx, http.MethodPost, "/tokenize", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	in.Header.Set("Content-Type", "application/json")
	res, err := r.Relay(in)
	if err != nil {
		return guess, nil // it is busy or gone, and a guess is better than nothing
	}
	defer res.Body.Close()
	var counted struct {
		Tokens []json.RawMessage `json:"tokens"`
	}
	if json.NewDecoder(res.Body).Decode(&counted) != nil || len(counted.Tokens) == 0 {
		return guess, nil
	}
	return len(counted.Tokens), nil
}

// embed makes a vector of a text, by the first embedding model that is in memory.
func (b *box) embed(ctx context.Context, text string) ([]float32, error) {
	backend := b.inMemory("embedding")
	if backend == nil {
		return nil, errNotNow
	}
	ctx, cancel := context.WithTimeout(ctx, embedLimit)
	defer cancel()
	raw, err := json.Marshal(map[string]string{"input": text})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data []struct {
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	_, err = backend.Generate(ctx, &engine.Request{Kind: engine.Embedding, Raw: raw}, func(c engine.Chunk) error {
		return json.Unmarshal(c.Raw, &answer)
	})
	if err != nil {
		return nil, err
	}
	if len(answer.Data) == 0 {
		return nil, errNotNow
	}
	return answer.Data[0].Embedding, nil
}

// decideFor chooses among criteria for a module, by the first chat model that is in memory and can.
func (b *box) decideFor(ctx context.Context, text string, criteria map[string]string) (string, float64, map[string]float64, error) {
	r, ok := b.inMemory("chat").(relaying)
	if !ok {
		return "", 0, nil, errNotNow
	}
	body, err := json.Marshal(map[string]any{"state": text, "questions": map[string]any{
		"class": map[string]any{"type": "choice", "instructions": "Which of these is the text?", "criteria": criteria}}})
	if err != nil {
		return "", 0, nil, err
	}
	in, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/systemone", bytes.NewReader(body))
	if err != nil {
		return "", 0, nil, err
	}
	in.Header.Set("Content-Type", "application/json")
	in.Header.Set(engine.ScopeHeader, scopeOf(ctx))
	res, err := r.Relay(in)
	if err != nil {
		return "", 0, nil, errors.Join(errNotNow, err)
	}
	defer res.Body.Close()
	var said struct {
		Answers map[string]struct {
			Choice        string             `json:"choice"`
			Confidence    float64            `json:"confidence"`
			Probabilities map[string]float64 `json:"probabilities"`
		} `json:"answers"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxDecided)).Decode(&said); err != nil || res.StatusCode != http.StatusOK {
		return "", 0, nil, errors.Join(errNotNow, err)
	}
	a, ok := said.Answers["class"]
	if !ok || a.Choice == "" {
		return "", 0, nil, errNotNow
	}
	return a.Choice, a.Confidence, a.Probabilities, nil
}

// inMemory is the first model of a role, when it is in memory; nil when it is not.
func (b *box) inMemory(role string) engine.Backend {
	for _, m := range b.now.Load().models {
		if m.Role != role || m.Elsewhere() { // what modules work with stays here
			continue
		}
		if b.pool.Instance(m.Name) != nil { // somebody waits for what is decided: it is no work for the background
			return b.pool.BackendFor(pool.Ask{Model: m.Name, Priority: queue.Interactive, There: true})
		}
	}
	return nil
}

// extensionFamilies are the figures of modules.
func (b *box) extensionFamilies() []telemetry.Family {
	labels := []string{"module", "binding", "stage"}
	family := func(name, help string, counter bool, more ...string) telemetry.Family {
		return telemetry.Family{Name: "onebit_extension_" + name, Help: help, Counter: counter, Labels: append(labels[:3:3], more...)}
	}
	calls := family("calls_total", "Calls of a module.", true)
	failures := family("undecided_total", "Requests that a module brought no decision about, by cause.", true, "cause")
	classes := family("decisions_total", "Decisions of a module by class.", true, "class")
	units := family("units_total", "Work that a module's calls took, in units.", true)
	differ := family("disagreements_total", "Decisions other than the default policy's, or for a shadow than those that were obeyed.", true)
	seconds := family("seconds", "How long the latest calls of a module took.", false, "quantile")
	memory := family("memory_pages", "Most memory after a call, in pages of 64 KiB.", false)
	up := family("breaker_closed", "1 while a module is asked, 0 while its breaker is open or it is suspended.", false)
	own := telemetry.Family{Name: "onebit_extension_metric_total", Help: "What modules count themselves.", Counter: true, Labels: []string{"module", "metric"}}
	put := func(f *telemetry.Family, at []string, n float64, more ...string) {
		f.Values = append(f.Values, telemetry.Value{Labels: append(at[:3:3], more...), Value: n})
	}
	for _, bound := range b.extensions.Status().Bindings {
		for _, s := range bound.Seats {
			at, u := []string{s.Module, bound.Name, s.Stage}, s.Usage
			put(&calls, at, float64(u.Calls))
			for cause, n := range u.Causes {
				put(&failures, at, float64(n), cause)
			}
			for class, n := range u.Classes {
				put(&classes, at, float64(n), class)
			}
			put(&units, at, float64(u.Units))
			put(&differ, at, float64(u.Disagreement))
			put(&seconds, at, u.P50/1000, "0.5")
			put(&seconds, at, u.P99/1000, "0.99")
			put(&memory, at, float64(u.Pages))
			put(&up, at, telemetry.Bool(u.Breaker == "closed"))
		}
	}
	for _, c := range b.extensions.Counters() {
		own.Values = append(own.Values, telemetry.Value{Labels: []string{c.Module, c.Name}, Value: c.Value})
	}
	return []telemetry.Family{calls, failures, classes, units, differ, seconds, memory, up, own}
}

// modules is what runs them: this program, started again.
func (b *box) modules() extensions.Runner {
	return extensions.Processes{Program: []string{b.starts.Executable, worker.Command}, Dir: b.extensionsDir(), Log: b.log}
}
