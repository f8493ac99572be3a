package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"onebit/appliance/admin"
	"onebit/appliance/auth"
	"onebit/appliance/gateway"
	"onebit/appliance/shelf"
)

// serve answers one request of the network: the door, the control plane, or the data plane.
func (b *box) serve(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case path == "/":
		b.front(w, r)
	case b.auth.Answers(path):
		b.noted(b.auth.Handler(), w, r)
	case strings.HasPrefix(path, admin.Prefix+"/"):
		b.noted(b.admin, w, r)
	case shelf.Answers(path):
		b.noted(b.shelves.api, w, r)
	default:
		b.api.Load().ServeHTTP(w, r)
	}
}

// noted has a request answered by the door or the control plane, and writes one line about it to the log, as the data
// plane does of its own. What only looks, and may, comes often and says little.
func (b *box) noted(h http.Handler, w http.ResponseWriter, r *http.Request) {
	begin, out := time.Now(), &answered{ResponseWriter: w}
	id, own := gateway.RequestID(r.Header.Get("X-Request-Id"))
	w.Header().Set("X-Request-Id", id)
	defer func() {
		level := slog.LevelInfo
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && out.status < 400 {
			level = slog.LevelDebug
		}
		attrs := []slog.Attr{
			slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", cmp.Or(out.status, http.StatusOK)),
			slog.Duration("took", time.Since(begin).Round(100*time.Microsecond)), slog.String("id", own),
		}
		if id != own {
			attrs = append(attrs, slog.String("client_id", id))
		}
		b.log.LogAttrs(r.Context(), level, "request", attrs...)
	}()
	h.ServeHTTP(out, r)
}

// answered is an answer whose status is remembered.
type answered struct {
	http.ResponseWriter
	status int // 0 while nothing was written
}

func (w *answered) WriteHeader(status int) {
	w.status = cmp.Or(w.status, status)
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answered) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// front sends a visitor where they can go on.
func (b *box) front(w http.ResponseWriter, r *http.Request) {
	to := "/login"
	if claimed, err := b.auth.IsClaimed(r.Context()); err == nil && !claimed {
		to = "/claim"
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// socketName is the box's own socket in its state directory.
const socketName = "admin.sock"

// listenSocket opens the socket that the command line of this machine uses. Only the box's own user can reach it.
func listenSocket(ctx context.Context, state string) (net.Listener, error) {
	path := filepath.Join(state, socketName)
	// the store holds the directory's lock, so whoever left a socket here is gone
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing the old socket: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EINVAL) {
		return nil, fmt.Errorf("the path of the box's own socket, %s, is too long for this system (%d bytes; about 100 can be): choose a shorter --state", path, len(path))
	}
	if err != nil {
		return nil, fmt.Errorf("opening the box's own socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("closing the box's own socket to others: %w", err), l.Close())
	}
	return l, nil
}

// serveSocket answers the box's own socket until ctx ends.
func (b *box) serveSocket(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.serve(w, r.WithContext(auth.With(r.Context(), auth.Local())))
		}),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the box's own socket: %w", err)
	}
	return nil
}

// look is how often the configuration file is looked at.
const look = time.Second

// watch reads the configuration again on SIGHUP and when its file has changed. A file that is being written is left
// until it has stayed the same from one look to the next: half of it, or none, is a configuration too.
func (b *box) watch(ctx context.Context) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, hangupSignals()...)
	defer signal.Stop(hangup)
	tick := time.NewTicker(look)
	defer tick.Stop()
	last := b.stamp()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
		case <-tick.C:
			now := b.stamp()
			steady := now == last
			last = now
			if seen := b.seen.Load(); !steady || now == *seen {
				continue
			}
			if !exists(b.options.path()) { // by mistake, or a drive that is away: a box without one would move and lose its models
				b.seen.Store(&now)
				b.log.Error("the configuration is gone; it stays in force until the next start, or until it is read again on purpose", "file", b.options.path())
				b.problems.set("reload", "the configuration is gone, and stays in force until the next start: "+b.options.path())
				continue
			}
		}
		_ = b.reload(ctx) // it has told the log and the status
	}
}

// stamp is what changes when the configuration file or the file with the routing policy does, or another one is there.
func (b *box) stamp() string { return b.options.stamp() + stampOf(b.policyFile.Load()) }

// stamp is what changes when a configuration file does, or another one is there.
func (o boxOptions) stamp() string {
	paths := []string{o.file}
	if o.file == "" {
		paths = []string{filepath.Join(o.state, configNames[0]), filepath.Join(o.state, configNames[1])}
	}
	var all strings.Builder
	for _, path := range paths {
		all.WriteString(stampOf(&path))
	}
	return all.String()
}

func stampOf(path *string) string {
	if path != nil && *path != "" {
		if info, err := os.Stat(*path); err == nil {
			return fmt.Sprint(info.Size(), " ", info.ModTime().UnixNano(), " ", info.Mode(), ";")
		}
	}
	return ";"
}
