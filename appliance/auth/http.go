package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"onebit/engine"
	"onebit/store"
)

// Route is one thing that the door answers. All of it may be called without a key.
type Route struct {
	Method, Path string
	handle       func(w http.ResponseWriter, r *http.Request) error
}

// Routes lists what Handler answers: the door of the box, as JSON for programs and as pages that work without script.
func (a *Auth) Routes() []Route {
	return []Route{
		{"GET", "/claim", a.getClaim},
		{"POST", "/claim", a.postClaim},
		{"POST", "/claim/passkey", a.postClaimPasskey},
		{"POST", "/claim/restore", a.postRestore},
		{"GET", "/login", a.getLogin},
		{"POST", "/login", a.postLogin},
		{"POST", "/login/passkey", a.postPasskeyLogin},
		{"POST", "/login/passkey/answer", a.postPasskeyAnswer},
		{"POST", "/logout", a.postLogout},
		{"GET", "/invite", a.getInvite},
		{"POST", "/invite", a.postInvite},
		{"POST", "/invite/passkey", a.postInvitePasskey},
		{"GET", "/recover", a.getRecover},
		{"POST", "/recover", a.postRecover},
		{"POST", "/account/password", a.postPassword},
		{"POST", "/account/passkey", a.postAddPasskey},
		{"POST", "/account/passkey/answer", a.postAddPasskeyAnswer},
		{"GET", "/login/door.css", asset("door.css", "text/css; charset=utf-8")},
		{"GET", "/login/door.js", asset("door.js", "text/javascript; charset=utf-8")},
	}
}

// policy is what a browser may do with the door's pages: take the two files beside them, and send forms back.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// maxBody bounds a form. A backup to restore is not bounded: it streams to the hook.
const maxBody = 64 << 10

// Handler answers the paths of Routes, and 404 to all others.
func (a *Auth) Handler() http.Handler { return a.door }

// Answers reports whether a path is one of Routes. It is asked for every request of the box.
func (a *Auth) Answers(path string) bool { return a.doorPaths[path] }

func (a *Auth) newDoor() http.Handler {
	mux := http.NewServeMux()
	foreign := http.NewCrossOriginProtection()
	a.doorPaths = map[string]bool{}
	for _, route := range a.Routes() {
		a.doorPaths[route.Path] = true
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Content-Security-Policy", policy)
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Cross-Origin-Opener-Policy", "same-origin")
			h.Set("Cache-Control", "no-store")
			if route.Path != "/claim/restore" {
				r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			}
			err := error(forbidden("cross_site_request", "a page of another site may not send this"))
			if foreign.Check(r) == nil {
				err = route.handle(w, r)
			}
			if err != nil {
				a.refuse(w, r, err)
			}
		})
	}
	return mux
}

// refuse answers with an error: an object for a program, a page for a person.
func (a *Auth) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := a.problem(r, err)
	if !wantsPage(r) {
		e.Wire().Write(w)
		return
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(int(e.RetryAfter.Seconds()+0.999)))
	}
	v := view{Title: "That did not work", Problem: e.Message, Back: r.URL.Path}
	switch {
	case e == errClaimed:
		v.Back = "/login"
	case r.URL.Path == "/claim/restore":
		v.Back = "/claim"
	}
	if err := a.page(w, e.Status, "problem", v); err != nil {
		a.log.Error("a refusal could not be shown", "err", err)
	}
}

