// Package shelf is the API of the document store: /v1/files and
// /v1/vector_stores as OpenAI has them, so that code which speaks to those finds
// the same here. A vector store is a collection.
//
// Ids of other people's files and collections do not exist for the caller: 404.
// A key may be limited to some collections; the others do not exist for it
// either.
package shelf

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"onebit/engine/wire"
	"onebit/store/documents"
	"onebit/store/documents/search"
)

const (
	maxBody   = 1 << 20   // of a request that is JSON
	maxUpload = 512 << 20 // of a file
)

// Visit is one request by somebody known.
type Visit struct {
	Reader documents.Reader
	// Collections are those that the caller's key is limited to; empty for all.
	Collections []string
	// End is told the status of the answer; it may be nil.
	End func(status int)
}

// sees reports whether a collection exists for a visit as far as its key goes.
func (v Visit) sees(collection string) bool {
	return len(v.Collections) == 0 || slices.Contains(v.Collections, collection)
}

// Config is what a Shelf works with.
type Config struct {
	Keeper   documents.Keeper
	Searcher *search.Searcher
	Wake     func() // tells the queue that there is work
	// Enter says who sends a request, and whether they may use the endpoint, which
	// is a path without ids. Errors that are a *wire.Error, or have a method Wire
	// that returns one, are for the client.
	Enter func(r *http.Request, endpoint string) (context.Context, Visit, error)
	Temp  string // a folder for uploads whose parts come in an odd order
	// Space returns how many bytes are free where files are kept; nil where nobody
	// knows. Uploads leave some of it.
	Space func() (uint64, error)
	Log   *slog.Logger
}

// Shelf answers the routes.
type Shelf struct {
	Config
	mux *http.ServeMux
}

// New returns a Shelf.
func New(c Config) (*Shelf, error) {
	if c.Keeper == nil || c.Searcher == nil || c.Wake == nil || c.Enter == nil || c.Log == nil {
		return nil, errors.New("a shelf needs a keeper, a searcher, a queue, a door and a log")
	}
	l := &Shelf{Config: c, mux: http.NewServeMux()}
	for _, r := range l.routes() {
		for _, prefix := range prefixes {
			l.mux.HandleFunc(r.method+" "+prefix+r.path, l.handle(r))
		}
	}
	return l, nil
}

// route is one operation.
type route struct {
	method, path string
	f            func(*call) (any, error)
}

func (l *Shelf) routes() []route {
	return []route{
		{"POST", "/files", l.upload},
		{"GET", "/files", l.listFiles},
		{"GET", "/files/{file}", l.getFile},
		{"DELETE", "/files/{file}", l.deleteFile},
		{"GET", "/files/{file}/content", l.content},
		{"POST", "/vector_stores", l.create},
		{"GET", "/vector_stores", l.list},
		{"GET", "/vector_stores/{store}", l.get},
		{"POST", "/vector_stores/{store}", l.update},
		{"DELETE", "/vector_stores/{store}", l.remove},
		{"POST", "/vector_stores/{store}/search", l.search},
		{"POST", "/vector_stores/{store}/files", l.attach},
		{"GET", "/vector_stores/{store}/files", l.listAttached},
		{"GET", "/vector_stores/{store}/files/{file}", l.getAttached},
		{"POST", "/vector_stores/{store}/files/{file}", l.updateAttached},
		{"DELETE", "/vector_stores/{store}/files/{file}", l.detach},
		{"GET", "/vector_stores/{store}/files/{file}/content", l.attachedContent},
		{"POST", "/vector_stores/{store}/file_batches", l.attachBatch},
		{"GET", "/vector_stores/{store}/file_batches/{batch}", l.getBatch},
		{"POST", "/vector_stores/{store}/file_batches/{batch}/cancel", l.cancelBatch},
		{"GET", "/vector_stores/{store}/file_batches/{batch}/files", l.listBatch},
	}
}

// Routes lists what ServeHTTP answers, each as METHOD PATH.
func (l *Shelf) Routes() []string {
	var out []string
	for _, r := range l.routes() {
		for _, prefix := range prefixes {
			out = append(out, r.method+" "+prefix+r.path)
		}
	}
	return out
}

