// Package admin is the control plane: a JSON API under /admin/v1 with which pages, the command line and programs run a
// box. Each operation is one line of a table that says who may call it, what it takes and what it gives; the requests'
// decoding, the checks of access, the audit trail and the OpenAPI description all come from that table.
//
// What an operation cannot do is as important: none takes the path of a program, arguments of one, or a path of the
// file system. A model is named by the catalogue, by a repository of the hub, or by a file that the box has found itself.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"onebit/appliance/auth"
	"onebit/engine"
	"onebit/engine/wire"
	"onebit/extensions"
	"onebit/store"
)

// Prefix is where the API lives.
const Prefix = "/admin/v1"

// maxBody is the longest body of a request, in bytes.
const maxBody = 1 << 20

// Config is what an Admin works with. All but Box's optional parts must be given.
type Config struct {
	Store *store.Store
	Auth  *auth.Auth
	Box   Box
	Log   *slog.Logger

	Extensions *extensions.Manager
	Documents  Documents
}

// Admin answers the control plane's requests. It implements http.Handler.
type Admin struct {
	cfg    Config
	routes []route
	mux    *http.ServeMux
}

// New returns an Admin. It starts nothing.
func New(cfg Config) (*Admin, error) {
	if cfg.Store == nil || cfg.Auth == nil || cfg.Box == nil || cfg.Log == nil || cfg.Extensions == nil || cfg.Documents == nil {
		return nil, errors.New("admin needs a store, an auth, a box, extensions, documents and a log")
	}
	a := &Admin{cfg: cfg, mux: http.NewServeMux()}
	a.routes = table(a)
	for _, r := range a.routes {
		a.mux.HandleFunc(r.method+" "+Prefix+r.path, func(w http.ResponseWriter, req *http.Request) { a.serve(w, req, r) })
	}
	return a, nil
}

// Route is one operation, for walks over all of them.
type Route struct{ Method, Path string }

// Routes lists the operations; parameters stand in braces.
func (a *Admin) Routes() []Route {
	all := make([]Route, len(a.routes))
	for i, r := range a.routes {
		all[i] = Route{r.method, Prefix + r.path}
	}
	return all
}

// ServeHTTP answers one request. Whoever comes in without an identity has been refused before anything is said about
// what exists.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	p, err := a.cfg.Auth.Identify(r.Context(), r)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	g := a.cfg.Auth.Hold(r.Context(), p) // who is shown the door does not stay for what they have begun
	defer g.End(auth.Usage{})
	a.ServeAs(w, r.WithContext(g.Context()), p)
}

// ServeAs answers a request of somebody who has been identified already.
func (a *Admin) ServeAs(w http.ResponseWriter, r *http.Request, p *auth.Principal) {
	r = r.WithContext(auth.With(r.Context(), p))
	if _, pattern := a.mux.Handler(r); pattern == "" {
		// ServeMux knows 404 from 405, but says it in plain text
		status, code := http.StatusNotFound, "unknown_path"
		if a.known(r.URL.Path) {
			status, code = http.StatusMethodNotAllowed, "method_not_allowed"
		}
		a.refuse(w, r, &wire.Error{Status: status, Type: "not_found_error", Code: code, Message: "there is no " + r.Method + " " + r.URL.Path})
		return
	}
	a.mux.ServeHTTP(w, r)
}

// known reports whether some method has the path.
func (a *Admin) known(path string) bool {
	for _, m := range []string{"GET", "POST", "PATCH", "PUT", "DELETE"} {
		if req, err := http.NewRequestWithContext(context.Background(), m, path, nil); err == nil {
			if _, pattern := a.mux.Handler(req); pattern != "" {
				return true
			}
		}
	}
	return false
}

// serve runs one operation.
func (a *Admin) serve(w http.ResponseWriter, r *http.Request, o route) {
	p := auth.From(r.Context())
	if err := o.who.check(p, o.path); err != nil {
		a.refuse(w, r, err)
		return
	}
	in, err := o.decode(w, r)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	out, err := o.run(&call{w: w, r: r, who: p}, in)
	switch {
	case err != nil:
		a.refuse(w, r, err)
	case o.raw:
	case out == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		b, err := json.MarshalIndent(out, "", "  ")
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(o.status)
		_, _ = w.Write(append(b, '\n')) // a client that has gone needs no answer
	}
}

