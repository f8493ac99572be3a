package gateway_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/engine"
)

// sink is a connection that takes everything.
type sink struct{ h http.Header }

func (s sink) Header() http.Header              { return s.h }
func (sink) WriteHeader(int)                    {}
func (sink) Write(b []byte) (int, error)        { return len(b), nil }
func (sink) Flush()                             {}
func (sink) SetWriteDeadline(_ time.Time) error { return nil }
func (sink) SetReadDeadline(_ time.Time) error  { return nil }

// TestEventsDoNotAllocate holds that a relayed event costs no allocation: those of a stream do not depend on its length.
func TestEventsDoNotAllocate(t *testing.T) {
	event := []byte(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"child","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`)
	allocations := func(n int) float64 {
		b := &scripted{state: engine.Ready, generate: func(_ context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
			for range n {
				if err := emit(engine.Chunk{Raw: event}); err != nil {
					return engine.Usage{}, err
				}
			}
			return engine.Usage{}, nil
		}}
		g, err := gateway.New(gateway.Config{Model: gateway.Model{Name: "served", Backend: b}, Limits: config.Defaults(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(20, func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", io.NopCloser(strings.NewReader(body("", true))))
			if err != nil {
				t.Fatal(err)
			}
			g.ServeHTTP(sink{http.Header{}}, r)
		})
	}
	// the race detector and the clock add a few of their own
	if few, many := allocations(10), allocations(2000); many > few+20 {
		t.Errorf("10 events take %v allocations and 2000 events %v", few, many)
	}
}

func BenchmarkRelayedEvent(b *testing.B) {
	event := []byte(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"child","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`)
	back := &scripted{state: engine.Ready, generate: func(_ context.Context, _ int, emit func(engine.Chunk) error) (engine.Usage, error) {
		for b.Loop() {
			if err := emit(engine.Chunk{Raw: event}); err != nil {
				return engine.Usage{}, err
			}
		}
		return engine.Usage{}, nil
	}}
	g, err := gateway.New(gateway.Config{Model: gateway.Model{Name: "served", Backend: back}, Limits: config.Defaults(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body("", true)))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	g.ServeHTTP(sink{http.Header{}}, r)
}
