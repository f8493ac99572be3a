package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"onebit/engine"
	"onebit/engine/wire"
)

// problem is the table from errors to what a client is told.
func (g *Gateway) problem(w *reply, err error) *wire.Error {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*engine.InvalidError](err); ok {
		return wire.FromInvalid(e)
	}
	if e, ok := errors.AsType[*engine.StatusError](err); ok {
		return wire.FromBackend(e)
	}
	if e, ok := errors.AsType[*engine.UnavailableError](err); ok {
		return &wire.Error{Status: http.StatusServiceUnavailable, Type: wire.TypeUnavailable, Code: "unavailable", Message: e.Reason, RetryAfter: e.RetryAfter}
	}
	if e, ok := errors.AsType[*engine.TimeoutError](err); ok {
		return &wire.Error{Status: http.StatusGatewayTimeout, Type: wire.TypeTimeout, Code: "timeout", Message: e.Error(), NoRetry: true}
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &wire.Error{Status: http.StatusRequestEntityTooLarge, Type: wire.TypeInvalid, Code: "request_too_large", Message: fmt.Sprintf("the request body is larger than %d bytes", e.Limit)}
	}
	if e, ok := errors.AsType[*NoModelError](err); ok {
		return &wire.Error{Status: http.StatusNotFound, Type: wire.TypeInvalid, Param: "model", Code: "model_not_found", Message: e.Error(), NoRetry: true}
	}
	if e, ok := errors.AsType[refusal](err); ok {
		return e.Wire()
	}
	switch {
	case errors.Is(err, engine.ErrLost):
		// it was sent twice already
		return &wire.Error{Status: http.StatusBadGateway, Type: wire.TypeServer, Code: "backend_lost", Message: err.Error(), NoRetry: true}
	case errors.Is(err, errors.ErrUnsupported):
		if g.first == nil {
			return notOn(w.path, w.device)
		}
		return notOn(w.path, g.first.Device)
	case errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrEventTooLong):
		return &wire.Error{Status: http.StatusBadGateway, Type: wire.TypeServer, Code: "bad_backend_answer", Message: err.Error()}
	case errors.Is(err, errBody):
		return &wire.Error{Status: http.StatusBadRequest, Type: wire.TypeInvalid, Code: "body_not_read", Message: err.Error()}
	case errors.Is(err, context.Canceled):
		return &wire.Error{Status: http.StatusServiceUnavailable, Type: wire.TypeUnavailable, Code: "cancelled", Message: "the request was cancelled"}
	}
	message := err.Error()
	if g.cfg.Fleet != nil { // it may name folders, programs or the state of the box, which are for its log
		message = "something went wrong here; the log has more under request id " + w.own
	}
	return &wire.Error{Status: http.StatusInternalServerError, Type: wire.TypeServer, Code: "internal_error", Message: message}
}

// reason says why a request failed for those who read logs. What a client was told may quote what it wrote, and what a
// backend says may quote the prompt: neither belongs there, so those are named by their codes.
func reason(err error) string {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return strings.TrimSpace(cmp.Or(e.Code, e.Type) + " " + e.Param)
	}
	if e, ok := errors.AsType[*engine.InvalidError](err); ok {
		return strings.TrimSpace(cmp.Or(e.Code, wire.TypeInvalid) + " " + e.Param)
	}
	if e, ok := errors.AsType[*engine.StatusError](err); ok {
		return fmt.Sprintf("the backend answered %d", e.Status)
	}
	if e, ok := errors.AsType[*NoModelError](err); ok {
		return "model_not_found for the role " + string(cmp.Or(e.Role, "chat"))
	}
	if e, ok := errors.AsType[refusal](err); ok {
		return e.Wire().Code
	}
	if errors.Is(err, wire.ErrMalformed) {
		return "bad_backend_answer"
	}
	return err.Error()
}

// refusal is an error that knows what a client is told.
type refusal interface {
	error
	Wire() *wire.Error
}

// notOn says that a device does not have a route.
func notOn(path string, d engine.Device) *wire.Error {
	if d == engine.Elsewhere {
		return &wire.Error{Status: http.StatusNotImplemented, Type: wire.TypeUnsupported, Code: "not_implemented", NoRetry: true,
			Message: path + " is not available for a model that another server runs"}
	}
	return &wire.Error{Status: http.StatusNotImplemented, Type: wire.TypeUnsupported, Code: "not_implemented", NoRetry: true,
		Message: fmt.Sprintf("%s is not available on --device %s", path, d)}
}

// errBody says that a request's body did not arrive.
var errBody = errors.New("the request body could not be read")
