package extensions

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"onebit/extensions/abi"
)

// Placement says how a module is bound. What is nil or empty stays as it is, or is the default of a new binding.
type Placement struct {
	Module       string           // as Manager.named takes it; empty: what is in shadow or canary there
	Percent      float64          // of conversations, over 0 and under 100: a canary; else all
	Config       json.RawMessage  // nil: what the binding has now for this module, else what it was uploaded with
	Capabilities []abi.Capability // nil: all that it asks for and the operator allows
	OnError      string
	EveryTurn    *bool
	Guard        *Guard
	Keys, Models *[]string
}

var bindingName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// binding returns a binding, or a new one of a kind. The lock changing is held.
func (m *Manager) binding(name string, kind abi.Kind) (Binding, error) {
	b, ok := m.bindings[name]
	switch {
	case !ok && !bindingName.MatchString(name):
		return b, refused("binding_name", "a binding's name has 1 to 64 lower-case letters, digits, points, lines and underscores")
	case !ok && (name == PolicyBinding || name == ClassifierBinding) && name != string(kind):
		return b, refused("binding_kind", "the binding %q is for a %s; the module is a %s", name, name, kind)
	case !ok:
		return Binding{Name: name, Kind: kind, OnError: FailOpen}, nil
	case b.Kind != kind && kind != "":
		return b, refused("binding_kind", "the binding %q is for a %s; the module is a %s", name, b.Kind, kind)
	}
	return b, nil
}

// set takes over what a placement says about the binding itself.
func (b *Binding) set(p Placement) error {
	switch p.OnError {
	case "":
	case FailOpen, FailReject:
		b.OnError = p.OnError
	default:
		return refused("on_error", "on_error is open or reject")
	}
	if p.EveryTurn != nil {
		b.EveryTurn = *p.EveryTurn
	}
	if p.Guard != nil {
		g := *p.Guard
		if g.MinCalls < 0 || g.MinCalls > window || g.P99 < 0 || g.ErrorRate < 0 || g.ErrorRate > 1 || g.Disagreement < 0 || g.Disagreement > 1 {
			return refused("guard", "a guard's shares lie between 0 and 1, its calls between 0 and %d", window)
		}
		b.Guard = g
	}
	if p.Keys != nil {
		b.Keys = slices.Clone(*p.Keys)
	}
	if p.Models != nil {
		b.Models = slices.Clone(*p.Models)
	}
	if everybody := b.Name == PolicyBinding || b.Name == ClassifierBinding; everybody && b.weight() > 0 {
		return refused("binding_scope", "the binding %q is for everybody; give another name for some keys or models", b.Name)
	} else if !everybody && b.weight() == 0 {
		return refused("binding_scope", "the binding %q needs keys or models that it is for; %q and %q are for everybody", b.Name, PolicyBinding, ClassifierBinding)
	}
	return nil
}

// chosen makes the choice of a placement. The lock changing is held.
func (m *Manager) chosen(who Who, b Binding, mod Module, p Placement) (Choice, error) {
	c := Choice{Module: mod.SHA256, Config: p.Config, Capabilities: granted(m.cfg.Policy(), mod.Manifest, p.Capabilities), Since: m.cfg.Now().UTC(), By: who.Person}
	if c.Config == nil {
		c.Config = mod.Config
		for _, have := range []*Choice{b.Previous, b.Shadow, b.Canary, b.Active} {
			if have != nil && have.Module == mod.SHA256 {
				c.Config = have.Config
			}
		}
	}
	if err := mod.checkConfig(c.Config); err != nil {
		return c, err
	}
	return c, nil
}

// ready brings a choice up and tries it, unless it runs already. The lock changing is held.
func (m *Manager) ready(ctx context.Context, mod Module, c Choice) (map[string]*generation, error) {
	key := keyOf(c)
	if g := m.running[key]; g != nil && !g.worker.Gone() {
		return nil, nil
	}
	g, err := m.bring(ctx, mod, c)
	if err != nil {
		return nil, refusal(ctx, "setup", err)
	}
	j, err := m.job(ctx, mod, c)
	if err == nil && keyOf(Choice{Module: mod.SHA256, Config: mod.Config, Capabilities: granted(m.cfg.Policy(), mod.Manifest, nil)}) != key {
		// with this configuration it has never been tried; its samples are about the one of the upload
		j.Manifest.Samples = nil
		_, err = m.dryRun(ctx, g.worker, j)
	}
	if err != nil {
		g.retire()
		return nil, refusal(ctx, "dry_run", err)
	}
	return map[string]*generation{key: g}, nil
}

// bind makes a binding what it is to be from now on.
func (m *Manager) bind(ctx context.Context, who Who, b Binding, made map[string]*generation, e Event) error {
	e.Binding = b.Name
	if err := m.cfg.Records.Change(ctx, who, Change{Event: e, Bind: &b}); err != nil {
		for _, g := range made {
			g.retire()
		}
		return err
	}
	m.bindings[b.Name] = b
	m.rebuild(context.WithoutCancel(ctx), made)
	return nil
}

// Shadow lets a module see what a binding's requests are, without being obeyed: what it decides otherwise is recorded.
func (m *Manager) Shadow(ctx context.Context, who Who, binding string, p Placement) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	mod, err := m.named(p.Module)
	if err != nil {
		return err
	}
	b, c, err := m.placed(who, binding, mod, p)
	if err != nil {
		return err
	}
	if b.Active != nil && keyOf(*b.Active) == keyOf(c) {
		return fmt.Errorf("%w: the module is active there", ErrConflict)
	}
	made, err := m.ready(ctx, mod, c)
	if err != nil {
		return err
	}
	b.Shadow = &c
	return m.bind(ctx, who, b, made, Event{Action: "shadow", Module: mod.SHA256, Detail: mod.Manifest.Name + " " + mod.Manifest.Version})
}

