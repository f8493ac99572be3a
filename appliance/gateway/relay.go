package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"onebit/engine"
	"onebit/engine/wire"
)

// relayer is a backend that has more routes than the common ones, reached as they are.
type relayer interface {
	Relay(*http.Request) (*http.Response, error)
}

// hasExtras reports whether the servers of a device have llama-server's further routes.
func hasExtras(d engine.Device) bool {
	switch d {
	case engine.CPU, engine.Vulkan, engine.HRX, engine.ROCm:
		return true
	}
	return false
}

// extra answers llama-server's own routes, from the first backend.
func (g *Gateway) extra(w *reply, r *http.Request) error {
	if g.cfg.Fleet != nil {
		return g.fleetExtra(w, r)
	}
	if !hasExtras(g.first.Device) {
		return errors.ErrUnsupported
	}
	return g.relay(w, r, g.first, canonical(r.URL.Path))
}

// slot answers what is done to one slot, by its number.
func (g *Gateway) slot(w *reply, r *http.Request) error {
	if _, err := strconv.ParseUint(strings.TrimPrefix(canonical(r.URL.Path), "/slots/"), 10, 31); err != nil {
		return &wire.Error{Status: http.StatusNotFound, Type: "not_found_error", Code: "unknown_path", Message: "there is nothing at " + r.URL.Path}
	}
	return g.extra(w, r)
}

// upstream answers a backend's own metrics, by the name that ours give it.
func (g *Gateway) upstream(w *reply, r *http.Request) error {
	label := strings.TrimSuffix(strings.TrimPrefix(canonical(r.URL.Path), "/upstream/"), "/metrics")
	var names []string
	servers := g.servers
	if g.cfg.Fleet != nil {
		for _, l := range g.seen(r.Context()) {
			if l.Backend != nil {
				servers = append(servers, &server{Model: Model{Name: l.Name, Device: l.Device, Backend: l.Backend}, label: l.Name})
			}
		}
	}
	for _, s := range servers {
		if s.label == label {
			return g.relay(w, r, s, "/metrics")
		}
		names = append(names, s.label)
	}
	return &wire.Error{
		Status: http.StatusNotFound, Type: "not_found_error", Code: "unknown_backend",
		Message: "there is no backend " + label + "; there is " + strings.Join(names, ", "),
	}
}

// relay passes a request of one of the backend's own routes on and its answer back, unchanged but for errors, which
// become our error object.
func (g *Gateway) relay(w *reply, r *http.Request, s *server, path string) error {
	ctx, cancel := g.deadline(r.Context())
	defer cancel()
	body, err := g.body(w, r)
	if err != nil {
		return err
	}
	if body, err = g.media(body); err != nil {
		return err
	}
	return g.relayBody(ctx, w, r, s, path, body)
}

// relayBody does so with a body that was read.
func (g *Gateway) relayBody(ctx context.Context, w *reply, r *http.Request, s *server, path string, body []byte) error {
	backend, ok := s.Backend.(relayer)
	if !ok {
		return errors.ErrUnsupported
	}
	if err := g.ready(ctx, s); err != nil {
		return err
	}
	in := r.Clone(ctx)
	in.URL.Path, in.URL.RawPath = path, ""
	in.Body, in.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	in.Header.Set("X-Request-Id", w.id)
	in.Header.Set(engine.ScopeHeader, g.scope(ctx))
	res, err := backend.Relay(in)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound {
		return errors.ErrUnsupported // this backend does not know the route
	}
	if res.StatusCode >= 400 {
		return refused(res)
	}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if value := res.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(res.StatusCode)
	return g.copy(w, res)
}

// refused reads a backend's refusal.
func refused(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return errors.Join(engine.ErrLost, err)
	}
	e := &engine.StatusError{Status: res.StatusCode, Body: body}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}

// copy passes an answer on as it comes. When it breaks off, an event stream gets an error event, and any other answer
// a broken connection: the client must not take it for whole.
func (g *Gateway) copy(w *reply, res *http.Response) error {
	control := http.NewResponseController(w)
	buf := make([]byte, 16<<10)
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if err := control.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return g.brokeOff(w, fmt.Errorf("%w: %w", engine.ErrLost, err))
		}
	}
}

// brokeOff ends a relayed answer whose rest will not come.
func (g *Gateway) brokeOff(w *reply, err error) error {
	if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		event := append([]byte("\n\n"), wire.AppendEvent(nil, g.problem(w, err).Append(nil))...) // whatever line was begun ends here
		_, _ = w.Write(event)
		return err
	}
	w.broken = true
	return err
}
