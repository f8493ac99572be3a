package gateway

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"onebit/engine"
	"onebit/engine/wire"
	"onebit/extensions"
	"onebit/extensions/abi"
)

// Decider says where requests run that leave it to the box.
type Decider interface {
	// Decides reports whether anybody has a say but the order of the models.
	Decides() bool

	// Decide chooses among the candidates, for whoever the context is of. It always answers.
	Decide(ctx context.Context, in extensions.Input) extensions.Outcome
}

// auto is the name of no model: the box chooses one.
const auto = "auto"

// unclassified is the class in the header where nobody said one.
const unclassified = "none"

// leftToUs reports whether the box chooses the model of a request: it names none, or auto where no model is called so.
func (g *Gateway) leftToUs(kind engine.Kind, name string) bool {
	if g.cfg.Decider == nil || roleOf(kind) != Chat {
		return false
	}
	return name == "" || name == auto && !g.taken()
}

// taken reports whether a model is called auto.
func (g *Gateway) taken() bool {
	return slices.ContainsFunc(g.cfg.Fleet.List(), func(l Listed) bool { return l.Name == auto })
}

// candidates are the models that may serve a request of whoever the context is of.
func (g *Gateway) candidates(ctx context.Context) []abi.Candidate {
	var all []abi.Candidate
	for _, l := range g.seen(ctx) {
		if l.Role == Chat {
			all = append(all, abi.Candidate{
				ID: l.Name, Backend: string(l.Device), Device: string(l.Device), Model: l.Name, Context: l.Info.Context, Healthy: !l.Failed, Queue: l.Waiting,
			})
		}
	}
	return all
}

// decided answers a request whose model the box chooses. Body is what the client sent.
func (g *Gateway) decided(ctx context.Context, w *reply, r *http.Request, req *engine.Request, body []byte) error {
	from := g.candidates(ctx)
	if len(from) == 0 {
		_, err := g.resolve(ctx, req.Kind, "")
		return cmp.Or(err, error(&NoModelError{}))
	}
	o := g.cfg.Decider.Decide(ctx, extensions.Input{
		ID: w.own, API: req.Kind.String(), Model: cmp.Or(req.Model, auto), Header: r.Header, Stream: req.Stream, Body: body, Candidates: from,
	})
	name := cmp.Or(o.Candidate, from[0].ID)
	route := func(device string) {
		w.Header().Set("X-1bit-Route", fmt.Sprintf("%s %.2f %s", cmp.Or(o.Class, unclassified), o.Confidence, device))
	}
	w.Header().Set("X-1bit-Route-Why", o.Why)
	for name, value := range o.Headers {
		w.Header().Set(name, value)
	}
	for _, c := range from {
		if c.ID == name {
			route(c.Device)
		}
	}
	chosen := *req
	chosen.Class = engine.Class(o.Class)
	chosen.Raw = rewritten(req, name, o)
	return g.use(ctx, w, Use{Endpoint: canonical(r.URL.Path), Model: name}, chosen.Raw, func(ctx context.Context) error {
		if no := o.Refusal; no != nil {
			return refusedByPolicy(no)
		}
		l, err := g.fromFleet(ctx, w, name)
		if err != nil {
			return err
		}
		route(string(l.server.Device))
		return g.answer(ctx, w, l, &chosen)
	})
}

// rewritten is a request's body with the model and the parameters that were decided.
func rewritten(req *engine.Request, name string, o extensions.Outcome) []byte {
	raw := bytes.Clone(req.Raw)
	if req.Model != "" {
		raw = wire.AppendModel(nil, raw, wire.Quote(name))
	}
	for _, param := range slices.Sorted(maps.Keys(o.Params)) {
		member := param
		if param == "max_tokens" {
			switch {
			case req.Kind == engine.Response:
				member = "max_output_tokens"
			case wire.Has(raw, "max_completion_tokens"):
				member = "max_completion_tokens"
			}
		}
		raw = wire.AppendMember(nil, raw, member, o.Params[param])
	}
	return raw
}

// refusedByPolicy is what a client is told that a module turns away.
func refusedByPolicy(no *extensions.Refusal) error {
	e := &wire.Error{Status: no.Status, Type: wire.TypePermission, Code: no.Code, Message: no.Message, NoRetry: true}
	switch {
	case no.Status >= http.StatusInternalServerError:
		e.Type, e.NoRetry = wire.TypeUnavailable, false
	case no.Status == http.StatusBadRequest:
		e.Type = wire.TypeInvalid
	case no.Status == http.StatusTooManyRequests:
		e.NoRetry = false
	}
	return e
}

// choosing is the entry of the list of models that stands for the box's choice; false where there is nothing to choose.
func (g *Gateway) choosing(seen []Listed) (modelObject, bool) {
	if g.cfg.Decider == nil || g.taken() {
		return modelObject{}, false
	}
	chats := 0
	for _, l := range seen {
		if l.Role == Chat {
			chats++
		}
	}
	return modelObject{ID: auto, Object: "model", Owner: "1bit", Device: auto}, chats > 1 || chats == 1 && g.cfg.Decider.Decides()
}
