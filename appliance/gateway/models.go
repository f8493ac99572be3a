package gateway

import (
	"encoding/json"
	"net/http"
	"strings"

	"onebit/engine"
	"onebit/engine/wire"
)

// informer is a backend that knows more about its model.
type informer interface{ Info() engine.Info }

// backendStatus is where one backend stands, as /health shows it.
type backendStatus struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// health says whether a request would be answered now. It is 503 until every backend has been ready once, and later
// while no backend of the model is.
func (g *Gateway) health(w *reply, _ *http.Request) error {
	if g.cfg.Fleet != nil {
		return g.fleetHealth(w)
	}
	answer := struct {
		Status   string          `json:"status"`
		Backends []backendStatus `json:"backends,omitempty"`
	}{Status: g.first.Backend.State().String()}
	chats, serving, loading, down := len(g.chats()), 0, false, false
	for i, s := range g.servers {
		state := s.Backend.State()
		loading = loading || state == engine.Loading
		down = down || state != engine.Ready
		if i < chats && state == engine.Ready {
			serving++
		}
		if len(g.servers) > 1 {
			answer.Backends = append(answer.Backends, backendStatus{s.label, state.String()})
		}
	}
	status := http.StatusOK
	switch {
	case loading:
		status, answer.Status = http.StatusServiceUnavailable, engine.Loading.String()
	case serving == 0:
		status = http.StatusServiceUnavailable
	case down:
		answer.Status = "degraded"
	}
	return write(w, status, answer)
}

// modelObject is one entry of the list of models. Clients look for the context under three names.
type modelObject struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Owner   string          `json:"owned_by"`
	Device  string          `json:"device"`
	Role    string          `json:"role,omitempty"`
	Why     string          `json:"device_reason,omitempty"`
	State   string          `json:"state,omitempty"`
	Context int             `json:"context_length,omitempty"`
	MaxLen  int             `json:"max_model_len,omitempty"`
	Meta    json.RawMessage `json:"meta,omitempty"`
}

// object shows a server's model. Of two backends of one model the first speaks for both.
func (g *Gateway) object(s *server) modelObject {
	o := modelObject{ID: s.Name, Object: "model", Created: s.Created.Unix(), Owner: "1bit", Device: string(s.Device), Why: s.Why}
	switch {
	case s != g.first && s.Role == Reranking:
		o.Role = "rerank" // as the option that brought it is called
	case s != g.first:
		o.Role = string(s.Role)
	case s.Role != Chat:
		o.Role = string(s.Role)
		o.Device += " " + o.Role
	case g.cfg.Mode == Adaptive:
		o.Device += "+" + string(g.second.Device)
	case g.cfg.Mode == Classified:
		o.Device = "laya"
	}
	if b, ok := s.Backend.(informer); ok {
		info := b.Info()
		o.Context, o.MaxLen, o.Meta = info.Context, info.Context, info.Meta
	}
	return o
}

// listed are the servers that the list of models shows.
func (g *Gateway) listed() []*server {
	return append([]*server{g.first}, g.servers[len(g.chats()):]...)
}

// models lists the model and what is served beside it, also while they load.
func (g *Gateway) models(w *reply, r *http.Request) error {
	objects := []modelObject{}
	if g.cfg.Fleet != nil {
		seen := g.seen(r.Context())
		for _, l := range seen {
			objects = append(objects, fleetObject(l))
		}
		if o, ok := g.choosing(seen); ok {
			objects = append(objects, o)
		}
	} else {
		for _, s := range g.listed() {
			objects = append(objects, g.object(s))
		}
	}
	if w.anthropic {
		return write(w, http.StatusOK, anthropicModels(objects))
	}
	return write(w, http.StatusOK, struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{"list", objects})
}

// model shows one model by its name, which may hold slashes.
func (g *Gateway) model(w *reply, r *http.Request) error {
	name := strings.TrimPrefix(canonical(r.URL.Path), "/models/")
	if g.cfg.Fleet != nil {
		var known []string
		seen := g.seen(r.Context())
		if o, ok := g.choosing(seen); ok && name == auto {
			return writeModel(w, o)
		}
		for _, l := range seen {
			if l.Name == name {
				return writeModel(w, fleetObject(l))
			}
			known = append(known, l.Name)
		}
		return &NoModelError{Name: name, Known: known}
	}
	for _, s := range g.listed() {
		if s.Name == name {
			return writeModel(w, g.object(s))
		}
	}
	return &wire.Error{Status: http.StatusNotFound, Type: wire.TypeInvalid, Param: "model", Code: "model_not_found", Message: "the model " + short(name) + " does not exist; " + g.first.Name + " does"}
}

// write answers with a JSON object.
func write(w *reply, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(append(b, '\n'))
	return err
}
