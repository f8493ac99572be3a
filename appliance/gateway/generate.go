package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"onebit/engine"
	"onebit/engine/wire"
	"onebit/engine/wire/prefix"
)

// body reads a request's body, within the limits of size and time. The bytes are kept, so that the request can be sent
// more than once.
func (g *Gateway) body(w *reply, r *http.Request) ([]byte, error) {
	limit := g.cfg.Limits.Body
	if limit > 0 && r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit} // before the client is asked to send it
	}
	control := http.NewResponseController(w)
	if upload := g.cfg.Limits.Upload; upload > 0 {
		// a writer that knows no deadlines is a test's
		_ = control.SetReadDeadline(time.Now().Add(upload))
		defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	}
	in := io.Reader(r.Body)
	if limit > 0 {
		in = http.MaxBytesReader(w.ResponseWriter, r.Body, limit)
	}
	b, err := io.ReadAll(in)
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	return b, nil
}

// deadline gives a request its time limit.
func (g *Gateway) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if g.cfg.Limits.Request <= 0 {
		return context.WithCancel(ctx)
	}
	limit := &engine.TimeoutError{Timer: "one request", Limit: g.cfg.Limits.Request}
	return context.WithTimeoutCause(ctx, limit.Limit, limit)
}

// generate answers the routes that make something: text, vectors, scores.
func (g *Gateway) generate(kind engine.Kind, parse func([]byte) (*engine.Request, error)) handler {
	return func(w *reply, r *http.Request) error {
		if g.cfg.Fleet == nil {
			if _, err := g.only(kind); err != nil {
				return err
			}
		}
		ctx, cancel := g.deadline(r.Context())
		defer cancel()
		body, err := g.body(w, r)
		if err != nil {
			return err
		}
		req, err := parse(body)
		if err != nil {
			return err
		}
		if req.Raw, err = g.media(req.Raw); err != nil {
			return err
		}
		req.ID = w.id
		w.streamed, w.operation = req.Stream, operation(kind)
		if g.cfg.Fleet == nil {
			return g.onModel(ctx, w, r, req, func(ctx context.Context, l *lease, req *engine.Request) error { return g.answer(ctx, w, l, req) })
		}
		return g.onFleet(ctx, w, r, asked{req: req, body: body})
	}
}

// onFleet answers a request on a model of the fleet.
func (g *Gateway) onFleet(ctx context.Context, w *reply, r *http.Request, a asked) (err error) {
	if a.req.Kind == engine.Chat {
		if a.want, err = g.wanted(ctx, r.Header, a.body); err != nil {
			return err
		}
	}
	if a.req.Raw, err = wire.Strict(a.req.Kind, a.req.Raw); err != nil {
		return err
	}
	c, err := g.choose(ctx, w, r, a)
	if err != nil {
		return err
	}
	return g.onChosen(ctx, w, canonical(r.URL.Path), c.req.Raw, c, func(ctx context.Context, l *lease, req *engine.Request, found *Found) error {
		req, err := g.inform(ctx, w, l.server, req, found)
		if err != nil {
			l.release()
			return err
		}
		return g.answer(ctx, w, l, req)
	})
}

// onChosen runs a request on the model that was chosen for it, or on the next that its policy named, unless the policy turns it
// away. answer gets a place there, which it has to release, the request as that model gets it, and what was found in documents.
func (g *Gateway) onChosen(ctx context.Context, w *reply, route string, body []byte, c chosen,
	answer func(context.Context, *lease, *engine.Request, *Found) error,
) error {
	return g.use(ctx, w, Use{Endpoint: route, Model: c.name}, body, func(ctx context.Context) error {
		if c.refusal != nil {
			return refusedByPolicy(c.refusal)
		}
		found, err := g.lookUp(ctx, c.want, c.req.Raw)
		if err != nil {
			return err
		}
		return g.anywhere(ctx, w, c, func(ctx, wait context.Context, p place) error {
			l, err := g.fromFleet(wait, w, wish(p.name, p.req))
			if err != nil {
				return err
			}
			c.served(string(l.server.Device))
			return answer(ctx, l, p.req, found.again())
		})
	})
}

// operation names a kind of request as telemetry does.
func operation(kind engine.Kind) string {
	switch kind {
	case engine.Completion:
		return "text_completion"
	case engine.Embedding:
		return "embeddings"
	case engine.Rerank:
		return "rerank"
	case engine.Decision, engine.SystemOne:
		return "decisions"
	}
	return "chat"
}

