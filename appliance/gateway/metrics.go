package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"onebit/engine"
)

// bounds are the upper ends of the histogram of times to the first byte, in seconds.
var bounds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}

// metrics are what the gateway counts of itself. Backends are asked when the metrics are.
type metrics struct {
	inFlight atomic.Int64
	events   atomic.Uint64

	mu       sync.Mutex
	outcomes map[outcome]uint64
	first    map[string]*histogram // by route
	tokens   [3]uint64             // of prompts, of those cached, generated
}

type outcome struct {
	route  string
	status int
}

// histogram counts seconds by bounds; the last bucket is for what is above all of them.
type histogram struct {
	buckets [len(bounds) + 1]uint64
	sum     float64
}

// count takes note of a request that has ended.
func (m *metrics) count(route string, w *reply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.outcomes == nil {
		m.outcomes, m.first = map[outcome]uint64{}, map[string]*histogram{}
	}
	m.outcomes[outcome{route, w.outcome()}]++
	m.tokens[0] += uint64(w.usage.Prompt)
	m.tokens[1] += uint64(w.usage.Cached)
	m.tokens[2] += uint64(w.usage.Completion)
	if w.status == 0 {
		return
	}
	h := m.first[route]
	if h == nil {
		h = &histogram{}
		m.first[route] = h
	}
	seconds := w.first.Seconds()
	i, _ := slices.BinarySearch(bounds[:], seconds)
	h.buckets[i]++
	h.sum += seconds
}

// restarter is a backend that is started again when it ends.
type restarter interface{ Restarts() int }

// exposition answers /metrics in Prometheus's text format.
func (g *Gateway) exposition(w *reply, _ *http.Request) error {
	var b bytes.Buffer
	g.metrics.write(&b)
	if g.cfg.Fleet != nil {
		g.fleetMetrics(&b)
	} else {
		g.backends(&b)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, err := w.Write(b.Bytes())
	return err
}

// family writes the head of a metric.
func family(b *bytes.Buffer, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (m *metrics) write(b *bytes.Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	family(b, "onebit_requests_total", "counter", "Requests that have ended, by route and status (499: the client went first).")
	for _, o := range sorted(m.outcomes, func(x, y outcome) int {
		return cmp.Or(cmp.Compare(x.route, y.route), cmp.Compare(x.status, y.status))
	}) {
		fmt.Fprintf(b, "onebit_requests_total{route=%q,status=\"%d\"} %d\n", o.route, o.status, m.outcomes[o])
	}
	family(b, "onebit_requests_in_flight", "gauge", "Requests that are being answered.")
	fmt.Fprintf(b, "onebit_requests_in_flight %d\n", m.inFlight.Load())
	family(b, "onebit_events_relayed_total", "counter", "Events of streamed answers that were passed on.")
	fmt.Fprintf(b, "onebit_events_relayed_total %d\n", m.events.Load())
	family(b, "onebit_tokens_total", "counter", "Tokens of ended requests: of prompts, of those the cached ones, and generated.")
	for i, kind := range []string{"prompt", "cached", "completion"} {
		fmt.Fprintf(b, "onebit_tokens_total{kind=%q} %d\n", kind, m.tokens[i])
	}
	const name = "onebit_time_to_first_byte_seconds"
	family(b, name, "histogram", "From a request's arrival to the first byte of its answer.")
	for _, route := range sorted(m.first, cmp.Compare[string]) {
		h, total := m.first[route], uint64(0)
		for i, n := range h.buckets {
			total += n
			le := "+Inf"
			if i < len(bounds) {
				le = strconv.FormatFloat(bounds[i], 'g', -1, 64)
			}
			fmt.Fprintf(b, "%s_bucket{route=%q,le=%q} %d\n", name, route, le, total)
		}
		fmt.Fprintf(b, "%s_sum{route=%q} %g\n%s_count{route=%q} %d\n", name, route, h.sum, name, route, total)
	}
}

// sorted returns the keys of a map in order.
func sorted[K comparable, V any](m map[K]V, order func(x, y K) int) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, order)
	return keys
}

// backends writes where the backends stand and what they have taken.
func (g *Gateway) backends(b *bytes.Buffer) {
	label := func(s *server) string { return fmt.Sprintf("backend=%q,device=%q", s.label, s.Device) }
	family(b, "onebit_backend_state", "gauge", "1 for the state that a backend is in.")
	for _, s := range g.servers {
		now := s.Backend.State()
		for _, state := range []engine.State{engine.Loading, engine.Ready, engine.Down, engine.Stopped} {
			in := 0
			if state == now {
				in = 1
			}
			fmt.Fprintf(b, "onebit_backend_state{%s,state=%q} %d\n", label(s), state, in)
		}
	}
	family(b, "onebit_backend_restarts_total", "counter", "How often a backend was started again.")
	for _, s := range g.servers {
		if r, ok := s.Backend.(restarter); ok {
			fmt.Fprintf(b, "onebit_backend_restarts_total{%s} %d\n", label(s), r.Restarts())
		}
	}
	g.places.mu.Lock()
	defer g.places.mu.Unlock()
	family(b, "onebit_backend_requests_total", "counter", "Requests that a backend has taken.")
	for _, s := range g.servers {
		fmt.Fprintf(b, "onebit_backend_requests_total{%s} %d\n", label(s), s.taken)
	}
	family(b, "onebit_backend_requests_in_flight", "gauge", "Requests that a backend holds, running or waiting inside it.")
	for _, s := range g.servers {
		fmt.Fprintf(b, "onebit_backend_requests_in_flight{%s} %d\n", label(s), s.held)
	}
}
