package gateway

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"onebit/appliance/cite"
	"onebit/appliance/queue"
	"onebit/engine"
	"onebit/engine/wire"
	"onebit/engine/wire/messages"
)

// reply is a response on its way, with what the log wants to know of it.
type reply struct {
	http.ResponseWriter
	path   string // as the client wrote it
	client string // its address
	begin  time.Time
	first  time.Duration // from begin to the first byte
	id     string        // that the client knows: its own, where it sent one
	own    string        // that no other request has
	status int           // 0 while nothing was written
	broken bool          // the answer ends before it is whole
	usage  engine.Usage
	err    error

	operation string         // in the words of telemetry; empty when nothing is made
	model     string         // as resolved
	device    engine.Device  // that answers
	waited    time.Duration  // for a model, in line and for a load
	urgent    queue.Priority // as the client wants it
	again     bool           // it has tried before
	position  int            // in line; 0 when it did not wait
	loaded    bool           // the model was not in memory
	streamed  bool
	watch     func([]byte) // sees what is answered; nil for nobody
	response  string       // the id of what was kept; empty for nothing
	documents string       // what was added of them; empty for nothing
	expects   bool         // whoever chose the model took a part of the prompt for cached there; the server has not said so yet
	scan      *cite.Scan   // finds what an answer cites; nil where nothing was added
	sent      []byte       // the chat with what was added; nil where nothing was
	anthropic bool         // errors are told as Anthropic's API tells them
	keep      bool         // what is answered is kept
	kept      []byte       // its beginning
}

// WriteHeader notes the status.
func (w *reply) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.first = status, time.Since(w.begin)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write notes that an answer has begun.
func (w *reply) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status, w.first = http.StatusOK, time.Since(w.begin)
	}
	if w.keep {
		w.kept = append(w.kept, b[:min(len(b), maxKept-len(w.kept))]...)
	}
	if w.watch != nil {
		w.watch(b)
	}
	return w.ResponseWriter.Write(b)
}

// refuse answers with an error, in the words of the client's API.
func (w *reply) refuse(e *wire.Error) {
	if w.anthropic {
		e.WriteAs(w, messages.Status(e), messages.AppendError(nil, e, w.id))
		return
	}
	e.Write(w)
}

// outcome is the status that the log and the metrics show.
func (w *reply) outcome() int {
	if w.status == 0 {
		return 499 // the client has gone before there was an answer
	}
	return w.status
}

// Unwrap lets http.ResponseController reach the connection.
func (w *reply) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// RequestID returns the id that a client knows its request by, which is its own when it can be written to a log and a
// header, and one that no other request has, which is the same when the client has sent none.
func RequestID(given string) (id, own string) {
	own = "req_" + rand.Text()
	if given == "" || len(given) > 128 {
		return own, own
	}
	for i := range len(given) {
		if given[i] <= ' ' || given[i] > '~' {
			return own, own
		}
	}
	return given, own
}

// access writes the line about one request. Looks at the health and the metrics come often and say little.
func (g *Gateway) access(r *http.Request, w *reply, took time.Duration) {
	level := slog.LevelInfo
	if path := canonical(r.URL.Path); path == "/health" || path == "/metrics" && w.outcome() < 400 {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", w.outcome()),
		slog.Duration("took", took.Round(100*time.Microsecond)), slog.String("id", w.own),
	}
	if w.id != w.own {
		attrs = append(attrs, slog.String("client_id", w.id))
	}
	if w.usage != (engine.Usage{}) {
		attrs = append(attrs, slog.Int("prompt", w.usage.Prompt), slog.Int("cached", w.usage.Cached), slog.Int("completion", w.usage.Completion))
	}
	if w.documents != "" {
		attrs = append(attrs, slog.String("documents", w.documents))
	}
	if w.err != nil {
		attrs = append(attrs, slog.String("error", reason(w.err)))
	}
	g.cfg.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// panicked answers for a handler that failed by a mistake of ours. After the first byte nothing can be said but the end.
func (g *Gateway) panicked(w *reply, p any) {
	w.err = fmt.Errorf("panic: %v", p)
	g.cfg.Log.Error("a handler panicked", "panic", p, "id", w.own, "stack", string(debug.Stack()))
	w.broken = w.status != 0
	if !w.broken {
		w.refuse(&wire.Error{Status: http.StatusInternalServerError, Type: wire.TypeServer, Code: "internal_error", Message: "something went wrong here; the log has more under request id " + w.own})
	}
}

// leftOut warns a client of what it has asked for and does not get.
func (w *reply) leftOut(all []string) {
	for _, what := range all {
		w.Header().Add("Warning", `299 1bit "`+strings.NewReplacer(`"`, "", `\`, "").Replace(header(start(what, 100)))+` is not served here and was left out"`)
	}
}
