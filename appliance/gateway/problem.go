package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

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
	if e, ok := errors.AsType[*ErrNoModel](err); ok {
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
	return &wire.Error{Status: http.StatusInternalServerError, Type: wire.TypeServer, Code: "internal_error", Message: err.Error()}
}

// refusal is an error that knows what a client is told.
type refusal interface {
	error
	Wire() *wire.Error
}

// notOn says that a device does not have a route.
func notOn(path string, d engine.Device) *wire.Error {
	return &wire.Error{Status: http.StatusNotImplemented, Type: wire.TypeUnsupported, Code: "not_implemented", NoRetry: true,
		Message: fmt.Sprintf("%s is not available on --device %s", path, d)}
}

// errBody says that a request's body did not arrive.
var errBody = errors.New("the request body could not be read")