// answer runs a request where it has a place, and gives that up afterwards.
func (g *Gateway) answer(ctx context.Context, w *reply, l *lease, req *engine.Request) (err error) {
	defer l.release()
	w.model, w.device = l.server.Name, l.server.Device
	if req.Stream {
		return g.stream(ctx, w, l, req)
	}
	var text int // tokens of an answer in words, at a guess
	w.usage, err = g.attempt(ctx, l, req, func(c engine.Chunk) error {
		switch req.Kind {
		case engine.Embedding, engine.Rerank:
		case engine.Decision, engine.SystemOne:
			var err error
			if c.Raw, err = decisions(w, l.server, req, c.Raw); err != nil {
				return err
			}
		default:
			text = wire.GuessTokens(c.Raw)
		}
		raw := wire.AppendRenamed(make([]byte, 0, len(c.Raw)+len(l.server.quoted)+1), c.Raw, l.server.quoted)
		if w.scan != nil {
			raw = annotated(raw, w.scan)
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Length", strconv.Itoa(len(raw)))
		w.reused(c.Reuse, false)
		_, err := w.Write(raw)
		return err
	})
	// a server that does not count is not for nothing, nor is an answer that nobody waited for
	if g.cfg.Fleet != nil && w.usage == (engine.Usage{}) && (err == nil || l.asked && ctx.Err() != nil) {
		w.usage = engine.Usage{Prompt: wire.GuessTokens(req.Raw), Completion: text}
	}
	return err
}

// reused says what came of keeping the state of prompts, in the server's own count, before the first byte. Of a stream
// nobody knows yet what will be kept: its last event says that.
func (w *reply) reused(r *engine.Reuse, stream bool) {
	if r == nil {
		return
	}
	word, kept := "miss", ""
	if r.Hit() {
		word = "hit"
	}
	if !stream {
		kept = fmt.Sprintf(" kept=%d", r.Kept)
	}
	w.Header().Set("X-1bit-Cache", fmt.Sprintf("%s tokens=%d%s steady=%d", word, r.Tokens, kept, r.Steady))
	if why := w.Header().Get(whyHeader); w.expects && why != "" && r.Hit() {
		w.Header().Set(whyHeader, why+"; cached="+strconv.Itoa(r.Tokens))
	}
	w.expects = false
}

// stream answers with server-sent events.
func (g *Gateway) stream(ctx context.Context, w *reply, l *lease, req *engine.Request) error {
	s := newStream(w, l.server.quoted, g.cfg.Limits)
	s.response, s.relayed = req.Kind == engine.Response, &g.cfg.Metrics.Events
	defer s.stop()
	count := &counting{}
	emit := func(c engine.Chunk) error {
		s.reused(c.Reuse)
		return s.emit(c)
	}
	if w.scan != nil {
		emit = annotating(w.scan, emit)
	}
	if g.cfg.Fleet != nil {
		req, emit = count.over(req, l.server.Device, emit)
	}
	usage, err := g.attempt(ctx, l, req, emit)
	w.usage = count.took(usage, req)
	if err == nil {
		return s.done()
	}
	if !gone(ctx, err) {
		s.fail(g.problem(w, err))
	}
	return err
}

// attempt runs a request on a backend. A backend that goes away before it has emitted anything gives the request back:
// it is sent once more, to where there is a place then, since it may have died of something else. A second death is
// taken as the request's own doing.
func (g *Gateway) attempt(ctx context.Context, l *lease, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	for lost := 0; ; {
		if err := g.ready(ctx, l.server); err != nil {
			return engine.Usage{}, err
		}
		emitted := false
		l.asked = true
		out := l.server.outgoing(req)
		out.Scope = g.scope(ctx)
		if g.cfg.Fleet == nil { // a fleet's models see to it themselves
			out = g.steady(out)
		}
		taken := func(c engine.Chunk) error {
			emitted = true
			return emit(c)
		}
		var watch stopwatch
		timed := g.cfg.Fleet != nil && (req.Kind == engine.Chat || req.Kind == engine.Completion)
		if timed {
			taken = watch.over(taken)
		}
		usage, err := l.server.Backend.Generate(ctx, out, taken)
		if timed && err == nil {
			g.rates.note(l.server.Name, watch.rate(req.Stream, usage))
		}
		// unavailable: it went down between the two calls, and has not seen the request
		_, unavailable := errors.AsType[*engine.UnavailableError](err)
		again := unavailable || errors.Is(err, engine.ErrLost)
		if again {
			lost++
		}
		if emitted || ctx.Err() != nil || !again || lost == 2 {
			return usage, missing(req, err)
		}
		l.again()
	}
}

// steady leaves out of a request what agents change in each of theirs, so that a server finds the rest in its cache, and the
// marks that say what to keep: nobody here keeps anything but the server's own cache.
func (g *Gateway) steady(req *engine.Request) *engine.Request {
	steady, n := prefix.Steady(prefix.Unmarked(req))
	if n > 0 {
		g.cfg.Log.Debug("left out of a system prompt what its client changes with each request", "bytes", n, "id", req.ID)
	}
	return steady
}

// missing turns a backend's word that it does not know a route into what is said where no backend has it.
func missing(req *engine.Request, err error) error {
	refused, ok := errors.AsType[*engine.StatusError](err)
	if ok && isDecision(req.Kind) && wire.FromBackend(refused).Param != "" {
		return err // it has the route, and not what a member of the request asks for, such as images
	}
	if isDecision(req.Kind) && (ok && unknownRoute(refused.Status) || errors.Is(err, errors.ErrUnsupported)) {
		return noDecisions(refused)
	}
	if ok && req.Kind != engine.Chat && req.Kind != engine.Completion && unknownRoute(refused.Status) {
		return errors.ErrUnsupported
	}
	return err
}

// unknownRoute reports whether a backend's status says that it does not have a route.
func unknownRoute(status int) bool {
	return status == http.StatusNotFound || status == http.StatusNotImplemented
}

// ready waits for a backend, but not for its first start: whoever starts the program watches /health.
func (g *Gateway) ready(ctx context.Context, s *server) error {
	if s.Backend.State() == engine.Loading {
		return &engine.UnavailableError{Reason: "model is loading", RetryAfter: 2 * time.Second}
	}
	if g.cfg.Limits.Ready <= 0 {
		return s.Backend.Ready(ctx)
	}
	limit := &engine.TimeoutError{Timer: "waiting for the " + s.Backend.Name() + " backend", Limit: g.cfg.Limits.Ready}
	wait, cancel := context.WithTimeoutCause(ctx, limit.Limit, limit)
	defer cancel()
	err := s.Backend.Ready(wait)
	if errors.Is(err, limit) {
		return &engine.UnavailableError{Reason: limit.Error() + "; it is still starting", RetryAfter: 10 * time.Second}
	}
	return err
}
