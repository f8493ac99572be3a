package edge_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"onebit/appliance/edge"
	"onebit/engine"
)

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
