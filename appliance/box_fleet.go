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
	"onebit/appliance/queue"
	"onebit/engine"
	"onebit/engine/wire"
	"onebit/store"
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
func (f fleet) Acquire(ctx context.Context, w gateway.Wish) (gateway.Hold, error) {
	name, p := w.Model, auth.From(ctx)
	known, ok := f.b.now.Load().model(name)
	if ok && known.Elsewhere() && !known.here() {
		return gateway.Hold{}, &wire.Error{
			Status: http.StatusServiceUnavailable, Type: wire.TypeUnavailable, Code: "model_absent", NoRetry: true,
			Message: "the model " + name + " is not in use; an admin sees why",
		}
	}
	if ok && !known.here() {
		return gateway.Hold{}, &wire.Error{
			Status: http.StatusServiceUnavailable, Type: wire.TypeUnavailable, Code: "model_absent", NoRetry: true,
			Message: "the file of the model " + name + " is not on this box; an admin sees why",
		}
	}
	priority := f.b.bounded(p, w.Priority)
	l, err := f.b.pool.Acquire(ctx, pool.Ask{
		Model: name, Key: whose(p), Priority: priority, Weight: weight(p), Prompt: w.Prompt, Answer: w.Answer, Aside: w.Aside, Again: w.Again,
	})
	if err != nil {
		return gateway.Hold{}, discreet(p, unready(name, err), err)
	}
	h := gateway.Hold{
		Model:   gateway.Model{Name: name, Backend: l.Backend},
		Release: l.Finish, Priority: priority, Waited: l.Waited, Position: l.Position, Loaded: l.Loaded,
	}
	m := &h.Model
	if ok {
		m.Role, m.Created, m.Device = known.role(), known.created, engine.Device(known.Device)
	}
	if c, ok := l.Instance.(*pool.Children); ok {
		m.Device, m.Why = c.Plan.Device, c.Plan.Why
	}
	return h, nil
}

// whose says out of whose share of a model a request comes: a key's, or a person's who has logged in.
func whose(p *auth.Principal) string {
	switch {
	case p.Key != nil:
		return "key " + p.Key.ID
	case p.Kind == auth.Socket:
		return "console"
	}
	return "person " + p.Person
}

// bounded is the priority of a request that wants to have one: no more than its sender may have.
func (b *box) bounded(p *auth.Principal, wanted queue.Priority) queue.Priority {
	if p.Role == store.RoleGuest {
		most, _ := queue.ParsePriority(b.now.Load().cfg.Queue.Guests) // it has been checked
		wanted = min(wanted, most)
	}
	if p.Key != nil {
		most, _ := queue.ParsePriority(p.Key.Priority) // so has this
		wanted = min(wanted, most)
	}
	return wanted
}

// weight is how large the share is that whose names.
func weight(p *auth.Principal) float64 {
	if p.Key != nil {
		return float64(p.Key.Weight)
	}
	return 1
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
	if busy, ok := errors.AsType[*pool.BusyError](err); ok {
		return noPlace(busy)
	}
	if errors.Is(err, pool.ErrUnknown) {
		return &gateway.NoModelError{Name: name}
	}
	return err
}

// noPlace says how a client is told that too many wait.
func noPlace(busy *pool.BusyError) error {
	e := &wire.Error{
		Status: http.StatusServiceUnavailable, Type: wire.TypeUnavailable, Code: "queue_full", RetryAfter: busy.Wait,
		Message: busy.Error() + ": try again then; an admin can let more wait (queue.length)",
	}
	if busy.PerKey {
		e.Status, e.Type = http.StatusTooManyRequests, "rate_limit_error"
		e.Message = busy.Error() + ": send fewer at the same time, or try again then; an admin can let more wait (queue.per_key)"
	}
	return e
}

// List tells what models there are and where they stand.
func (f fleet) List() []gateway.Listed {
	models := f.b.now.Load().models
	seen := f.b.pool.Glances(len(models), func(i int) string { return models[i].Name })
	all := make([]gateway.Listed, 0, len(models))
	for n := range models {
		m, s := &models[n], &seen[n]
		l := gateway.Listed{
			Name: m.Name, Device: engine.Device(m.Device), Role: m.role(), State: string(s.Phase), Created: m.created,
			Info: engine.Info{Context: m.perSlot()}, Failed: !m.here() || s.Phase == pool.Failed, Waiting: s.Waiting,
			Elsewhere: m.elsewhere(), Wait: s.Wait,
		}
		if i := s.Instance; i != nil {
			l.Backend = i.Backend()
			if s.Slots > 0 {
				l.Load = min(1, float64(s.Busy)/float64(s.Slots))
			}
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