// prefixes are what the paths of the table come behind.
var prefixes = []string{"/v1", ""}

// Answers reports whether a path is the shelf's.
func Answers(path string) bool {
	path = strings.TrimPrefix(path, "/v1")
	for _, p := range []string{"/files", "/vector_stores"} {
		if rest, ok := strings.CutPrefix(path, p); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// ServeHTTP answers a request.
func (l *Shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := l.mux.Handler(r); pattern != "" {
		l.mux.ServeHTTP(w, r)
		return
	}
	// whoever shows no key learns nothing, not even what there is not
	_, visit, err := l.Enter(r, "/v1/files")
	if err != nil {
		l.problem(r, err).Write(w)
		return
	}
	e := refusal(http.StatusNotFound, "not_found", "there is no such address")
	if allowed := l.methods(r); len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		e = refusal(http.StatusMethodNotAllowed, "method_not_allowed", "this address answers "+strings.Join(allowed, ", "))
	}
	e.Write(w)
	if visit.End != nil {
		visit.End(e.Status)
	}
}

// methods lists those that a path answers.
func (l *Shelf) methods(r *http.Request) []string {
	var out []string
	for _, m := range []string{"GET", "POST", "DELETE"} {
		q := r.Clone(r.Context())
		q.Method = m
		if _, pattern := l.mux.Handler(q); pattern != "" {
			out = append(out, m)
		}
	}
	return out
}

// call is one request on its way.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	ctx   context.Context //nolint:containedctx // of this request
	visit Visit
}

// written says that a call has answered by itself.
type written struct{}

// Endpoints are what Enter is told.
func Endpoints() []string { return []string{"/files", "/vector_stores"} }

func (l *Shelf) handle(rt route) http.HandlerFunc {
	endpoint := "/v1/files"
	if strings.HasPrefix(rt.path, "/vector_stores") {
		endpoint = "/v1/vector_stores"
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, visit, err := l.Enter(r, endpoint)
		if err != nil {
			l.problem(r, err).Write(w)
			return
		}
		c := &call{w: w, r: r, ctx: ctx, visit: visit}
		status := 499 // until there is another: an answer that breaks off panics, and is a visit's end too
		if visit.End != nil {
			defer func() { visit.End(status) }()
		}
		// a body that is still on its way ends with the visit: its key may be revoked while it comes
		stop := context.AfterFunc(ctx, func() { _ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) })
		answer, err := l.run(c, rt)
		stop()
		if err != nil {
			err = ended(ctx, err)
			e := l.problem(r, err)
			status = e.Status
			e.Write(w)
			return
		}
		status = http.StatusOK
		if _, done := answer.(written); !done {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			if err := json.NewEncoder(w).Encode(answer); err != nil {
				l.Log.Debug("writing an answer", "err", err)
			}
		}
	}
}

// ended is why a visit ended, where that is for the client, and else what failed.
func ended(ctx context.Context, err error) error {
	var why interface{ Wire() *wire.Error }
	if cause := context.Cause(ctx); errors.As(cause, &why) {
		return cause
	}
	return err
}

func (l *Shelf) run(c *call, rt route) (any, error) {
	if id := c.r.PathValue("store"); id != "" && !c.visit.sees(id) {
		return nil, documents.ErrNotFound
	}
	if id := c.r.PathValue("file"); id != "" {
		if ok, err := l.seesFile(c, id); !ok || err != nil {
			return nil, cmp.Or(err, documents.ErrNotFound)
		}
	}
	return rt.f(c)
}

// seesFile reports whether a file exists for a visit as far as its key goes: one
// that is limited to collections sees what is in those.
func (l *Shelf) seesFile(c *call, id string) (bool, error) {
	if len(c.visit.Collections) == 0 {
		return true, nil
	}
	for _, collection := range c.visit.Collections {
		_, err := l.Keeper.Attachment(c.ctx, c.visit.Reader, collection, id)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, documents.ErrNotFound) {
			return false, err
		}
	}
	return false, nil
}

