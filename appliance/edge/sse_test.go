package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"onebit/engine"
)

// events is a handler that streams an event for each value of its channel, and reports how it ended.
type events struct {
	next  chan string
	ended chan error
}

func newEvents() *events {
	return &events{next: make(chan string), ended: make(chan error, 1)}
}

func (e *events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if err := c.Flush(); err != nil {
		e.ended <- err
		return
	}
	for {
		select {
		case <-r.Context().Done():
			e.ended <- context.Cause(r.Context())
			return
		case text, more := <-e.next:
			if !more {
				e.ended <- nil
				return
			}
			if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
				e.ended <- err
				return
			}
			if err := c.Flush(); err != nil {
				e.ended <- err
				return
			}
		}
	}
}

// open begins a stream and reads its first event.
func (e *events) open(t *testing.T, ctx context.Context, c *http.Client) (*http.Response, *bufio.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", "https://testbox.local/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	e.next <- "first"
	in := bufio.NewReader(res.Body)
	if line, err := in.ReadString('\n'); line != "data: first\n" {
		t.Fatalf("the first event is %q, %v", line, err)
	}
	return res, in
}

func TestStreamSeesItsClientGo(t *testing.T) {
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) {
			e := newEvents()
			b := serve(t, config(), e)
			ctx, cancel := context.WithCancel(t.Context())
			e.open(t, ctx, b.client(t, p))
			cancel()
			if err := <-e.ended; err == nil {
				t.Error("the handler ended by itself")
			}
		})
	}
}

func TestStreamSeesItsConnectionGo(t *testing.T) {
	e := newEvents()
	b := serve(t, config(), e)
	c := b.client(t, "h3")
	e.open(t, t.Context(), c)
	c.Transport.(*http3.Transport).Close()
	if err := <-e.ended; err == nil {
		t.Error("the handler ended by itself")
	}
}

// TestStreamEndsForStalledReader writes to a client that does not read. What had been sent before ends in an error at
// the client, never in something that looks whole.
func TestStreamEndsForStalledReader(t *testing.T) {
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) {
			type end struct {
				err, cause error
			}
			ended := make(chan end, 1)
			cfg := config()
			cfg.WriteTimeout = 200 * time.Millisecond
			b := serve(t, cfg, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				piece := make([]byte, 64<<10)
				for {
					if _, err := w.Write(piece); err != nil {
						ended <- end{err, context.Cause(r.Context())}
						return
					}
				}
			}))
			res, err := b.client(t, p).Get("https://testbox.local/")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			got := <-ended
			if got.err == nil || got.cause == nil {
				t.Errorf("writing ended with %v, the context with %v", got.err, got.cause)
			}
			if _, err := io.Copy(io.Discard, res.Body); err == nil {
				t.Error("the client believes that it has everything")
			}
		})
	}
}

func TestStreamEndsWholeBeforeStop(t *testing.T) {
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) {
			e := newEvents()
			b := serve(t, config(), e)
			c := b.client(t, p)
			_, in := e.open(t, t.Context(), c)
			b.stop()
			for refused := false; !refused; { // the end of taking requests is seen from outside only
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				r, _ := http.NewRequestWithContext(ctx, "GET", "https://testbox.local/", nil)
				res, err := b.client(t, p).Do(r)
				if refused = err != nil; !refused {
					res.Body.Close()
					<-e.ended
				}
				cancel()
			}
			for i := range 10 {
				e.next <- fmt.Sprint(i)
			}
			close(e.next)
			rest, err := io.ReadAll(in)
			if want := "\ndata: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\ndata: 5\n\ndata: 6\n\ndata: 7\n\ndata: 8\n\ndata: 9\n\n"; string(rest) != want || err != nil {
				t.Errorf("the client got %q, %v", rest, err)
			}
			if err := <-e.ended; err != nil {
				t.Errorf("the handler ended with %v", err)
			}
			if err := <-b.result; err != nil {
				t.Errorf("Serve = %v", err)
			}
		})
	}
}

func TestStreamIsCutAfterDrain(t *testing.T) {
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) {
			e := newEvents()
			cfg := config()
			cfg.Drain = 10 * time.Millisecond
			b := serve(t, cfg, e)
			_, in := e.open(t, t.Context(), b.client(t, p))
			b.stop()
			if _, ok := errors.AsType[*engine.UnavailableError](<-e.ended); !ok {
				t.Error("the handler was not told that the box stops")
			}
			if err := <-b.result; err != nil {
				t.Errorf("Serve = %v", err)
			}
			io.Copy(io.Discard, in) // ends
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			r, _ := http.NewRequestWithContext(ctx, "GET", "https://testbox.local/", nil)
			if res, err := b.client(t, p).Do(r); err == nil {
				res.Body.Close()
				t.Error("the box answers after its end")
			}
		})
	}
}

// TestStopDoesNotWaitForIdleClients keeps connections open that ask nothing.
func TestStopDoesNotWaitForIdleClients(t *testing.T) {
	cfg := config()
	cfg.Drain = time.Hour
	b := serve(t, cfg, says("x"))
	for _, p := range protocols {
		get(t, b.client(t, p), "https://testbox.local/")
	}
	b.stop()
	if err := <-b.result; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

// TestStopDoesNotWaitForDeafHandlers stops while a handler ignores that its context has ended.
func TestStopDoesNotWaitForDeafHandlers(t *testing.T) {
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) {
			begun, end := make(chan bool), make(chan bool)
			defer close(end)
			cfg := config()
			cfg.Drain = 10 * time.Millisecond
			b := serve(t, cfg, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				begun <- true
				<-end
			}))
			go func() {
				if res, err := b.client(t, p).Get("https://testbox.local/"); err == nil {
					res.Body.Close()
				}
			}()
			<-begun
			b.stop()
			if err := <-b.result; err != nil {
				t.Errorf("Serve = %v", err)
			}
		})
	}
}