// placed reads a placement. The lock changing is held.
func (m *Manager) placed(who Who, binding string, mod Module, p Placement) (Binding, Choice, error) {
	b, err := m.binding(binding, mod.Manifest.Kind)
	if err != nil {
		return b, Choice{}, err
	}
	if err := b.set(p); err != nil {
		return b, Choice{}, err
	}
	c, err := m.chosen(who, b, mod, p)
	return b, c, err
}

// Activate makes a module the one that decides for a binding, or for a share of its conversations: a canary. The module
// before stays warm, to go back to.
func (m *Manager) Activate(ctx context.Context, who Who, binding string, p Placement) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	if p.Percent < 0 || p.Percent > 100 {
		return refused("percent", "a share of conversations lies between 0 and 100")
	}
	if p.Module == "" {
		b := m.bindings[binding]
		waiting := b.Canary
		if waiting == nil {
			waiting = b.Shadow
		}
		if waiting == nil {
			return refused("module_missing", "say which module; nothing is in shadow or canary in the binding %q", binding)
		}
		p.Module = waiting.Module
		if p.Capabilities == nil {
			p.Capabilities = waiting.Capabilities
		}
		if p.Config == nil {
			p.Config = waiting.Config
		}
	}
	mod, err := m.named(p.Module)
	if err != nil {
		return err
	}
	b, c, err := m.placed(who, binding, mod, p)
	if err != nil {
		return err
	}
	made, err := m.ready(ctx, mod, c)
	if err != nil {
		return err
	}
	if b.Shadow != nil && b.Shadow.Module == c.Module {
		b.Shadow = nil
	}
	e := Event{Action: "activate", Module: mod.SHA256, Detail: mod.Manifest.Name + " " + mod.Manifest.Version}
	if p.Percent > 0 && p.Percent < 100 {
		b.Canary, b.Percent = &c, p.Percent
		e.Action, e.Detail = "canary", fmt.Sprintf("%s for %g%%", e.Detail, p.Percent)
		return m.bind(ctx, who, b, made, e)
	}
	b.Canary, b.Percent = nil, 0
	if b.Active == nil || keyOf(*b.Active) != keyOf(c) {
		b.Previous, b.Active = b.Active, &c
	}
	if g := m.running[keyOf(c)]; g != nil {
		g.breaker.reset() // whoever activates it again gives it another chance
	}
	return m.bind(ctx, who, b, made, e)
}

// Rollback goes back: from a canary to none, else from the active module to the one before, which is warm. Without one
// before it goes back to the default policy; another rollback returns.
func (m *Manager) Rollback(ctx context.Context, who Who, binding, why string) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	return m.rollback(ctx, who, binding, why)
}

func (m *Manager) rollback(ctx context.Context, who Who, binding, why string) error {
	b, ok := m.bindings[binding]
	if !ok {
		return fmt.Errorf("%w: the binding %q", ErrNotFound, binding)
	}
	e := Event{Action: "rollback", Detail: why}
	switch {
	case b.Canary != nil:
		e.Module, b.Canary, b.Percent = b.Canary.Module, nil, 0
	case b.Active == nil && b.Previous == nil:
		return fmt.Errorf("%w: nothing was active in the binding %q", ErrConflict, binding)
	default:
		if b.Active != nil {
			e.Module = b.Active.Module
		}
		b.Active, b.Previous = b.Previous, b.Active
	}
	return m.bind(ctx, who, b, nil, e)
}

// Unbind takes a binding away: the default policy decides, or the binding for everybody.
func (m *Manager) Unbind(ctx context.Context, who Who, binding string) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	if _, ok := m.bindings[binding]; !ok {
		return fmt.Errorf("%w: the binding %q", ErrNotFound, binding)
	}
	if err := m.cfg.Records.Change(ctx, who, Change{Event: Event{Action: "unbind", Binding: binding}, Unbind: binding}); err != nil {
		return err
	}
	delete(m.bindings, binding)
	m.rebuild(context.WithoutCancel(ctx), nil)
	return nil
}

// alarm says that a module does worse than its guard allows.
type alarm struct {
	binding string
	seat    *seat
	why     string
}

// back goes back by itself.
func (m *Manager) back(ctx context.Context, a alarm) {
	m.changing.Lock()
	defer m.changing.Unlock()
	for _, p := range m.table.Load().places {
		if p.Name != a.binding || p.active != a.seat && p.canary != a.seat || p.active == a.seat && p.Canary != nil {
			continue // somebody was faster, or the canary has to go first
		}
		why := "by itself: " + a.why
		if err := m.rollback(ctx, System(), a.binding, why); err != nil {
			m.cfg.Log.Error("going back from a module", "binding", a.binding, "error", err)
			return
		}
		m.cfg.Log.Warn("went back from a module", "binding", a.binding, "module", a.seat.label(), "why", a.why)
	}
}

// Events returns up to limit lines of the log, oldest first.
func (m *Manager) Events(ctx context.Context, after int64, limit int) ([]Event, error) {
	return m.cfg.Records.Events(ctx, after, limit)
}
