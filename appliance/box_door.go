package main

import (
	"context"
	"net/http"
	"strings"
	"time"

	"onebit/appliance/auth"
	"onebit/appliance/gateway"
	"onebit/store"
)

// door lets people and programs into the data plane, and writes down what they used.
type door struct{ b *box }

// Enter asks who it is. Whether the box lives is nobody's secret.
func (d door) Enter(r *http.Request, route string) (context.Context, error) {
	if route == "/health" {
		return r.Context(), nil
	}
	p, err := d.b.auth.Identify(r.Context(), r)
	if err != nil {
		return nil, err
	}
	ctx, err := d.b.arrived(r)
	if err != nil {
		return nil, err
	}
	// what the program counts of everybody together is not for everybody
	if route == "/metrics" || strings.HasPrefix(route, "/upstream/") {
		if err := p.NeedAdmin(); err != nil {
			return nil, err
		}
	}
	return auth.With(ctx, p), nil
}

// Begin grants one use of a model.
func (d door) Begin(ctx context.Context, u gateway.Use) (gateway.Grant, error) {
	p := auth.From(ctx)
	g, err := d.b.auth.Begin(ctx, p, auth.Use{Endpoint: u.Endpoint, Model: u.Model})
	if err != nil {
		return gateway.Grant{}, err
	}
	privacy := d.b.privacy(p)
	return gateway.Grant{
		Context: g.Context(),
		Keep:    privacy == store.PrivacyFull,
		End: func(o gateway.Outcome) {
			g.End(auth.Usage{Prompt: int64(o.Usage.Prompt), Cached: int64(o.Usage.Cached), Completion: int64(o.Usage.Completion), Failed: o.Status >= 400})
			d.b.note(p, privacy, o)
		},
	}, nil
}

// Sees reports whether a model is within the scope of who asks.
func (d door) Sees(ctx context.Context, model string) bool { return auth.From(ctx).MayUse(model) }

// Scope is a key's, or a person's without one.
func (d door) Scope(ctx context.Context) string { return scopeOf(ctx) }

// privacy is what the request log keeps of somebody's requests: what the box keeps, or less where their key says so.
func (b *box) privacy(p *auth.Principal) store.Privacy {
	of := map[store.Privacy]int{store.PrivacyNone: 0, store.PrivacyMetadata: 1, store.PrivacyFull: 2}
	least := store.Privacy(b.now.Load().cfg.Log.Requests)
	if p.Key != nil && of[p.Key.Privacy] < of[least] {
		return p.Key.Privacy
	}
	return least
}

// note writes a request into the request log.
func (b *box) note(p *auth.Principal, privacy store.Privacy, o gateway.Outcome) {
	if privacy == store.PrivacyNone {
		return
	}
	row := store.RequestRow{
		ID: o.ID, Time: o.Begin, Key: p.Actor.Key, Person: p.Person, Endpoint: o.Endpoint, Model: o.Model, Backend: string(o.Device),
		Status: o.Status, Milliseconds: o.Took.Milliseconds(), TTFT: o.First.Milliseconds(),
		Prompt: int64(o.Usage.Prompt), Cached: int64(o.Usage.Cached), Completion: int64(o.Usage.Completion),
		Route: added(o.Added), Error: o.Reason, Privacy: privacy, PromptText: o.Request, AnswerText: o.Answer,
		Expires: o.Begin.Add(b.now.Load().cfg.Log.Keep),
	}
	if privacy == store.PrivacyFull {
		row.Expires = o.Begin.Add(min(b.now.Load().cfg.Log.Keep, fullLife))
	}
	b.store.AddRequest(row)
}

// added says in the request log which documents a chat was given.
func added(what string) string {
	if what == "" {
		return ""
	}
	return "documents " + what
}

// fullLife is how long prompts and answers are kept at most.
const fullLife = 7 * 24 * time.Hour