// problem is the table from errors to what a visitor is told. What is nobody's mistake but the box's goes to the log.
func (a *Auth) problem(r *http.Request, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "request_too_large", Message: fmt.Sprintf("the request body is larger than %d bytes", e.Limit)}
	}
	if e, ok := errors.AsType[*engine.InvalidError](err); ok {
		return invalid(e.Code, e.Message)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &Error{Status: http.StatusNotFound, Code: "not_found", Message: "there is no such thing"}
	case errors.Is(err, store.ErrForbidden):
		return forbidden("forbidden", "this is not allowed")
	case errors.Is(err, store.ErrConflict):
		return &Error{Status: http.StatusConflict, Code: "conflict", Message: "there is one of that name already"}
	case errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrPassword), errors.Is(err, store.ErrCorrupt):
		return invalid("invalid", "what was sent is not valid")
	case errors.Is(err, store.ErrFull):
		a.log.Error("the door could not write", "path", r.URL.Path, "err", err)
		return &Error{Status: http.StatusInsufficientStorage, Code: "disk_full", Message: "the disk of the box is full"}
	case r.Context().Err() == nil:
		a.log.Error("the door failed", "path", r.URL.Path, "err", err)
	}
	return &Error{Status: http.StatusInternalServerError, Code: "internal_error", Message: "something went wrong in the box; its log says what"}
}

// wantsPage reports whether the sender is a person's browser, not a program or a script.
func wantsPage(r *http.Request) bool {
	if kind(r) == "application/json" {
		return false
	}
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

func kind(r *http.Request) string {
	k, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return k
}

// input is every field that a form of the door may have.
type input struct {
	Code     Secret          `json:"code"`
	Proof    []byte          `json:"proof"`
	Name     string          `json:"name"`
	Password Secret          `json:"password"`
	Old      Secret          `json:"old_password"`
	BoxName  string          `json:"box_name"`
	TLSMode  string          `json:"tls_mode"`
	Passkey  json.RawMessage `json:"passkey"`
}

// read decodes a request's body: a JSON object, or a form.
func read(r *http.Request) (input, error) {
	var in input
	switch kind(r) {
	case "application/json":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return in, err
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if d.Decode(&in) != nil || !errors.Is(d.Decode(&struct{}{}), io.EOF) { // the decoder's words could quote a secret
			return input{}, invalid("invalid_json", "the body is not a JSON object with known members of the right types")
		}
		if bytes.Equal(in.Passkey, []byte("null")) {
			in.Passkey = nil
		}
		return in, nil
	case "application/x-www-form-urlencoded":
		if err := r.ParseForm(); err != nil {
			if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
				return in, e
			}
			return in, invalid("invalid_form", "the form is not well formed")
		}
		f := r.PostForm // never the query
		return input{Code: Secret{f.Get("code")}, Name: f.Get("name"), Password: Secret{f.Get("password")}, Old: Secret{f.Get("old_password")},
			BoxName: f.Get("box_name"), TLSMode: f.Get("tls_mode")}, nil
	}
	return in, &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Message: "send JSON or a form"}
}

// answer writes a program's answer.
func answer(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
	return nil
}

// came is what a program is told that has come in. The login itself is in the cookie alone.
type came struct {
	Person   string `json:"person"`
	Name     string `json:"name"`
	Role     string `json:"role"`
	Recovery string `json:"recovery_key,omitempty"`
}

// letIn gives a browser its login, and shows a new recovery key, once.
func (a *Auth) letIn(w http.ResponseWriter, r *http.Request, in Welcome, err error) error {
	if err != nil && in.Recovery.Empty() {
		return err
	}
	if err != nil { // the recovery key is made: it is shown, whatever became of the login
		a.log.Error("a login did not begin", "person", in.Person.ID, "err", err)
	}
	if !in.Login.Empty() {
		SetCookie(w, in.Login, in.Expires)
	}
	switch {
	case !wantsPage(r):
		return answer(w, http.StatusOK, came{Person: in.Person.ID, Name: in.Person.Name, Role: string(in.Person.Role), Recovery: in.Recovery.text})
	case !in.Recovery.Empty():
		return a.page(w, http.StatusOK, "recovery", view{Title: "Keep this key", Name: in.Person.Name, Recovery: in.Recovery.text})
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}

// byLogin returns who has logged in.
func (a *Auth) byLogin(ctx context.Context, r *http.Request) (*Principal, error) {
	p, err := a.Identify(ctx, r)
	if err != nil {
		return nil, err
	}
	if p.Kind != Login {
		return nil, errNeedKey
	}
	return p, nil
}
