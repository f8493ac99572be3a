package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"onebit/appliance/telemetry"
	"onebit/engine"
	"onebit/engine/wire"
	"onebit/extensions/abi"
)

// Fleet is many models, each brought up when it is asked for. With a Fleet the gateway has no model of its own.
type Fleet interface {
	// Resolve returns the name under which the model of that name and role is known. An empty name takes the first of
	// the role. A *NoModelError says that there is none.
	Resolve(role Role, name string) (string, error)

	// Acquire returns the model, ready. It waits for a load, and for those that are before it in line.
	Acquire(ctx context.Context, w Wish) (Hold, error)

	// List tells what there is, without bringing anything up.
	List() []Listed
}

// Listed is one model of a Fleet.
type Listed struct {
	Name    string
	Device  engine.Device
	Role    Role
	State   string
	Created time.Time
	Info    engine.Info
	Failed  bool          // it cannot be had at the moment
	Waiting int           // requests that wait for it
	Load    float64       // share of its slots that are busy, 0 to 1; 0 while it is not in memory
	Wait    time.Duration // until a request that came now would begin, as estimated

	Backend engine.Backend // nil while it is not in memory

	Elsewhere *Elsewhere // nil for a model that the box runs itself
}

// Elsewhere is what may be sent to a model that another server runs, beside requests that name it.
type Elsewhere struct {
	Auto      bool // requests that leave the model to the box
	Documents bool // passages of the box's documents
}

// Use is what a request is about to do.
type Use struct {
	Endpoint string // the canonical path, such as /chat/completions
	Model    string // the resolved name; empty where a request needs no model
}

// Outcome is how a use ended.
type Outcome struct {
	Use
	ID      string // that no other request has
	Client  string // the address
	Device  engine.Device
	Stream  bool
	Status  int // 499 when the client went before the answer began
	Begin   time.Time
	Took    time.Duration
	First   time.Duration // to the first byte of the answer
	Usage   engine.Usage
	Added   string // what of documents, in words; empty for nothing
	Err     error
	Reason  string // why it failed, without a word of what was asked or answered; empty when it did not
	Request []byte // the body, when the grant keeps it
	Answer  []byte // what was answered, when the grant keeps it; its beginning when it was long
}

// Grant is the permission for one use.
type Grant struct {
	Context context.Context // ends when the permission does
	Keep    bool            // the bodies are part of the outcome
	End     func(Outcome)   // is called once
}

// Door decides who comes in and what they may do. Without a Door, Config.Key is all there is to it.
type Door interface {
	// Enter looks at a request before its body is read. The context that it returns is the request's from then on.
	Enter(r *http.Request, route string) (context.Context, error)

	// Begin grants one use to whoever the context is of.
	Begin(ctx context.Context, u Use) (Grant, error)

	// Sees reports whether whoever the context is of may know of a model.
	Sees(ctx context.Context, model string) bool

	// Scope names whose prompts may be reused for those of whoever the context is of: see engine.Request.
	Scope(ctx context.Context) string
}

// scope names whose prompts may be reused for a request's; empty without a door.
func (g *Gateway) scope(ctx context.Context) string {
	if g.cfg.Door == nil {
		return ""
	}
	return g.cfg.Door.Scope(ctx)
}

// NoModelError is a Fleet's word that there is no model of a name; an empty name says that there is none of the role.
type NoModelError struct {
	Name  string
	Role  Role
	Known []string
}

// Error says which models there are.
func (e *NoModelError) Error() string {
	if e.Name == "" {
		role := "chat"
		if e.Role != Chat {
			role = string(e.Role)
		}
		return "there is no " + role + " model here for this key; an admin names one in the configuration or the control plane, or widens the key"
	}
	if len(e.Known) == 0 {
		return fmt.Sprintf("the model %q does not exist here", short(e.Name))
	}
	return fmt.Sprintf("the model %q does not exist here; there is %s", short(e.Name), strings.Join(e.Known, ", "))
}

// maxKept is how much of a body is kept for the request log, in bytes.
const maxKept = 256 << 10

// roleOf is what a model must be for an operation.
func roleOf(kind engine.Kind) Role {
	switch kind {
	case engine.Embedding:
		return Embedding
	case engine.Rerank:
		return Reranking
	}
	return Chat
}

// use runs one request on a model of the fleet, under the door's grant.
func (g *Gateway) use(ctx context.Context, w *reply, u Use, body []byte, work func(context.Context) error) error {
	w.model = u.Model
	if g.cfg.Door == nil {
		return work(ctx)
	}
	grant, err := g.cfg.Door.Begin(ctx, u)
	if err != nil {
		return err
	}
	w.keep = grant.Keep
	defer func() {
		u.Model = w.model // which may be another one in the end
		o := Outcome{
			Use: u, ID: w.own, Client: w.client, Device: w.device, Stream: w.streamed, Status: w.outcome(), Begin: w.begin,
			Took: time.Since(w.begin), First: w.first, Usage: w.usage, Added: w.documents, Err: err,
		}
		if err != nil {
			o.Reason = reason(err)
		}
		if p := recover(); p != nil {
			o.Status = http.StatusInternalServerError
			grant.End(o)
			panic(p)
		}
		if err != nil && w.status == 0 && !gone(grant.Context, err) {
			o.Status = g.problem(w, err).Status
		}
		if w.sent != nil {
			body = w.sent
		}
		if grant.Keep {
			o.Request, o.Answer = body[:min(len(body), maxKept)], w.kept
		}
		grant.End(o)
	}()
	err = work(grant.Context)
	return err
}

