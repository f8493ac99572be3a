package gateway

import (
	"bytes"
	"net/http"

	"onebit/appliance/telemetry"
	"onebit/engine"
)

// restarter is a backend that is started again when it ends.
type restarter interface{ Restarts() int }

// exposition answers /metrics in Prometheus's text format. Backends are asked when the metrics are.
func (g *Gateway) exposition(w *reply, _ *http.Request) error {
	families := g.backends
	if g.cfg.Fleet != nil {
		families = g.fleetFamilies
	}
	var b bytes.Buffer
	if err := g.cfg.Metrics.Write(&b, families()...); err != nil {
		return err
	}
	w.Header().Set("Content-Type", telemetry.ContentType)
	_, err := w.Write(b.Bytes())
	return err
}

// backends are where the backends stand and what they have taken.
func (g *Gateway) backends() []telemetry.Family {
	labels := []string{"backend", "device"}
	state := telemetry.Family{Name: "onebit_backend_state", Help: "1 for the state that a backend is in.", Labels: append(labels[:2:2], "state")}
	restarts := telemetry.Family{Name: "onebit_backend_restarts_total", Help: "How often a backend was started again.", Counter: true, Labels: labels}
	taken := telemetry.Family{Name: "onebit_backend_requests_total", Help: "Requests that a backend has taken.", Counter: true, Labels: labels}
	held := telemetry.Family{Name: "onebit_backend_requests_in_flight", Help: "Requests that a backend holds, running or waiting inside it.", Labels: labels}
	value := func(s *server, n float64, more ...string) telemetry.Value {
		return telemetry.Value{Labels: append([]string{s.label, string(s.Device)}, more...), Value: n}
	}
	for _, s := range g.servers {
		now := s.Backend.State()
		for _, in := range []engine.State{engine.Loading, engine.Ready, engine.Down, engine.Stopped} {
			state.Values = append(state.Values, value(s, telemetry.Bool(in == now), in.String()))
		}
		if r, ok := s.Backend.(restarter); ok {
			restarts.Values = append(restarts.Values, value(s, float64(r.Restarts())))
		}
	}
	g.places.mu.Lock()
	defer g.places.mu.Unlock()
	for _, s := range g.servers {
		taken.Values = append(taken.Values, value(s, float64(s.taken)))
		held.Values = append(held.Values, value(s, float64(s.held)))
	}
	return []telemetry.Family{state, restarts, taken, held}
}
