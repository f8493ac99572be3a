package extensions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// generation is one module as it runs with one configuration. A call holds it, so that it ends only after its last call.
type generation struct {
	key    string
	name   string // as people recognise it: NAME@SHA8
	module Module
	choice Choice
	worker Worker

	breaker breaker

	mu      sync.Mutex
	calls   int
	retired bool
	ending  *sync.WaitGroup // of all generations
	problem func(error)
}

// hold takes part in a generation; false says that it is ending.
func (g *generation) hold() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.retired {
		return false
	}
	g.calls++
	return true
}

// release gives it back.
func (g *generation) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls--
	g.end()
}

// retire ends the generation once its last call has ended.
func (g *generation) retire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.retired {
		return
	}
	g.retired = true
	g.end()
}

// end closes the worker when nobody needs it any more. The lock is held; closing is for another goroutine, which ending waits
// for.
func (g *generation) end() {
	if !g.retired || g.calls > 0 {
		return
	}
	go func() {
		defer g.ending.Done()
		if err := g.worker.Close(); err != nil {
			g.problem(err)
		}
	}()
}

// label is how people recognise it.
func (g *generation) label() string { return g.name }

// keyOf names a module with its configuration and grants.
func keyOf(c Choice) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%v", c.Module, c.Config, c.Capabilities)
	return c.Module + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// limits are those of a module: what its manifest asks for within what its kind may have.
func limits(m abi.Manifest) abi.Limits {
	l := m.Kind.Limits()
	if m.Pages > 0 {
		l.Memory = min(l.Memory, m.Pages)
	}
	if m.Units > 0 {
		l.Units = min(l.Units, m.Units)
	}
	return l
}

