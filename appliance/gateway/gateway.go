// Package gateway is the data plane: the public HTTP API. It checks what comes in, hands it to a backend, and writes
// what comes back, under the name that the model is served by. Handlers return errors; problem maps each to a status
// and the one error object.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"onebit/appliance/config"
	"onebit/engine"
	"onebit/engine/wire"
)

// Model is what is served.
type Model struct {
	Name    string        // in requests and answers
	Device  engine.Device // where it runs
	Why     string        // and for what reason
	Created time.Time     // of the model file
	Backend engine.Backend
}

// Config is what a Gateway works with.
type Config struct {
	Model  Model
	Limits config.Limits
	Log    *slog.Logger
}

// Gateway answers the API's requests. It implements http.Handler.
type Gateway struct {
	cfg    Config
	quoted []byte // the model's name as a JSON string
}

// New returns a Gateway. It starts nothing.
func New(cfg Config) (*Gateway, error) {
	switch {
	case cfg.Model.Backend == nil:
		return nil, errors.New("a gateway needs a backend")
	case cfg.Model.Name == "":
		return nil, errors.New("a gateway needs the name of its model")
	case cfg.Log == nil:
		return nil, errors.New("a gateway needs a log")
	}
	return &Gateway{cfg: cfg, quoted: wire.Quote(cfg.Model.Name)}, nil
}

// handler answers one request, or returns why it cannot. Once it has written it may still return an error, for the log.
type handler func(w *reply, r *http.Request) error

// canonical maps the paths that clients use by mistake to one: a missing or doubled /v1 and final slashes.
func canonical(path string) string {
	for strings.HasPrefix(path, "/v1/") {
		path = path[len("/v1"):]
	}
	if trimmed := strings.TrimRight(path, "/"); trimmed != "" {
		return trimmed
	}
	return "/"
}

// route returns what answers a canonical path, and the methods that it knows, the first of which is the usual one.
func (g *Gateway) route(path string) (h handler, methods []string) {
	get, post := []string{http.MethodGet, http.MethodHead}, []string{http.MethodPost}
	switch path {
	case "/health":
		return g.health, get
	case "/models":
		return g.models, get
	case "/chat/completions":
		return g.generate(wire.ParseChat), post
	case "/completions":
		return g.generate(wire.ParseCompletion), post
	case "/tokenize", "/detokenize", "/apply-template", "/completion":
		return g.relay, post
	case "/props", "/slots", "/metrics":
		return g.relay, get
	case "/embeddings", "/rerank", "/reranking", "/responses":
		return unsupported, post
	}
	switch {
	case strings.HasPrefix(path, "/slots/"):
		return g.relay, post
	case strings.HasPrefix(path, "/models/"):
		return g.model, get
	}
	return nil, nil
}

// ServeHTTP answers one request, writes one line about it to the log, and survives a handler's panic.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	out := &reply{ResponseWriter: w, path: r.URL.Path, id: requestID(r.Header.Get("X-Request-Id"))}
	out.Header().Set("X-Request-Id", out.id)
	defer func() {
		if p := recover(); p != nil {
			g.panicked(out, p)
		}
		g.access(r, out, time.Since(begin))
		if out.broken {
			panic(http.ErrAbortHandler) // closes the connection: what has come is not whole
		}
	}()
	h, methods := g.route(canonical(r.URL.Path))
	out.err = dispatch(h, methods, out, r)
	if out.err != nil && out.status == 0 && !gone(r.Context(), out.err) {
		g.problem(out, out.err).Write(out)
	}
}

// dispatch calls h when there is one and it knows the method.
func dispatch(h handler, methods []string, w *reply, r *http.Request) error {
	if h == nil {
		return &wire.Error{Status: http.StatusNotFound, Type: "not_found_error", Code: "unknown_path", Message: "there is nothing at " + r.URL.Path}
	}
	for _, m := range methods {
		if r.Method == m {
			return h(w, r)
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return &wire.Error{Status: http.StatusMethodNotAllowed, Type: wire.TypeInvalid, Code: "method_not_allowed", Message: r.URL.Path + " is for " + methods[0]}
}

// gone reports whether a request ended because its client left.
func gone(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) && errors.Is(err, context.Canceled)
}

// unsupported answers a route that exists and that no device of this version has.
func unsupported(*reply, *http.Request) error { return errors.ErrUnsupported }
