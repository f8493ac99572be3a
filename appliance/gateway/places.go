package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"onebit/engine"
	"onebit/engine/wire"
	"onebit/extensions"
)

// maxPlaces is at how many places a request is tried that leaves the choice to the box.
const maxPlaces = 3

// errImpatient ends the wait for a place while another one is free.
var errImpatient = errors.New("another place is free")

// place is where a request is tried.
type place struct {
	name string
	req  *engine.Request // as this place gets it
}

// anywhere runs a request at the place that was chosen for it, or, while that cannot have it and nothing was answered yet, at
// the next ones that its policy named. Where the conversation is, changes only with an answer.
func (g *Gateway) anywhere(ctx context.Context, w *reply, c chosen, work func(ctx, wait context.Context, p place) error) error {
	tries := c.places()
	var first error
	lost := 0
	for i, t := range tries {
		if i > 0 {
			w.Header().Set(whyHeader, c.why+"; failover="+header(t.name))
		}
		w.usage, w.scan, w.sent, w.documents = engine.Usage{}, nil, nil, ""
		err := g.once(ctx, c, t, work)
		if err == nil || w.status == http.StatusOK {
			c.settle(ctx, extensions.Served{Candidate: t.name, Response: w.response, Tokens: w.usage.Prompt + w.usage.Completion})
			return err
		}
		if first == nil && !errors.Is(err, errImpatient) {
			first = err
		}
		if errors.Is(err, engine.ErrLost) {
			lost++
		}
		// two models that died of a request are enough
		if w.status != 0 || ctx.Err() != nil || !elsewhere(err) || lost == 2 || len(tries) == 1 {
			return err
		}
		g.cfg.Log.Info("a request could not run where it was sent", "model", t.name, "id", w.own, "why", reason(err))
	}
	if len(tries) > 1 {
		w.Header().Set(whyHeader, c.why)
	}
	return first
}

// try is one try of a request.
type try struct {
	name     string
	patience time.Duration // 0: as long as any request
}

// places are the tries of a request. One that is impatient comes back to where it was first.
func (c chosen) places() []try {
	all := []try{{c.name, c.patience}}
	for _, name := range c.rest {
		if len(all) == maxPlaces {
			break
		}
		all = append(all, try{name: name})
	}
	if c.patience > 0 {
		all = append(all, try{name: c.name})
	}
	return all
}

// once tries a request at one place.
func (g *Gateway) once(ctx context.Context, c chosen, t try, work func(ctx, wait context.Context, p place) error) error {
	wait := ctx
	if t.patience > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeoutCause(ctx, t.patience, errImpatient)
		defer cancel()
	}
	return work(ctx, wait, place{t.name, c.as(t.name)})
}

// elsewhere reports whether an error is about a place alone, so that another one may do better.
func elsewhere(err error) bool {
	if _, ok := errors.AsType[*engine.UnavailableError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*engine.TimeoutError](err); ok {
		return true // for the model; one of the request has ended its context
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Status == http.StatusServiceUnavailable || e.Status == http.StatusInsufficientStorage || e.Code == documentsStay
	}
	return errors.Is(err, engine.ErrLost) || errors.Is(err, errImpatient)
}
