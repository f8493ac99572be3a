// Package gateway is the data plane: the public HTTP API. It checks what comes in, chooses the backend that takes it,
// hands it over, and writes what comes back, under the name that the model is served by. Handlers return errors;
// problem maps each to a status and the one error object.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/telemetry"
	"onebit/engine"
	"onebit/engine/wire"
)

// Role is what a model is for.
type Role string

// The roles.
const (
	Chat      Role = ""
	Embedding Role = "embedding"
	Reranking Role = "reranking"
)

// Mode is how requests are spread over the model's backends.
type Mode int

// The modes.
const (
	Single     Mode = iota // there is one backend
	Adaptive               // the second backend takes what is too much for the first
	LongModel              // the second backend takes conversations that begin with a long prompt
	Classified             // the decider chooses a backend for each conversation
)

// Model is what is served by one backend.
type Model struct {
	Name    string        // in requests and answers
	Device  engine.Device // where it runs
	Why     string        // and for what reason
	Created time.Time     // of the model file
	Role    Role
	Backend engine.Backend

	// How requests name the model towards the backend: as the client did, or not at all, or always by this id.
	DropModel bool
	ModelID   string
}

// Config is what a Gateway works with.
type Config struct {
	Model  Model
	Mode   Mode
	Second Model   // of the modes Adaptive and LongModel
	Others []Model // of the mode Classified: what may be chosen beside Model

	AdaptiveAt int  // how many requests the first backend holds before the second gets one
	Sticky     bool // a conversation stays on its backend while there is room
	LongFrom   int  // tokens of a first prompt that make a conversation long

	Side []Model // servers beside the model, each with a role

	Strict    bool          // a model name that is not served is an error
	Key       config.Secret // what a client must show; empty lets everybody in
	MediaPath string        // the directory below which file: addresses of images are served; empty serves none

	Fleet Fleet // many models; then Model, Mode, Second, Others and Side are not used, and requests are taken in strictly
	Door  Door  // who comes in; then Key is not used

	// Decider chooses: in mode Classified the backend of each conversation; with a Fleet the model of a request that leaves it to
	// the box, where nil takes the first.
	Decider Decider

	// Expect returns how many tokens of a request's prompt a model would not compute again; nil when nobody knows.
	Expect func(req *engine.Request) func(model string) int

	Documents Documents // with a Fleet: what passages are added from; nil for nothing
	Responses Responses // with a Fleet: keeps what was answered by OpenAI's Responses; nil keeps nothing

	Metrics *telemetry.Metrics // counts requests; nil for ones of the gateway's own

	Limits config.Limits
	Log    *slog.Logger
}

// Gateway answers the API's requests. It implements http.Handler.
type Gateway struct {
	cfg     Config
	servers []*server // the model's, then those beside it
	first   *server
	second  *server // nil in mode Single
	places  places
	lengths *table[length]
	rates   rates

	endpoints []endpoint
}

// New returns a Gateway. It starts nothing.
func New(cfg Config) (*Gateway, error) {
	g := &Gateway{cfg: cfg, lengths: newTable[length](), places: places{homes: newTable[*server]()}}
	if cfg.Log == nil {
		return nil, errors.New("a gateway needs a log")
	}
	if g.cfg.Metrics == nil {
		g.cfg.Metrics = telemetry.New(telemetry.Config{})
	}
	g.endpoints = g.table()
	if cfg.Fleet != nil {
		return g, nil
	}
	models := []Model{cfg.Model}
	switch {
	case cfg.Mode == Classified && cfg.Decider == nil:
		return nil, errors.New("a gateway that chooses by class needs a decider")
	case cfg.Mode == Classified:
		models = append(models, cfg.Others...)
	case cfg.Mode != Single:
		models = append(models, cfg.Second)
	}
	for _, m := range append(models, cfg.Side...) {
		switch {
		case m.Backend == nil:
			return nil, errors.New("a gateway needs a backend for each model")
		case m.Name == "":
			return nil, errors.New("a gateway needs the name of its model")
		}
		g.servers = append(g.servers, newServer(m, g.servers))
	}
	if cfg.MediaPath != "" {
		if info, err := os.Stat(cfg.MediaPath); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--media-path: %q is not a directory that can be read", cfg.MediaPath)
		}
	}
	g.first = g.servers[0]
	if cfg.Mode == Adaptive || cfg.Mode == LongModel {
		g.second = g.servers[1]
	}
	return g, nil
}

// handler answers one request, or returns why it cannot. Once it has written it may still return an error, for the log.
type handler func(w *reply, r *http.Request) error

// canonical maps the paths that clients use by mistake to one: a missing or doubled /v1, doubled slashes at the beginning, and
// slashes at the end.
func canonical(path string) string {
	for strings.HasPrefix(path, "//") {
		path = path[1:]
	}
	for strings.HasPrefix(path, "/v1/") {
		path = path[len("/v1"):]
	}
	if trimmed := strings.TrimRight(path, "/"); trimmed != "" {
		return trimmed
	}
	return "/"
}

// ServeHTTP answers one request, writes one line about it to the log, and survives a handler's panic.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &reply{ResponseWriter: w, path: r.URL.Path, client: r.RemoteAddr, begin: time.Now()}
	out.id, out.own = RequestID(r.Header.Get("X-Request-Id"))
	out.Header().Set("X-Request-Id", out.id)
	if out.anthropic = anthropic(r); out.anthropic {
		out.Header().Set("Request-Id", out.id) // where its clients look for it
	}
	trace, state := r.Header.Get("Traceparent"), r.Header.Get("Tracestate")
	e := g.find(canonical(r.URL.Path))
	g.cfg.Metrics.Began()
	defer func() {
		if p := recover(); p != nil {
			g.panicked(out, p)
		}
		took := time.Since(out.begin)
		g.cfg.Metrics.Ended(telemetry.Call{
			ID: out.own, Route: e.name, Operation: out.operation, Model: out.model, Device: out.device, Stream: out.streamed,
			Status: out.outcome(), Answered: out.status != 0, Begin: out.begin, Took: took, First: out.first,
			Waited: out.waited, Queued: out.position > 0, Loaded: out.loaded,
			Usage: out.usage, Traceparent: trace, Tracestate: state,
		})
		g.access(r, out, took)
		if out.broken {
			panic(http.ErrAbortHandler) // closes the connection: what has come is not whole
		}
	}()
	if r, out.err = g.enter(r, e.name); out.err == nil && g.cfg.Fleet != nil {
		out.urgent, out.err = priority(r.Header)
		tries := r.Header.Get(retryHeader)
		out.again = tries != "" && tries != "0"
	}
	if out.err == nil {
		out.err = e.dispatch(out, r)
	}
	if out.err != nil && out.status == 0 && !gone(r.Context(), out.err) {
		out.refuse(g.problem(out, out.err))
	}
}

// dispatch calls the handler when there is one and it knows the method.
func (e endpoint) dispatch(w *reply, r *http.Request) error {
	if e.handler == nil {
		return &wire.Error{Status: http.StatusNotFound, Type: "not_found_error", Code: "unknown_path", Message: "there is nothing at " + r.URL.Path}
	}
	for _, m := range e.methods {
		if r.Method == m {
			return e.handler(w, r)
		}
	}
	w.Header().Set("Allow", strings.Join(e.methods, ", "))
	return &wire.Error{Status: http.StatusMethodNotAllowed, Type: wire.TypeInvalid, Code: "method_not_allowed", Message: r.URL.Path + " is for " + e.methods[0]}
}

// gone reports whether a request ended because its client left.
func gone(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) && errors.Is(err, context.Canceled)
}