// granted is what a module gets: what it asks for, the operator allows, and the binding names, when it names any.
func granted(p Policy, m abi.Manifest, named []abi.Capability) []abi.Capability {
	out := []abi.Capability{}
	for _, c := range m.Capabilities {
		if slices.Contains(p.Capabilities, c) && (named == nil || slices.Contains(named, c)) && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// job reads what a module needs from its files, checked against their names and the policy about signatures.
func (m *Manager) job(ctx context.Context, mod Module, c Choice) (Job, error) {
	j := Job{
		SHA256: mod.SHA256, Path: m.files.path(aModule, mod.SHA256), Manifest: mod.Manifest, Limits: limits(mod.Manifest), Granted: c.Capabilities,
		Setup: host.Setup{Config: given(c.Config), Warm: warm(mod.Manifest)},
	}
	b, err := m.read(ctx, file{aModule, mod.SHA256})
	if err != nil {
		return j, err
	}
	if _, err := verify(m.cfg.Policy(), mod.Manifest, b, mod.Signature); err != nil {
		return j, err
	}
	for _, a := range mod.Assets {
		if j.Setup.Assets == nil {
			j.Setup.Assets = map[string][]byte{}
		}
		if j.Setup.Assets[a.Name], err = m.read(ctx, file{anAsset, a.SHA256}); err != nil {
			return j, fmt.Errorf("the asset %q: %w", a.Name, err)
		}
	}
	return j, nil
}

// bring starts a module. The lock changing is held.
func (m *Manager) bring(ctx context.Context, mod Module, c Choice) (*generation, error) {
	j, err := m.job(ctx, mod, c)
	if err != nil {
		return nil, err
	}
	if m.closed {
		return nil, errors.New("the box is stopping")
	}
	w, err := m.cfg.Runner.Start(ctx, j)
	if err != nil {
		return nil, err
	}
	m.ending.Add(1)
	log := m.cfg.Log.With("module", mod.Manifest.Name, "sha", short(mod.SHA256))
	return &generation{
		key: keyOf(c), name: mod.Manifest.Name + "@" + short(mod.SHA256), module: mod, choice: c, worker: w, ending: &m.ending,
		problem: func(err error) { log.Warn("ending a module", "error", err) },
	}, nil
}

// warm is the request of the call before the snapshot.
func warm(m abi.Manifest) []byte {
	r := plain()
	if len(m.Samples) > 0 {
		r = m.Samples[0].Request
	}
	r.V = abi.Version
	b, err := json.Marshal(r)
	if err != nil || len(b) > abi.MaxRequest {
		return nil
	}
	return b
}

// seat is a generation at one stage of one binding.
type seat struct {
	*generation
	stage string
	since time.Time
	stats stats
}

// place is a binding with what runs for it.
type place struct {
	Binding
	active, previous, canary, shadow *seat
	problems                         map[string]string // by stage: why it does not run
}

// seat is where a place keeps what runs at a stage.
func (p *place) seat(stage string) **seat {
	switch stage {
	case "active":
		return &p.active
	case "previous":
		return &p.previous
	case "canary":
		return &p.canary
	}
	return &p.shadow
}

// sit returns the seat of a generation: the one that it has, with what it has counted, or a new one.
func (m *Manager) sit(binding, stage string, g *generation) *seat {
	for _, p := range m.table.Load().places {
		if s := *p.seat(stage); p.Name == binding && s != nil && s.generation == g {
			return s
		}
	}
	return &seat{generation: g, stage: stage, since: m.cfg.Now()}
}

// table is all modules and places at a moment, the most particular place first. It does not change.
type table struct {
	places  []*place
	modules map[string]Module
}

// label is how people recognise a module: NAME@SHA8.
func (t *table) label(hash string) string { return t.modules[hash].Manifest.Name + "@" + short(hash) }

// publish shows a change of the modules. The lock changing is held.
func (m *Manager) publish() {
	m.table.Store(&table{places: m.table.Load().places, modules: maps.Clone(m.modules)})
}

// find returns the place of a kind that serves a request; nil for none.
func (t *table) find(kind abi.Kind, key, model string) *place {
	for _, p := range t.places {
		if p.Kind == kind && p.serves(key, model) && (p.Active != nil || p.Canary != nil || p.Shadow != nil) {
			return p
		}
	}
	return nil
}

// rebuild makes a table of the bindings, starting what is missing and ending what is no longer bound. With made are the
// generations that were started already. The lock changing is held.
func (m *Manager) rebuild(ctx context.Context, made map[string]*generation) {
	next := &table{modules: maps.Clone(m.modules)}
	used := map[string]*generation{}
	for _, b := range m.bindings {
		p := &place{Binding: b, problems: map[string]string{}}
		for stage, c := range b.choices() {
			g, err := m.need(ctx, *c, made, used)
			if err != nil {
				p.problems[stage] = err.Error()
				m.cfg.Log.Error("a module cannot run", "binding", b.Name, "stage", stage, "sha", short(c.Module), "why", err)
				continue
			}
			*p.seat(stage) = m.sit(b.Name, stage, g)
		}
		next.places = append(next.places, p)
	}
	slices.SortFunc(next.places, func(a, b *place) int {
		if n := b.weight() - a.weight(); n != 0 {
			return n
		}
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	old := m.running
	m.running = used
	m.table.Store(next)
	for key, g := range old {
		if used[key] != g {
			g.retire()
		}
	}
	for key, g := range made {
		if used[key] != g {
			g.retire()
		}
	}
}

// need returns the generation of a choice, which runs or is started.
func (m *Manager) need(ctx context.Context, c Choice, made, used map[string]*generation) (*generation, error) {
	key := keyOf(c)
	for _, have := range []map[string]*generation{used, m.running, made} {
		if g := have[key]; g != nil && !g.worker.Gone() {
			used[key] = g
			return g, nil
		}
	}
	mod, ok := m.modules[c.Module]
	if !ok {
		return nil, fmt.Errorf("the module %s is not on this box", short(c.Module))
	}
	g, err := m.bring(ctx, mod, c)
	if err == nil {
		used[key] = g
	}
	return g, err
}
