package edge_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"onebit/appliance/edge"
	"onebit/engine"
)

func TestGuard(t *testing.T) {
	for _, c := range []struct {
		name         string
		loopback     bool
		method       string
		host, origin string
		want         int
	}{
		{"plain", true, "POST", "127.0.0.1:8000", "", 200},
		{"localhost", true, "POST", "localhost:8000", "", 200},
		{"upper case, final dot", true, "GET", "LocalHost.:8000", "", 200},
		{"below localhost", true, "GET", "box.localhost:8000", "", 200},
		{"127/8", true, "GET", "127.8.9.1", "", 200},
		{"IPv6", true, "GET", "[::1]:8000", "", 200},
		{"IPv6 without port", true, "GET", "[::1]", "", 200},
		{"no host", true, "GET", "", "", 200},
		{"foreign host", true, "GET", "evil.test", "", 403},
		{"foreign host with our port", true, "GET", "evil.test:8000", "", 403},
		{"hidden in the name", true, "GET", "127.0.0.1.evil.test", "", 403},
		{"localhost as a prefix", true, "GET", "localhost.evil.test", "", 403},
		{"a LAN address", true, "GET", "192.168.1.5:8000", "", 403},
		{"short form of an address", true, "GET", "127.1:8000", "", 403},
		{"foreign host on a LAN address", false, "GET", "box.lan:8000", "", 200},
		{"foreign origin", true, "POST", "127.0.0.1:8000", "https://evil.test", 403},
		{"foreign origin, reading", true, "GET", "127.0.0.1:8000", "https://evil.test", 200},
		{"foreign origin, deleting", false, "DELETE", "box.lan:8000", "https://evil.test", 403},
		{"page of this machine", true, "POST", "127.0.0.1:8000", "http://localhost:3000", 200},
		{"page of this machine to the LAN address", false, "POST", "box.lan:8000", "http://127.0.0.1:3000", 200},
		{"same host", false, "POST", "box.lan:8000", "http://box.lan:8000", 200},
		{"same host, other case", false, "POST", "Box.lan:8000", "http://box.LAN:8000", 200},
		{"same host, default port", false, "POST", "box.lan", "http://box.lan", 200},
		{"same host, default port written", false, "POST", "box.lan:443", "https://box.lan", 200},
		{"same host, other port", false, "POST", "box.lan:8000", "http://box.lan:9000", 403},
		{"null", true, "POST", "127.0.0.1:8000", "null", 403},
		{"not a URL", true, "POST", "127.0.0.1:8000", "http://[::1", 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := edge.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), c.loopback)
			r := httptest.NewRequest(c.method, "/v1/models", nil)
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("got %d, want %d", w.Code, c.want)
			}
			if c.want == 403 && !strings.HasPrefix(w.Body.String(), `{"error":{"message":`) {
				t.Errorf("body %s is no error object", w.Body)
			}
		})
	}
}

// listen starts a server whose handler is h, and returns its address, a stop, and the result of Serve.
func listen(t *testing.T, h http.HandlerFunc, drain time.Duration) (url string, stop context.CancelFunc, result <-chan error) {
	t.Helper()
	s, err := edge.Listen(t.Context(), edge.Config{Host: "127.0.0.1", Drain: drain, Log: slog.New(slog.DiscardHandler)}, h)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Loopback() {
		t.Error("127.0.0.1 is not loopback")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(cancel)
	return s.URL(), cancel, done
}

func TestServeLetsAnswersEnd(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	url, stop, result := listen(t, func(w http.ResponseWriter, r *http.Request) {
		begun <- true
		<-end
		io.WriteString(w, "whole")
	}, time.Minute)
	body := make(chan string)
	go func() {
		res, err := http.Get(url)
		if err != nil {
			body <- err.Error()
			return
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		body <- string(b)
	}()
	<-begun
	stop()
	end <- true
	if got := <-body; got != "whole" {
		t.Errorf("got %q", got)
	}
	if err := <-result; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

func TestServeCutsWhatDoesNotEnd(t *testing.T) {
	begun, cause := make(chan bool), make(chan error, 1)
	url, stop, result := listen(t, func(w http.ResponseWriter, r *http.Request) {
		begun <- true
		<-r.Context().Done()
		cause <- context.Cause(r.Context())
	}, time.Millisecond)
	go func() {
		if res, err := http.Get(url); err == nil {
			res.Body.Close()
		}
	}()
	<-begun
	stop()
	if _, ok := errors.AsType[*engine.UnavailableError](<-cause); !ok {
		t.Error("the handler was not told that the server stops")
	}
	if err := <-result; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

func TestListenTaken(t *testing.T) {
	s, err := edge.Listen(t.Context(), edge.Config{Host: "127.0.0.1", Log: slog.New(slog.DiscardHandler)}, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var port int
	for _, c := range s.URL()[strings.LastIndexByte(s.URL(), ':')+1:] {
		port = port*10 + int(c-'0')
	}
	if _, err := edge.Listen(t.Context(), edge.Config{Host: "127.0.0.1", Port: port}, nil); err == nil || !strings.HasPrefix(err.Error(), "cannot listen on 127.0.0.1:") {
		t.Errorf("got %v", err)
	}
}
