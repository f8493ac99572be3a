package edge_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/edge"
)

// slow is a client whose reading and writing take as long as a test says. A deadline ends a wait, as a connection's does.
type slow struct {
	http.ResponseWriter
	take func() time.Duration // for the next write

	mu      sync.Mutex
	changed chan struct{} // closed when a deadline changes
	write   time.Time
	set     []time.Time // every write deadline
}

func newSlow(take func() time.Duration) *slow {
	return &slow{ResponseWriter: httptest.NewRecorder(), take: take, changed: make(chan struct{})}
}

func (s *slow) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write, s.set = t, append(s.set, t)
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func (s *slow) SetReadDeadline(time.Time) error { return nil }

// Write takes its time, or until the deadline.
func (s *slow) Write(b []byte) (int, error) {
	done := time.After(s.take())
	for {
		s.mu.Lock()
		deadline, changed := s.write, s.changed
		s.mu.Unlock()
		var late <-chan time.Time
		if !deadline.IsZero() {
			late = time.After(time.Until(deadline))
		}
		select {
		case <-done:
			return s.ResponseWriter.Write(b)
		case <-late:
			return 0, os.ErrDeadlineExceeded
		case <-changed:
		}
	}
}

func (s *slow) Flush() {}

func request() *http.Request { return httptest.NewRequest("POST", "/", nil) }

func TestPaceLetsLongAnswersBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow(func() time.Duration { return 9 * time.Second })
		h := edge.Pace(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i := range 20 { // three minutes of taking, and hours of silence
				time.Sleep(time.Hour)
				if _, err := io.WriteString(w, "event"); err != nil {
					t.Errorf("write %d: %v", i, err)
				}
			}
			if r.Context().Err() != nil {
				t.Error("the context ended")
			}
		}), 10*time.Second, 10*time.Second)
		h.ServeHTTP(s, request())
	})
}

func TestPaceEndsStalledAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := time.Second
		s := newSlow(func() time.Duration { return wait })
		h := edge.Pace(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "taken")
			wait = time.Hour
			begin := time.Now()
			_, err := io.WriteString(w, "not taken")
			if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 10*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
			if r.Context().Err() == nil || errors.Is(context.Cause(r.Context()), context.Canceled) {
				t.Errorf("the context says %v", context.Cause(r.Context()))
			}
		}), time.Minute, 10*time.Second)
		h.ServeHTTP(s, request())
		if last := s.set[len(s.set)-1]; last.After(time.Now()) {
			t.Error("a stalled client gets more time after the handler")
		}
	})
}

func TestPaceBoundsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow(func() time.Duration { return 0 })
		edge.Pace(says("x"), time.Minute, 10*time.Second).ServeHTTP(s, request())
		if len(s.set) != 2 || !s.set[0].IsZero() || time.Until(s.set[1]) != 10*time.Second {
			t.Errorf("deadlines: %v", s.set)
		}
		synctest.Wait()
	})
}

// TestPaceEndsSlowBodies sends nothing for too long, to each protocol.
func TestPaceEndsSlowBodies(t *testing.T) {
	cfg := config()
	cfg.ReadTimeout = 100 * time.Millisecond
	result := make(chan error, 1)
	b := serve(t, cfg, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		result <- err
	}))
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) {
			body, hold := io.Pipe()
			defer hold.Close()
			go func() {
				io.WriteString(hold, "begun")
			}()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, _ := http.NewRequestWithContext(ctx, "POST", "https://testbox.local/", body)
			go func() {
				if res, err := b.client(t, p).Do(r); err == nil {
					res.Body.Close()
				}
			}()
			if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("reading ended with %v", err)
			}
		})
	}
}

// TestPaceKeepsStreamsAfterBodies reads a body, then streams for longer than a body's piece may take.
func TestPaceKeepsStreamsAfterBodies(t *testing.T) {
	cfg := config()
	cfg.ReadTimeout, cfg.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond
	b := serve(t, cfg, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.ReadFull(r.Body, make([]byte, 3)) // the rest is left unread
		c := http.NewResponseController(w)
		for range 3 {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(80 * time.Millisecond):
			}
			io.WriteString(w, "event ")
			c.Flush()
		}
	}))
	for _, p := range protocols {
		c := b.client(t, p)
		for range 2 { // the second over the connection of the first
			res, err := c.Post("https://testbox.local/", "text/plain", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			res.Body.Close()
			if string(got) != "event event event " || err != nil {
				t.Errorf("%s: %q, %v", p, got, err)
			}
		}
	}
}

func TestPaceHandsConnectionsOver(t *testing.T) {
	cfg := config()
	cfg.WriteTimeout = 50 * time.Millisecond
	b := serve(t, cfg, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			defer conn.Close()
			time.Sleep(100 * time.Millisecond) // longer than a write may take
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nup")
		}()
	}))
	if _, body := get(t, b.client(t, "h1"), "https://testbox.local/"); body != "up" {
		t.Errorf("got %q", body)
	}
}
