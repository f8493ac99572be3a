package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"onebit/appliance/egress"
	"onebit/engine"
	"onebit/engine/wire"
)

// withheld are members that stay here: they tell who asks, ask the other server to keep something or to charge
// otherwise, or are about our own servers' memory.
var withheld = []string{
	"background", "cache_prompt", "documents", "id_slot", "metadata", "previous_response_id", "prompt_cache_key",
	"return_progress", "safety_identifier", "service_tier", "store", "timings_per_token", "user",
}

// Generate sends the request and emits what comes back; see engine.Backend. Beside the errors named there, a server that
// refuses our key, is busy or cannot be reached is an *engine.UnavailableError.
func (r *Remote) Generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	if err := r.Ready(ctx); err != nil {
		return engine.Usage{}, err
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return engine.Usage{}, context.Cause(ctx)
	}
	if err := r.Ready(ctx); err != nil { // the server may have turned another one away meanwhile
		return engine.Usage{}, err
	}
	out := *req
	out.ID, out.Model, out.Scope = "", r.cfg.Model, ""
	out.Raw = wire.AppendModel(nil, wire.Without(req.Raw, func(name string) bool { return slices.Contains(withheld, name) }), wire.Quote(r.cfg.Model))
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	clock := newIdle(r.cfg.Timeout, r.cfg.Name, cancel)
	defer clock.Stop()
	var emitErr error
	usage, err := r.ask.Generate(running, &out, func(c engine.Chunk) error {
		emitErr = clock.during(func() error { return emit(c) })
		return emitErr
	})
	switch {
	case err == nil:
		r.answered()
		return usage, nil
	case emitErr != nil, ctx.Err() != nil:
		return usage, err
	}
	return usage, r.failed(req.Kind, err)
}

// failed turns what a server did into what is said of it here.
func (r *Remote) failed(kind engine.Kind, err error) error {
	if refused, ok := errors.AsType[*engine.StatusError](err); ok {
		return r.refused(kind, refused)
	}
	if _, ok := errors.AsType[*engine.TimeoutError](err); ok {
		r.suspect()
		return err
	}
	if long, ok := errors.AsType[*egress.TooLongError](err); ok {
		r.note(long.Error())
		return fmt.Errorf("the answer is too long: %w", wire.ErrMalformed)
	}
	switch {
	case errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrEventTooLong):
		r.note(r.host + " answers with what is not understood: " + err.Error())
		return fmt.Errorf("what the other server answers is not understood: %w", wire.ErrMalformed)
	case errors.Is(err, errors.ErrUnsupported):
		return err
	case unsent(err):
		r.suspect()
		r.note(r.host + " does not answer: " + err.Error())
		return r.unavailable("does not answer at the moment; an admin sees why", usualPause)
	case errors.Is(err, engine.ErrLost):
		r.suspect()
		r.cfg.Log.Warn("a remote model broke off", "model", r.cfg.Name, "server", r.host, "error", err)
		return engine.ErrLost // which addresses there are is ours to know
	}
	return err
}

// maxSaid is how much of a server's refusal is passed on, in bytes.
const maxSaid = 16 << 10

// refused judges a refusal. What is about the request is for the client; what is about us and the server is for an admin.
func (r *Remote) refused(kind engine.Kind, e *engine.StatusError) error {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusProxyAuthRequired:
		r.suspect()
		r.note(fmt.Sprintf("%s refuses the key or what is asked with it (%d)", r.host, e.Status))
		return r.unavailable("cannot be used at the moment; an admin sees why", maxPause)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return r.unavailable("is busy where it runs", r.pause(e.RetryAfter))
	case http.StatusBadGateway, http.StatusGatewayTimeout: // what is behind it is away
		r.suspect()
		r.note(fmt.Sprintf("%s answered %d", r.host, e.Status))
		return r.unavailable("cannot be used at the moment; an admin sees why", r.pause(e.RetryAfter))
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusInsufficientStorage:
		r.note(fmt.Sprintf("%s answered %d", r.host, e.Status))
		return r.unavailable("cannot be used at the moment; an admin sees why", min(max(e.RetryAfter, usualPause), maxPause))
	case http.StatusLoopDetected:
		r.note(fmt.Sprintf("asking %s leads back to this box, or through too many", r.host))
		return &wire.Error{Status: http.StatusLoopDetected, Type: wire.TypeServer, Code: "loop_detected", NoRetry: true,
			Message: "the model " + r.cfg.Name + " leads back to this box, or through too many; an admin sees which"}
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return r.absent(kind, e)
	}
	if e.Status >= 500 {
		r.suspect()
		r.note(fmt.Sprintf("%s answered %d", r.host, e.Status))
		return r.wrong(http.StatusBadGateway, fmt.Sprintf("the server that runs the model %s failed (%d)", r.cfg.Name, e.Status))
	}
	if len(e.Body) > maxSaid || !json.Valid(bytes.TrimSpace(e.Body)) {
		return r.wrong(e.Status, fmt.Sprintf("the server that runs the model %s refuses the request (%d)", r.cfg.Name, e.Status))
	}
	return e
}

// absent judges a 404 and its like: the server has no such model, which an admin should know, or no such operation.
func (r *Remote) absent(kind engine.Kind, e *engine.StatusError) error {
	said := wire.FromBackend(e)
	if kind == engine.Chat || said.Code == "model_not_found" || said.Param == "model" {
		r.note(fmt.Sprintf("%s has no model %q, or no API at this address (%d)", r.host, r.cfg.Model, e.Status))
		return r.unavailable("cannot be used at the moment; an admin sees why", maxPause)
	}
	if kind == engine.Decision || kind == engine.SystemOne {
		return &engine.StatusError{Status: http.StatusNotImplemented, Body: object("it has no such operation")}
	}
	return errors.ErrUnsupported
}

// wrong is a refusal in our own words.
func (r *Remote) wrong(status int, message string) error {
	return &engine.StatusError{Status: status, Body: object(message)}
}

func object(message string) []byte {
	return (&wire.Error{Message: message, Type: wire.TypeServer, Code: "remote_error"}).Append(nil)
}
