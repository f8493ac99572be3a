package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"onebit/appliance/auth"
	"onebit/appliance/gateway"
	"onebit/appliance/pool"
	"onebit/engine"
	"onebit/engine/wire"
)

// fleet is the box's models, as the data plane asks for them.
type fleet struct{ b *box }

// Resolve finds a model by its name, or the first of a role.
func (f fleet) Resolve(role gateway.Role, name string) (string, error) {
	var known []string
	for _, m := range f.b.now.Load().models {
		switch {
		case name != "" && m.Name == name:
			return name, nil
		case name == "" && m.role() == role && (!m.Elsewhere() || m.Remote.Auto):
			return m.Name, nil
		}
		known = append(known, m.Name)
	}
	return "", &gateway.NoModelError{Name: name, Role: role, Known: known}
}

// Acquire brings a model up and holds it.
func (f fleet) Acquire(ctx context.Context, name string) (gateway.Model, func(), error) {
	known, ok := f.b.now.Load().model(name)
	if ok && known.Elsewhere() && !known.here() {
		return gateway.Model{}, nil, &wire.Error{
			Status: http.StatusServiceUnavailable, Type: wire.TypeUnavailable, Code: "model_absent", NoRetry: true,
			Message: "the model " + name + " is not in use; an admin sees why",
		}
	}
	if ok && !known.here() {
		return gateway.Model{}, nil, &wire.Error{
			Status: http.StatusServiceUnavailable, Type: wire.TypeUnavailable, Code: "model_absent", NoRetry: true,
			Message: "the file of the model " + name + " is not on this box; an admin sees why",
		}
	}
	l, err := f.b.pool.Acquire(ctx, name)
	if err != nil {
		return gateway.Model{}, nil, discreet(auth.From(ctx), unready(name, err), err)
	}
	m := gateway.Model{Name: name, Backend: l.Backend}
	if ok {
		m.Role, m.Created, m.Device = known.role(), known.created, engine.Device(known.Device)
	}
	if c, ok := l.Instance.(*pool.Children); ok {
		m.Device, m.Why = c.Plan.Device, c.Plan.Why
	}
	return m, l.Release, nil
}

// discreet is what somebody is told of err, said as told: why a model does not run may name folders and programs, and what
// is loaded in its place models that are not theirs to know.
func discreet(p *auth.Principal, told, err error) error {
	if full, ok := errors.AsType[*pool.FullError](err); ok {
		less := *full
		less.Holders = slices.DeleteFunc(slices.Clone(full.Holders), func(h pool.Holder) bool { return !p.MayUse(h.Name) })
		return unready(full.Model, &less)
	}
	if e, ok := errors.AsType[*engine.UnavailableError](err); ok && !p.Admin {
		if model, _, found := strings.Cut(e.Reason, " does not run: "); found {
			return &engine.UnavailableError{Reason: model + " does not run at the moment; an admin sees why", RetryAfter: e.RetryAfter}
		}
	}
	return told
}

// unready says how a client is told why a model cannot be had.
func unready(name string, err error) error {
	if full, ok := errors.AsType[*pool.FullError](err); ok {
		return &wire.Error{
			Status: http.StatusInsufficientStorage, Type: wire.TypeUnavailable, Code: "not_enough_memory", Message: full.Error(),
			RetryAfter: full.RetryAfter, NoRetry: full.RetryAfter == 0,
		}
	}
	if errors.Is(err, pool.ErrUnknown) {
		return &gateway.NoModelError{Name: name}
	}
	return err
}

// List tells what models there are and where they stand.
func (f fleet) List() []gateway.Listed {
	states := map[string]pool.Status{}
	for _, s := range f.b.pool.List() {
		states[s.Name] = s
	}
	var all []gateway.Listed
	for _, m := range f.b.now.Load().models {
		l := gateway.Listed{
			Name: m.Name, Device: engine.Device(m.Device), Role: m.role(), State: string(states[m.Name].Phase), Created: m.created,
			Info: engine.Info{Context: m.perSlot()}, Failed: !m.here() || states[m.Name].Phase == pool.Failed, Waiting: states[m.Name].Waiting,
			Elsewhere: m.elsewhere(),
		}
		if i := f.b.pool.Instance(m.Name); i != nil {
			l.Backend = i.Backend()
			l.Failed = l.Failed || resting(i)
			if info := i.Info(); info.Context > 0 {
				l.Info = info
			}
			if c, ok := i.(*pool.Children); ok {
				l.Device = c.Plan.Device
			}
		}
		all = append(all, l)
	}
	return all
}