// refuse answers with the one error object.
func (a *Admin) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if cause := context.Cause(r.Context()); errors.Is(cause, auth.ErrRevoked) {
		err = cause
	}
	e := problem(err)
	if e.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		a.cfg.Log.Error("the control plane failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	e.Write(w)
}

// problem is the table from errors to what a client is told.
func problem(err error) *wire.Error {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*auth.Error](err); ok {
		return e.Wire()
	}
	if e, ok := errors.AsType[*engine.InvalidError](err); ok {
		return wire.FromInvalid(e)
	}
	if e, ok := errors.AsType[*engine.UnavailableError](err); ok {
		return &wire.Error{Status: http.StatusServiceUnavailable, Type: wire.TypeUnavailable, Code: "unavailable", Message: e.Reason, RetryAfter: e.RetryAfter}
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &wire.Error{Status: http.StatusRequestEntityTooLarge, Type: wire.TypeInvalid, Code: "request_too_large", Message: fmt.Sprintf("the request body is larger than %d bytes", e.Limit)}
	}
	if e, ok := errors.AsType[*extensions.RefusedError](err); ok {
		return &wire.Error{Status: http.StatusUnprocessableEntity, Type: wire.TypeInvalid, Code: e.Code, Message: e.Reason, NoRetry: true}
	}
	for _, k := range []struct {
		is     error
		status int
		code   string
	}{
		{store.ErrNotFound, http.StatusNotFound, "not_found"},
		{extensions.ErrNotFound, http.StatusNotFound, "not_found"},
		{extensions.ErrConflict, http.StatusConflict, "conflict"},
		{store.ErrForbidden, http.StatusForbidden, "admin_needed"},
		{store.ErrConflict, http.StatusConflict, "conflict"},
		{store.ErrInvalid, http.StatusBadRequest, "invalid"},
		{store.ErrPassword, http.StatusBadRequest, "wrong_passphrase"},
		{store.ErrFull, http.StatusInsufficientStorage, "disk_full"},
	} {
		if errors.Is(err, k.is) {
			return &wire.Error{Status: k.status, Type: wire.TypeInvalid, Code: k.code, Message: err.Error(), NoRetry: true}
		}
	}
	return &wire.Error{Status: http.StatusInternalServerError, Type: wire.TypeServer, Code: "internal_error", Message: "something went wrong here; the log has more"}
}

// call is one request of an operation.
type call struct {
	w   http.ResponseWriter
	r   *http.Request
	who *auth.Principal
}

func (c *call) ctx() context.Context { return c.r.Context() }

// actor is who asks, as the store wants it.
func (c *call) actor() store.Actor { return c.who.Actor }

// access says who may call an operation.
type access int

const (
	admins   access = iota // by login, by a key made for it, or over the box's own socket
	everyone               // who is known; they see their own
	console                // only who sits at the box: over its own socket
)

// check refuses whoever may not.
func (a access) check(p *auth.Principal, path string) error {
	if p.Key != nil && !p.Admin {
		return &wire.Error{Status: http.StatusForbidden, Type: wire.TypePermission, Code: "key_not_allowed", Message: "this key is not for the control plane; log in, or use a key made with admin rights", NoRetry: true}
	}
	switch a {
	case admins:
		return p.NeedAdmin()
	case console:
		if p.Kind != auth.Socket {
			return &wire.Error{Status: http.StatusForbidden, Type: wire.TypePermission, Code: "console_only", Message: path + " is only for the console of the box", NoRetry: true}
		}
	}
	return nil
}

// String names the access in the description.
func (a access) String() string { return [...]string{"admins", "everyone", "console"}[a] }

// trimmed returns a name without the spaces around it.
func trimmed(s string) string { return strings.TrimSpace(s) }