// fromFleet reserves a place on a model of the fleet, which is brought up if need be.
func (g *Gateway) fromFleet(ctx context.Context, w *reply, asked Wish) (*lease, error) {
	wait := ctx
	if g.cfg.Limits.Ready > 0 {
		limit := &engine.TimeoutError{Timer: "waiting for the model " + asked.Model, Limit: g.cfg.Limits.Ready}
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeoutCause(ctx, limit.Limit, limit)
		defer cancel()
	}
	asked.Priority, asked.Again = w.urgent, w.again
	begin := time.Now()
	m, err := g.cfg.Fleet.Acquire(wait, asked)
	now := time.Now()
	w.waited = now.Sub(begin)
	if err != nil {
		return nil, err
	}
	w.position, w.loaded = m.Position, m.Loaded
	if m.Priority != w.urgent {
		w.Header().Set(priorityHeader, m.Priority.String())
	}
	if m.Position > 0 {
		w.Header().Set("X-1bit-Queue-Position", strconv.Itoa(m.Position))
		w.Header().Set("X-1bit-Queue-Ms", strconv.FormatInt(m.Waited.Milliseconds(), 10))
	}
	w.device = m.Device
	w.Header().Set("X-1bit-Backend", string(m.Device))
	// what the box itself took, from the request's arrival to the moment when the backend gets it
	w.Header().Set("X-1bit-Overhead-Us", strconv.FormatInt((now.Sub(w.begin)-w.waited).Microseconds(), 10))
	s := newServer(m.Model, nil)
	l := g.places.reserve(func() *server { return s })
	l.giveBack = func() { m.Release(w.usage) }
	return l, nil
}

// resolve finds the model that a request is for. Without a name it is the first of the role that may be known to whoever
// asks; what may not be is not named in a refusal either.
func (g *Gateway) resolve(ctx context.Context, kind engine.Kind, name string) (string, error) {
	if g.cfg.Decider != nil && name == auto && !g.taken() {
		name = "" // what is no text has nothing to decide about
	}
	found, err := g.cfg.Fleet.Resolve(roleOf(kind), name)
	if g.cfg.Door == nil {
		return found, err
	}
	if none, ok := errors.AsType[*NoModelError](err); ok {
		hidden := func(model string) bool { return !g.cfg.Door.Sees(ctx, model) }
		return "", &NoModelError{Name: none.Name, Role: none.Role, Known: slices.DeleteFunc(slices.Clone(none.Known), hidden)}
	}
	if err != nil || name != "" || g.cfg.Door.Sees(ctx, found) {
		return found, err
	}
	for _, l := range g.seen(ctx) {
		if l.Role == roleOf(kind) && l.chosen() {
			return l.Name, nil
		}
	}
	return found, nil
}

// chosen reports whether the box may choose the model by itself.
func (l Listed) chosen() bool { return l.Elsewhere == nil || l.Elsewhere.Auto }

// mayBeSent leaves out the candidates that may not be sent what of documents is wanted.
func (g *Gateway) mayBeSent(from []abi.Candidate, want *Passages) []abi.Candidate {
	if want == nil {
		return from
	}
	return slices.DeleteFunc(from, func(c abi.Candidate) bool { return g.informed(c.ID) != nil })
}

// documentsStay is the code of that refusal.
const documentsStay = "documents_stay_here"

// informed refuses passages of documents for a model that they may not be sent to.
func (g *Gateway) informed(name string) error {
	for _, l := range g.cfg.Fleet.List() {
		if l.Name == name && l.Elsewhere != nil && !l.Elsewhere.Documents {
			return &wire.Error{Status: http.StatusForbidden, Type: wire.TypePermission, Code: documentsStay, NoRetry: true,
				Message: "the model " + name + " runs on another server, and passages of documents are not sent there; an admin may allow it"}
		}
	}
	return nil
}

// fleetObject shows a model of the fleet.
func fleetObject(l Listed) modelObject {
	return modelObject{
		ID: l.Name, Object: "model", Created: l.Created.Unix(), Owner: "1bit", Device: string(l.Device), Role: string(l.Role),
		State: l.State, Context: l.Info.Context, MaxLen: l.Info.Context, Meta: l.Info.Meta,
	}
}

