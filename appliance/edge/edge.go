// Package edge is where the network begins: it listens, guards against pages of other sites that talk to us through a
// visitor's browser, and ends politely.
package edge

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"onebit/engine"
	"onebit/engine/door"
)

// unread is how long the rest of a body may take that nothing wanted.
const unread = 5 * time.Second

// Config says where to listen.
type Config struct {
	Host  string
	Port  int           // 0 takes a free one
	Drain time.Duration // how long running answers may take when the server stops
	Log   *slog.Logger
}

// Server is one listening address. It serves plain HTTP/1.1.
type Server struct {
	cfg      Config
	listener net.Listener
	handler  http.Handler
}

// Listen takes the address and serves nothing yet. An address on loopback gets the guard against foreign host names.
func Listen(ctx context.Context, cfg Config, handler http.Handler) (*Server, error) {
	addr := net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	s := &Server{cfg: cfg, listener: l}
	s.handler = door.Guard(door.Bodies(handler, 0, unread), s.Loopback())
	return s, nil
}

// Loopback reports whether only this machine can reach the server.
func (s *Server) Loopback() bool {
	a, ok := s.listener.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// URL is an address at which this machine reaches the server, without a final slash.
func (s *Server) URL() string {
	a, ok := s.listener.Addr().(*net.TCPAddr)
	if !ok {
		return "http://" + s.listener.Addr().String()
	}
	host := a.IP.String()
	if a.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(a.Port))
}

// Serve answers requests until ctx ends. Then it takes no more, lets running answers end for as long as Drain says, and
// cuts what is left: the context of such a request ends with an *engine.UnavailableError as its cause, and the handler
// has a second to say so. It closes the listener and returns nil after a stop.
func (s *Server) Serve(ctx context.Context) error {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	var group sync.WaitGroup
	group.Go(func() { failed <- server.Serve(s.listener) })
	defer group.Wait()
	defer func() { _ = server.Close() }() // nothing is left to do about what it says
	select {
	case err := <-failed:
		return fmt.Errorf("serving on %s: %w", s.listener.Addr(), err)
	case <-ctx.Done():
	}
	if shut(server, s.cfg.Drain) != nil {
		cut(&engine.UnavailableError{Reason: "the server is stopping"})
		if err := shut(server, time.Second); err != nil {
			s.cfg.Log.Warn("some answers did not end", "why", err)
		}
	}
	return nil
}

// shut waits for running requests.
func shut(server *http.Server, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return server.Shutdown(ctx)
}

// Close gives the address up when Serve was never called.
func (s *Server) Close() error { return s.listener.Close() }
