package gateway

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

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

	// Settle is told what has served a request that Decide has answered with o.
	Settle(ctx context.Context, o extensions.Outcome, s extensions.Served)
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
	_, err := g.cfg.Fleet.Resolve(Chat, auto) // a list of all would look at each
	return err == nil
}

// offer is what the box may choose among.
type offer struct {
	candidates []abi.Candidate
	free       []string // of those, the ones that are idle
	wait       map[string]time.Duration
}

// candidates are the models that may serve a request of whoever the context is of.
func (g *Gateway) candidates(ctx context.Context) (o offer) {
	seen := g.seen(ctx)
	o.candidates, o.free = make([]abi.Candidate, 0, len(seen)), make([]string, 0, len(seen))
	for _, l := range seen {
		if l.Role != Chat || !l.chosen() {
			continue
		}
		fast := g.rates.get(l.Name)
		o.candidates = append(o.candidates, abi.Candidate{
			ID: l.Name, Backend: string(l.Device), Device: string(l.Device), Model: l.Name, Context: l.Info.Context, Healthy: !l.Failed,
			Queue: l.Waiting, Load: l.Load, PromptS: fast.prompt, DecodeS: fast.answer,
		})
		if l.Backend != nil && l.Waiting == 0 && l.Load < 1 {
			o.free = append(o.free, l.Name)
		}
		if l.Wait > 0 {
			if o.wait == nil {
				o.wait = map[string]time.Duration{}
			}
			o.wait[l.Name] = l.Wait
		}
	}
	return o
}

// asked is a request on its way to a model.
type asked struct {
	req  *engine.Request // for the backend
	body []byte          // what the client sent
	api  string          // in which form; empty for that of req

	named string    // the model, where the client's word is not req's
	want  *Passages // of documents; nil for nothing
}

// chosen is where a request runs, and as what.
type chosen struct {
	name    string
	req     *engine.Request
	want    *Passages
	refusal *extensions.Refusal // it is turned away
	served  func(device string) // is told where it runs

	rest     []string                           // models that are tried after it
	patience time.Duration                      // how long it is waited for while another is free; 0: as long as for any
	why      string                             // of the choice, as a header says it
	as       func(model string) *engine.Request // the request as a model gets it
	settle   func(context.Context, extensions.Served)
}

// whyHeader says why a model was chosen.
const whyHeader = "X-1bit-Route-Why"

// choose finds the model of a request: the one that it names, or the one that the box decides on.
func (g *Gateway) choose(ctx context.Context, w *reply, r *http.Request, a asked) (chosen, error) {
	if g.leftToUs(a.req.Kind, a.req.Model) {
		return g.decide(ctx, w, r, a)
	}
	name, err := g.resolve(ctx, a.req.Kind, a.req.Model)
	return chosen{
		name: name, req: a.req, want: a.want, served: func(string) {},
		as: func(string) *engine.Request { return a.req }, settle: func(context.Context, extensions.Served) {},
	}, err
}

// decide chooses for a request that leaves it to the box.
func (g *Gateway) decide(ctx context.Context, w *reply, r *http.Request, a asked) (chosen, error) {
	offered := g.candidates(ctx)
	from := g.mayBeSent(offered.candidates, a.want)
	if len(from) == 0 {
		_, err := g.resolve(ctx, a.req.Kind, "")
		return chosen{}, cmp.Or(err, error(&NoModelError{}))
	}
	in := extensions.Input{
		ID: w.own, API: cmp.Or(a.api, a.req.Kind.String()), Model: cmp.Or(a.named, a.req.Model, auto), Header: r.Header, Stream: w.streamed, Body: a.body,
		Candidates: from, Free: offered.free, Wait: func(model string) time.Duration { return offered.wait[model] },
	}
	if g.cfg.Expect != nil {
		asked := *a.req
		asked.Scope = g.scope(ctx)
		var of func(string) int // for a known conversation nobody asks
		in.Expect = func(model string) int {
			if of == nil {
				of = g.cfg.Expect(&asked)
			}
			return of(model)
		}
	}
	o := g.cfg.Decider.Decide(ctx, in)
	var why string // what is expected of a cache is not said before the server has
	why, _, w.expects = strings.Cut(o.Why, "; cached=")
	c := chosen{name: cmp.Or(o.Candidate, from[0].ID), want: a.want, refusal: o.Refusal, patience: o.Patience, why: why}
	if len(o.Ranked) > 1 {
		c.rest = o.Ranked[1:]
	}
	c.settle = func(ctx context.Context, s extensions.Served) { g.cfg.Decider.Settle(ctx, o, s) }
	shown := "\x00" // no device
	c.served = func(device string) {
		if device == shown {
			return // it runs where it was sent
		}
		shown = device
		line := append(make([]byte, 0, 64), cmp.Or(o.Class, unclassified)...)
		line = strconv.AppendFloat(append(line, ' '), o.Confidence, 'f', 2, 64)
		w.Header().Set("X-1bit-Route", string(append(append(line, ' '), device...)))
	}
	w.Header().Set(whyHeader, why)
	for name, value := range o.Headers {
		w.Header().Set(name, value)
	}
	for i := range from {
		if from[i].ID == c.name {
			c.served(from[i].Device)
		}
	}
	if o.RAG != nil && c.want == nil {
		c.want = byPolicy(o.RAG)
	}
	c.as = func(model string) *engine.Request {
		if model == c.name && c.req != nil {
			return c.req
		}
		req := *a.req
		req.Class = engine.Class(o.Class)
		req.Raw = rewritten(a.req, model, o)
		return &req
	}
	c.req = c.as(c.name)
	return c, nil
}

// rewritten is a request's body with the model and the parameters that were decided.
func rewritten(req *engine.Request, name string, o extensions.Outcome) []byte {
	raw := req.Raw // each change makes another one
	if req.Model != "" {
		raw = wire.AppendModel(make([]byte, 0, len(raw)+len(name)+16), raw, wire.Quote(name))
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
		if l.Role == Chat && l.chosen() {
			chats++
		}
	}
	return modelObject{ID: auto, Object: "model", Owner: "1bit", Device: auto}, chats > 1 || chats == 1 && g.cfg.Decider.Decides()
}
