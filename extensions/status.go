package extensions

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"onebit/extensions/abi"
)

// Listing is all modules and bindings at a moment.
type Listing struct {
	Modules       []Shown `json:"modules"`
	Bindings      []Bound `json:"bindings"`
	Conversations int     `json:"conversations" about:"whose decision is remembered"`
}

// Shown is a module as it is shown.
type Shown struct {
	SHA256       string    `json:"sha256"`
	Name         string    `json:"name"`
	Version      string    `json:"version"`
	Kind         string    `json:"kind" about:"policy or classifier"`
	State        string    `json:"state" about:"ready, shadow, canary, active, previous or suspended"`
	Size         int64     `json:"size"`
	Assets       []Asset   `json:"assets"`
	Classes      []string  `json:"classes"`
	Capabilities []string  `json:"capabilities" about:"that it asks for"`
	Signer       string    `json:"signer" about:"id of the key that signed it; empty for none that is trusted"`
	Report       Report    `json:"report"`
	By           string    `json:"by" about:"a person's id, or system"`
	Added        time.Time `json:"added"`
}

// Seat is a module at one stage of a binding.
type Seat struct {
	Stage        string          `json:"stage" about:"active, previous, canary or shadow"`
	Module       string          `json:"module" about:"NAME@SHA8"`
	SHA256       string          `json:"sha256"`
	Config       json.RawMessage `json:"config"`
	Capabilities []string        `json:"capabilities" about:"that it was granted"`
	Since        time.Time       `json:"since"`
	By           string          `json:"by"`
	Problem      string          `json:"problem" about:"why it does not run; empty when it does"`
	Usage        Tally           `json:"usage"`
}

// Bound is a binding as it is shown.
type Bound struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`
	Keys      []string `json:"keys"`
	Models    []string `json:"models"`
	OnError   string   `json:"on_error"`
	EveryTurn bool     `json:"every_turn"`
	Guard     Guard    `json:"guard"`
	Percent   float64  `json:"percent" about:"of conversations that the canary gets"`
	Seats     []Seat   `json:"seats"`
}

// stages are those of a binding, the most important first.
func stages() []string { return []string{"active", "canary", "shadow", "previous"} }

// Status returns what there is.
func (m *Manager) Status() Listing {
	t := m.table.Load()
	s := Listing{Modules: []Shown{}, Bindings: []Bound{}, Conversations: m.kept.len()}
	states := map[string]string{}
	modules := slices.Collect(maps.Values(t.modules))
	for _, p := range t.places {
		b := Bound{
			Name: p.Name, Kind: string(p.Kind), Keys: texts(p.Keys), Models: texts(p.Models), OnError: p.OnError, EveryTurn: p.EveryTurn,
			Guard: p.Guard, Percent: p.Percent, Seats: []Seat{},
		}
		for _, stage := range stages() {
			c := p.choices()[stage]
			if c == nil {
				continue
			}
			shown := Seat{
				Stage: stage, Module: t.label(c.Module), SHA256: c.Module, Config: c.Config, Capabilities: words(c.Capabilities),
				Since: c.Since, By: c.By, Problem: p.problems[stage], Usage: (&stats{}).usage(),
			}
			if len(shown.Config) == 0 {
				shown.Config = json.RawMessage("{}")
			}
			state := stage
			if seat := *p.seat(stage); seat != nil {
				shown.Usage = seat.stats.usage()
				shown.Usage.Breaker = seat.breaker.state()
				if shown.Usage.Breaker == "suspended" {
					shown.Problem, state = "it failed again and again, and is not asked any more; activate it again to try anew", "suspended"
				}
			}
			if have := states[c.Module]; have == "" || slices.Index(stages(), state) < slices.Index(stages(), have) {
				states[c.Module] = state
			}
			b.Seats = append(b.Seats, shown)
		}
		s.Bindings = append(s.Bindings, b)
	}
	slices.SortFunc(modules, func(a, b Module) int {
		return cmp.Or(cmp.Compare(a.Manifest.Name, b.Manifest.Name), a.Added.Compare(b.Added), cmp.Compare(a.SHA256, b.SHA256))
	})
	for _, mod := range modules {
		s.Modules = append(s.Modules, mod.shown(cmp.Or(states[mod.SHA256], "ready")))
	}
	return s
}

func (m Module) shown(state string) Shown {
	return Shown{
		SHA256: m.SHA256, Name: m.Manifest.Name, Version: m.Manifest.Version, Kind: string(m.Manifest.Kind), State: state, Size: m.Size,
		Assets: append([]Asset{}, m.Assets...), Classes: texts(m.Manifest.Classes), Capabilities: words(m.Manifest.Capabilities), Signer: m.Signer,
		Report: m.Report, By: m.By, Added: m.Added,
	}
}

// Shown is a module that has just come in.
func (m Module) Shown() Shown { return m.shown("ready") }

func texts(l []string) []string { return append([]string{}, l...) }

func words(caps []abi.Capability) []string {
	out := []string{}
	for _, c := range caps {
		out = append(out, string(c))
	}
	return out
}

// Problem is something that is wrong with what is bound.
type Problem struct {
	Place string // binding and stage
	Text  string // in a sentence
}

// Problems says what is wrong with what is bound.
func (m *Manager) Problems() []Problem {
	var all []Problem
	for _, b := range m.Status().Bindings {
		for _, s := range b.Seats {
			if s.Problem != "" {
				text := fmt.Sprintf("the extension %s, %s in the binding %s, does not serve: %s", s.Module, s.Stage, b.Name, s.Problem)
				all = append(all, Problem{b.Name + " " + s.Stage, text})
			}
		}
	}
	return all
}

// Counter is a value of a metric that a module declares.
type Counter struct {
	Module, Name string
	Value        float64
}

// Counters returns what modules have counted themselves, in a steady order.
func (m *Manager) Counters() []Counter {
	var all []Counter
	for key, v := range m.metrics.snapshot() {
		all = append(all, Counter{key[0], key[1], v})
	}
	slices.SortFunc(all, func(a, b Counter) int { return cmp.Or(cmp.Compare(a.Module, b.Module), cmp.Compare(a.Name, b.Name)) })
	return all
}
