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

// health says whether a request would be answered now.
func (g *Gateway) health(w *reply, _ *http.Request) error {
	state := g.cfg.Model.Backend.State()
	status := http.StatusOK
	if state != engine.Ready {
		status = http.StatusServiceUnavailable
	}
	return write(w, status, struct {
		Status string `json:"status"`
	}{state.String()})
}

// modelObject is one entry of the list of models. Clients look for the context under three names.
type modelObject struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Owner   string          `json:"owned_by"`
	Device  engine.Device   `json:"device"`
	Why     string          `json:"device_reason,omitempty"`
	Context int             `json:"context_length,omitempty"`
	MaxLen  int             `json:"max_model_len,omitempty"`
	Meta    json.RawMessage `json:"meta,omitempty"`
}

func (g *Gateway) object() modelObject {
	m := g.cfg.Model
	o := modelObject{ID: m.Name, Object: "model", Created: m.Created.Unix(), Owner: "1bit", Device: m.Device, Why: m.Why}
	if b, ok := m.Backend.(informer); ok {
		info := b.Info()
		o.Context, o.MaxLen, o.Meta = info.Context, info.Context, info.Meta
	}
	return o
}

// models lists the one model, also while it loads.
func (g *Gateway) models(w *reply, _ *http.Request) error {
	return write(w, http.StatusOK, struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{"list", []modelObject{g.object()}})
}

// model shows one model by its name, which may hold slashes.
func (g *Gateway) model(w *reply, r *http.Request) error {
	name := strings.TrimPrefix(canonical(r.URL.Path), "/models/")
	if name != g.cfg.Model.Name {
		return &wire.Error{Status: http.StatusNotFound, Type: wire.TypeInvalid, Param: "model", Code: "model_not_found", Message: "the model " + name + " does not exist; " + g.cfg.Model.Name + " does"}
	}
	return write(w, http.StatusOK, g.object())
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
