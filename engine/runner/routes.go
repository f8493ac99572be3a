package runner

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"onebit/engine/wire"
)

// action answers one request, or says what is wrong. A problem may only be
// returned while nothing has been written.
type action func(s *service, w http.ResponseWriter, r *http.Request) *problem

// absent are the routes of llama-server that this engine does not have. They are
// refused by name rather than as unknown.
var absent = [...]string{
	"/infill", "/responses", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
	"/v1/audio/transcriptions", "/lora-adapters", "/v1/chat/completions/control",
}

// routes builds the handler of all paths.
func (r *Runner) routes() http.Handler {
	mux := http.NewServeMux()
	add := func(method string, do action, paths ...string) {
		for _, path := range paths {
			mux.HandleFunc(method+" "+path, r.serve(do))
			mux.HandleFunc(path, wrongMethod(method))
		}
	}
	add("GET", health, "/health", "/v1/health")
	add("GET", (*service).models, "/models", "/v1/models")
	add("GET", (*service).model, "/models/{id...}", "/v1/models/{id...}")
	add("GET", (*service).props, "/props")
	add("GET", (*service).listSlots, "/slots")
	add("POST", generating((*service).slotAction), "/slots/{id}")
	add("GET", (*service).metrics, "/metrics")
	add("POST", generating((*service).chat), "/chat/completions", "/v1/chat/completions")
	add("POST", generating((*service).countChat), "/chat/completions/input_tokens", "/v1/chat/completions/input_tokens")
	add("POST", generating((*service).completion), "/completion", "/completions")
	add("POST", generating((*service).legacy), "/v1/completions")
	add("POST", generating((*service).applyTemplate), "/apply-template")
	add("POST", encoding(false, (*service).embeddings), "/v1/embeddings")
	add("POST", encoding(false, (*service).embedding), "/embedding", "/embeddings")
	add("POST", encoding(true, (*service).rerank), "/rerank", "/reranking", "/v1/rerank", "/v1/reranking")
	add("POST", generating(decide(wire.ParseDecision)), "/v1/decisions")
	add("POST", generating(decide(wire.ParseSystemOne)), "/v1/systemone")
	add("POST", (*service).tokenize, "/tokenize")
	add("POST", (*service).detokenize, "/detokenize")
	for _, path := range absent {
		mux.HandleFunc(path, notHere)
	}
	mux.HandleFunc("/", unknown)
	return r.guard(mux)
}

// serve runs an action once the model is ready.
func (r *Runner) serve(do action) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		s := r.service.Load()
		if s == nil {
			loading().write(w)
			return
		}
		if req.ContentLength > r.cfg.MaxBody {
			tooLarge(r.cfg.MaxBody).write(w)
			return
		}
		req.Body = http.MaxBytesReader(w, req.Body, r.cfg.MaxBody)
		if p := do(s, w, req); p != nil {
			p.write(w)
		}
	}
}

// guard logs every request in one line and answers for a handler that panics.
func (r *Runner) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		begun := time.Now()
		rec := &recorder{ResponseWriter: w}
		defer func() {
			if cause := recover(); cause != nil {
				r.log.Error("a handler panicked", "path", req.URL.Path, "cause", cause, "stack", string(debug.Stack()))
				rec.fail()
			}
			level := slog.LevelInfo
			if req.Method == http.MethodGet {
				level = slog.LevelDebug // supervisors ask for the health every moment
			}
			r.log.Log(req.Context(), level, "request", "method", req.Method, "path", req.URL.Path, "status", rec.status,
				"bytes", rec.written, "took", time.Since(begun).Round(time.Millisecond), "gone", req.Context().Err() != nil)
		}()
		next.ServeHTTP(rec, req)
	})
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status  int
	written int64
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.written += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// fail answers for a handler that panicked: with an error, or on a stream with
// an error event. A broken answer of another kind is left as it is.
func (r *recorder) fail() {
	p := broken(errors.New("an internal error"))
	switch {
	case r.status == 0:
		p.write(r)
	case r.Header().Get("Content-Type") == eventStream:
		_, _ = r.Write(wire.AppendEvent(nil, encode(p.object()))) // nobody is left to tell
	}
}

// readBody reads the whole body, within the limit.
func readBody(r *http.Request) ([]byte, *problem) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		return body, nil
	}
	if limit, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(limit.Limit)
	}
	return nil, badBody("reading the request body: %v", err)
}

func tooLarge(limit int64) *problem {
	return &problem{
		status: http.StatusRequestEntityTooLarge, kind: typeInvalid, code: "request_too_large",
		message: fmt.Sprintf("the request body is larger than %d bytes", limit),
	}
}

// readFields reads the body as a JSON object.
func readFields(r *http.Request) (*fields, *problem) {
	body, p := readBody(r)
	if p != nil {
		return nil, p
	}
	return parseFields(body)
}

func health(_ *service, w http.ResponseWriter, _ *http.Request) *problem {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

func wrongMethod(allowed string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allowed)
		p := &problem{
			status: http.StatusMethodNotAllowed, kind: typeInvalid,
			message: fmt.Sprintf("%s takes %s, not %s", r.URL.Path, allowed, r.Method),
		}
		p.write(w)
	}
}

func notHere(w http.ResponseWriter, r *http.Request) {
	p := &problem{
		status: http.StatusNotImplemented, kind: typeUnsupported,
		message: fmt.Sprintf("%s is not available in this engine", r.URL.Path),
	}
	p.write(w)
}

func unknown(w http.ResponseWriter, r *http.Request) {
	p := &problem{status: http.StatusNotFound, kind: typeNotFound, message: fmt.Sprintf("there is no %s here", r.URL.Path)}
	p.write(w)
}