// seen are the models of the fleet that a request may know of.
func (g *Gateway) seen(ctx context.Context) []Listed {
	all := g.cfg.Fleet.List()
	seen := make([]Listed, 0, len(all))
	for _, l := range all {
		if g.cfg.Door == nil || g.cfg.Door.Sees(ctx, l.Name) {
			seen = append(seen, l)
		}
	}
	return seen
}

// fleetExtra answers those of llama-server's own routes that show and change nothing but what the request itself brings.
func (g *Gateway) fleetExtra(w *reply, r *http.Request) error {
	route := canonical(r.URL.Path)
	switch route {
	case "/tokenize", "/detokenize", "/apply-template", "/completion", "/props":
	default: // the slots hold what others wrote
		return &wire.Error{Status: http.StatusNotFound, Type: "not_found_error", Code: "unknown_path", Message: "there is nothing at " + r.URL.Path}
	}
	ctx, cancel := g.deadline(r.Context())
	defer cancel()
	name := r.URL.Query().Get("model")
	var body []byte
	if r.Method == http.MethodPost {
		var err error
		if body, err = g.body(w, r); err != nil {
			return err
		}
		if body, err = wire.Strict(0, body); err != nil {
			return err
		}
		name = modelOf(body)
	}
	name, err := g.resolve(ctx, engine.Completion, name)
	if err != nil {
		return err
	}
	want := wish(name, &engine.Request{Kind: engine.Completion, Raw: body})
	want.Aside = route != "/completion"
	return g.use(ctx, w, Use{Endpoint: route, Model: name}, body, func(ctx context.Context) error {
		l, err := g.fromFleet(ctx, w, want)
		if err != nil {
			return err
		}
		defer l.release()
		if !hasExtras(l.server.Device) {
			return notOn(w.path, l.server.Device)
		}
		in := r.Clone(ctx)
		in.URL.RawQuery = "" // what a server does with options in the address is not for strangers
		in.Body = http.NoBody
		switch route {
		case "/props":
			return g.props(ctx, w, in, l.server)
		case "/completion":
			n := &native{}
			w.watch, w.streamed, w.operation = n.take, streamed(body), operation(engine.Completion)
			defer func() { w.usage = n.usage() }()
		}
		return g.relayBody(ctx, w, in, l.server, route, body)
	})
}

// modelOf returns the model that a strict body names.
func modelOf(body []byte) string {
	var named struct {
		Model string `json:"model"`
	}
	_ = json.Unmarshal(body, &named) // Strict has found it sound; another type names no model
	return named.Model
}

// maxProps bounds what a server says of itself, in bytes.
const maxProps = 16 << 20

// props shows what a server says of its model, but not where on this machine the file of it lies.
func (g *Gateway) props(ctx context.Context, w *reply, r *http.Request, s *server) error {
	backend, ok := s.Backend.(relayer)
	if !ok {
		return errors.ErrUnsupported
	}
	if err := g.ready(ctx, s); err != nil {
		return err
	}
	r.URL.Path, r.URL.RawPath = "/props", ""
	res, err := backend.Relay(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotFound:
		return errors.ErrUnsupported
	case res.StatusCode >= 400:
		return refused(res)
	}
	var said map[string]json.RawMessage
	if err := json.NewDecoder(io.LimitReader(res.Body, maxProps)).Decode(&said); err != nil {
		return fmt.Errorf("reading a server's properties: %w", wire.ErrMalformed)
	}
	var file string
	if json.Unmarshal(said["model_path"], &file) == nil {
		said["model_path"] = wire.Quote(file[strings.LastIndexAny(file, `/\`)+1:])
	} else {
		delete(said, "model_path")
	}
	return write(w, http.StatusOK, said)
}

// streamed reports whether a strict body asks for a stream.
func streamed(body []byte) bool {
	var asked struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(body, &asked) // Strict has found it sound; another type asks for none
	return asked.Stream
}

// fleetHealth says in one word whether the box answers. Who is let in sees more under the control plane's status.
func (g *Gateway) fleetHealth(w *reply) error {
	return write(w, http.StatusOK, struct {
		Status string `json:"status"`
	}{"ok"})
}

// fleetFamilies are where the models of the fleet stand.
func (g *Gateway) fleetFamilies() []telemetry.Family {
	state := telemetry.Family{Name: "onebit_model_state", Help: "1 for the state that a model is in.", Labels: []string{"model", "device", "state"}}
	restarts := telemetry.Family{Name: "onebit_backend_restarts_total", Help: "How often a backend was started again.", Counter: true, Labels: []string{"model", "device"}}
	for _, l := range g.cfg.Fleet.List() {
		state.Values = append(state.Values, telemetry.Value{Labels: []string{l.Name, string(l.Device), l.State}, Value: 1})
		if r, ok := l.Backend.(restarter); ok {
			restarts.Values = append(restarts.Values, telemetry.Value{Labels: []string{l.Name, string(l.Device)}, Value: float64(r.Restarts())})
		}
	}
	return []telemetry.Family{state, restarts}
}