func refusal(status int, code, message string) *wire.Error {
	return &wire.Error{Status: status, Type: wire.TypeInvalid, Code: code, Message: message}
}

// invalid is a mistake in the request; param names the member.
func invalid(param, format string, args ...any) error {
	e := refusal(http.StatusBadRequest, "invalid_value", fmt.Sprintf(format, args...))
	e.Param = param
	return e
}

// problem gives an error its status and words.
func (l *Shelf) problem(r *http.Request, err error) *wire.Error {
	var e *wire.Error
	var other interface{ Wire() *wire.Error }
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &other):
		return other.Wire()
	case errors.As(err, &long):
		return refusal(http.StatusRequestEntityTooLarge, "request_too_large", fmt.Sprintf("at most %d bytes are taken", long.Limit))
	case errors.Is(err, documents.ErrNotFound):
		return refusal(http.StatusNotFound, "not_found", "no such file or vector store")
	case errors.Is(err, documents.ErrConflict):
		return refusal(http.StatusConflict, "conflict", "the file is in this vector store already, or was changed meanwhile")
	case errors.Is(err, documents.ErrInvalid):
		return refusal(http.StatusBadRequest, "invalid_value", strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", ": "), "not valid: "))
	case errors.Is(err, documents.ErrFull):
		return &wire.Error{Status: http.StatusInsufficientStorage, Type: "insufficient_storage", Code: "disk_full", Message: "the box's disk is full", NoRetry: true}
	case errors.Is(err, context.Canceled), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrDeadlineExceeded):
		return refusal(499, "client_closed_request", "the request was not sent to its end")
	}
	l.Log.Error("the document store", "path", r.URL.Path, "err", err)
	return &wire.Error{Status: http.StatusInternalServerError, Type: "server_error", Message: "an internal error, which the box's log explains"}
}

// read decodes a body that is JSON. An empty one is an empty object.
func (c *call) read(v any) error {
	if t := c.r.Header.Get("Content-Type"); t != "" {
		if media, _, err := mime.ParseMediaType(t); err != nil || media != "application/json" {
			return refusal(http.StatusUnsupportedMediaType, "unsupported_media_type", "the body must be application/json")
		}
	}
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	if err != nil {
		return err
	}
	if len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return invalid(wrong.Field, "%q is no %s", wrong.Field, wrong.Type)
		}
		return invalid("", "the body is no JSON object: %v", err)
	}
	return nil
}

// page reads the cursor of a list.
func (c *call) page() (documents.Page, error) {
	q := c.r.URL.Query()
	p := documents.Page{After: q.Get("after"), Before: q.Get("before"), Limit: 20}
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return p, invalid("limit", "limit is a number from 1 to 100")
		}
		p.Limit = min(n, 100)
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		p.Ascending = true
	default:
		return p, invalid("order", "order is asc or desc")
	}
	return p, nil
}

// visible fills a page with what exists for a visit: what does not is passed
// over, so that a page that is empty is the last.
func visible[T, O any](p documents.Page, id func(T) string, read func(documents.Page) ([]T, bool, error), show func(T) (O, bool, error)) ([]O, bool, error) {
	var out []O
	for want := p.Limit; ; {
		p.Limit = 100
		all, more, err := read(p)
		if err != nil {
			return nil, false, err
		}
		for _, t := range all {
			o, ok, err := show(t)
			switch {
			case err != nil:
				return nil, false, err
			case ok && len(out) == want:
				return out, true, nil
			case ok:
				out = append(out, o)
			}
			p.After = id(t)
		}
		if !more || len(all) == 0 {
			return out, false, nil
		}
	}
}

// list is the object of a list.
type list[T any] struct {
	Object  string  `json:"object"`
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

func listOf[T any](data []T, more bool, id func(T) string) list[T] {
	l := list[T]{Object: "list", Data: data, HasMore: more}
	if len(data) == 0 {
		l.Data = []T{}
		return l
	}
	first, last := id(data[0]), id(data[len(data)-1])
	l.FirstID, l.LastID = &first, &last
	return l
}

// deleted is what a deletion answers.
type deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}
