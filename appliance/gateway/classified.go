package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"onebit/engine"
	"onebit/extensions"
	"onebit/extensions/abi"
)

// classified reports whether the decider chooses the backend of a request of this kind.
func (g *Gateway) classified(kind engine.Kind) bool {
	if g.cfg.Mode != Classified {
		return false
	}
	return kind == engine.Chat || kind == engine.Completion || kind == engine.Response
}

// chats are the backends of the model.
func (g *Gateway) chats() []*server {
	switch g.cfg.Mode {
	case Single:
		return g.servers[:1]
	case Classified:
		return g.servers[:1+len(g.cfg.Others)]
	}
	return g.servers[:2]
}

// having are the backends of the model that have an operation.
func (g *Gateway) having(kind engine.Kind) []*server {
	var all []*server
	for _, s := range g.chats() {
		if kind != engine.Response || hasExtras(s.Device) {
			all = append(all, s)
		}
	}
	return all
}

// byClass runs a request where the decider says, or at the next backend of its order while that cannot have it, and says so in a
// header once it can go there.
func (g *Gateway) byClass(ctx context.Context, w *reply, r *http.Request, req *engine.Request, answer answering) error {
	may := g.having(req.Kind)
	o := g.cfg.Decider.Decide(ctx, extensions.Input{
		ID: w.own, API: req.Kind.String(), Model: cmp.Or(req.Model, auto), Header: r.Header, Stream: req.Stream, Body: req.Raw, Candidates: g.open(may),
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if o.Refusal != nil {
		return refusedByPolicy(o.Refusal)
	}
	of := func(label string) *server {
		if i := slices.IndexFunc(may, func(s *server) bool { return s.label == label }); i >= 0 {
			return may[i]
		}
		return nil
	}
	to := cmp.Or(of(o.Candidate), may[0])
	c := chosen{
		name: to.label, why: o.Why, patience: o.Patience, as: func(string) *engine.Request { return req },
		rest:   slices.DeleteFunc(slices.Clone(o.Ranked), func(label string) bool { return label == to.label || of(label) == nil }),
		settle: func(ctx context.Context, s extensions.Served) { g.cfg.Decider.Settle(ctx, o, s) },
	}
	w.Header().Set(whyHeader, o.Why)
	for name, value := range o.Headers {
		w.Header().Set(name, value)
	}
	return g.anywhere(ctx, w, c, func(ctx, wait context.Context, p place) error {
		to := of(p.name)
		l := g.places.reserve(func() *server { return to })
		begin := time.Now()
		err := g.ready(wait, to)
		w.waited += time.Since(begin)
		if err != nil {
			l.release()
			return err
		}
		class := cmp.Or(o.Class, unclassified)
		w.Header().Set("X-1bit-Route", fmt.Sprintf("%s %.2f %s", class, o.Confidence, to.Device))
		if !o.Kept {
			g.cfg.Log.Info("chose a backend", "class", class, "confidence", fmt.Sprintf("%.2f", o.Confidence), "device", to.Device, "why", o.Why)
		}
		return answer(ctx, l, p.req)
	})
}

// open are the backends as the decider sees them. One that was never started can be had, and has nobody on it.
func (g *Gateway) open(may []*server) []abi.Candidate {
	g.places.mu.Lock()
	defer g.places.mu.Unlock()
	all := make([]abi.Candidate, len(may))
	for i, s := range may {
		slots := s.Backend.Slots()
		all[i] = abi.Candidate{
			ID: s.label, Backend: string(s.Device), Device: string(s.Device), Model: s.Name, Queue: max(0, s.held-slots), Load: min(1, float64(s.held)/float64(slots)),
		}
		if b, ok := s.Backend.(informer); ok {
			all[i].Context = b.Info().Context
		}
		switch s.Backend.State() {
		case engine.Ready, engine.Loading:
			all[i].Healthy = true
		}
	}
	return all
}
