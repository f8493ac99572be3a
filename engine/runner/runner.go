// Package runner is the built-in engine as a server: one model, its slots with
// continuous batching, and llama-server's dialect over HTTP.
//
// A request is read and turned into tokens in its own goroutine, queued, and
// answered from the events of the scheduler's goroutine, which alone uses the
// model. Nothing but forward passes waits for a forward pass.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"onebit/engine/batch"
	"onebit/engine/door"
	"onebit/engine/model"
)

// Config says what is served and how.
type Config struct {
	Model   string // path of the model file
	Host    string // address to listen on; "" is 127.0.0.1
	Port    int    // 0 is any free port
	Alias   string // name of the model for clients; "" is the path
	Version string // of the program, for system_fingerprint

	// Context is the number of tokens that all slots hold together; 0 is the
	// context that the model was trained with for each slot, within memory.
	Context int
	// Parallel is the number of slots; 0 lets the engine choose, and then each
	// slot holds Context.
	Parallel int
	// Pooling is how a model that makes vectors pools them, in the words of
	// model.Pooling; "" is as its file says.
	Pooling string
	// Threads and BatchThreads are the workers of passes over few tokens and
	// over many; 0 is what suits the machine, or for the second the first.
	Threads, BatchThreads int

	// SlotDir is a folder in which the state of slots is kept when a client asks for it; "" for nowhere.
	SlotDir string

	MaxBody  int64        // largest request body in bytes; 0 is 64 MiB
	CacheDir string       // where tuning is remembered; "" is the user's cache directory
	Log      *slog.Logger // nil discards

	Listener net.Listener // used in place of Host and Port when set
	Load     Loader       // opens the model; nil is the built-in engine
}

const (
	defaultMaxBody = 64 << 20
	drainTime      = 500 * time.Millisecond // for answers under way when the server stops
	unloadTime     = 400 * time.Millisecond // for the pass or the load under way
	uploadTime     = 5 * time.Minute        // for a request's body to arrive
	unreadTime     = 5 * time.Second        // for the rest of a body that nothing wants
	idleTime       = 10 * time.Minute       // between requests; clients that keep connections for less lose no request
)

// Runner serves one model.
type Runner struct {
	cfg     Config
	log     *slog.Logger
	handler http.Handler
	states  *stateFolder            // where the state of slots is kept; nil for nowhere
	service atomic.Pointer[service] // nil while loading
	addr    atomic.Pointer[net.Addr]
}

// New checks the configuration. It opens and starts nothing.
func New(cfg Config) (*Runner, error) {
	switch {
	case cfg.Model == "":
		return nil, errors.New("no model is given")
	case cfg.Port < 0 || cfg.Port > 65535:
		return nil, fmt.Errorf("the port %d is not between 0 and 65535", cfg.Port)
	case cfg.Context < 0:
		return nil, fmt.Errorf("the context of %d tokens is negative", cfg.Context)
	case cfg.Parallel < 0 || cfg.Parallel > maxSlots:
		return nil, fmt.Errorf("the number of slots %d is not between 0 and %d", cfg.Parallel, maxSlots)
	case cfg.Threads < 0 || cfg.BatchThreads < 0:
		return nil, fmt.Errorf("the number of threads is negative")
	}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.Alias == "" {
		cfg.Alias = filepath.Base(cfg.Model)
	}
	if cfg.BatchThreads == 0 {
		cfg.BatchThreads = cfg.Threads
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Load == nil {
		cfg.Load = load
	}
	r := &Runner{cfg: cfg, log: cfg.Log}
	r.handler = r.routes()
	return r, nil
}

// Handler returns the server's handler. Requests get answers while Run runs.
func (r *Runner) Handler() http.Handler { return r.handler }

// Addr returns the address that Run listens on, or nil before that.
func (r *Runner) Addr() net.Addr {
	if a := r.addr.Load(); a != nil {
		return *a
	}
	return nil
}

// Run listens at once, loads the model and serves until ctx ends, which is no
// error. It fails when it cannot listen or the model cannot be used.
func (r *Runner) Run(ctx context.Context) error {
	if r.cfg.SlotDir != "" {
		states, err := openStates(r.cfg.SlotDir)
		if err != nil {
			return err
		}
		defer states.close()
		r.states = states
	}
	ln, err := r.listen(ctx)
	if err != nil {
		return err
	}
	addr := ln.Addr()
	r.addr.Store(&addr)
	r.log.Info("listening", "addr", addr.String(), "model", r.cfg.Model)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := r.server(addr)
	var serving sync.WaitGroup
	served, worked := make(chan error, 1), make(chan error, 1)
	idle := make(chan struct{})
	serving.Go(func() { served <- server.Serve(ln) })
	go func() {
		defer close(idle)
		worked <- r.work(ctx)
	}()

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-worked:
	case err := <-served:
		failure = fmt.Errorf("serving on %s: %w", addr, err)
	}
	cancel()
	r.shut(server, idle)
	serving.Wait()
	r.log.Info("stopped")
	return failure
}

// server returns the server on an address, with the bounds that a client from the network needs.
func (r *Runner) server(addr net.Addr) *http.Server {
	tcp, ok := addr.(*net.TCPAddr)
	return &http.Server{
		Handler:           door.Guard(door.Bodies(r.handler, uploadTime, unreadTime), ok && tcp.IP.IsLoopback()),
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
}

func (r *Runner) listen(ctx context.Context) (net.Listener, error) {
	if r.cfg.Listener != nil {
		return r.cfg.Listener, nil
	}
	addr := net.JoinHostPort(r.cfg.Host, strconv.Itoa(r.cfg.Port))
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	return ln, nil
}

// shut waits a short time for the worker, which ends all answers, and for their
// last bytes, then closes what is left. A load or pass that takes longer is left
// to the end of the process.
func (r *Runner) shut(server *http.Server, idle <-chan struct{}) {
	select {
	case <-idle:
	case <-time.After(unloadTime):
		r.log.Warn("the model is still busy")
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close() // nothing is left to do about what it says
	}
}

// work loads the model, proves that it can make a token, and runs the scheduler
// until ctx ends.
func (r *Runner) work(ctx context.Context) error {
	begun := time.Now()
	parts, err := r.cfg.Load(ctx, r.cfg)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("loading %q: %w", r.cfg.Model, err)
	}
	defer func() {
		if err := parts.close(); err != nil {
			r.log.Warn("closing the model", "error", err)
		}
	}()
	if err := prove(ctx, parts); err != nil {
		return fmt.Errorf("trying %q: %w", r.cfg.Model, err)
	}
	s := newService(r.cfg, parts)
	s.states = r.states
	r.service.Store(s)
	r.log.Info("ready", "model", r.cfg.Alias, "slots", parts.Slots, "context", parts.Context,
		"after", time.Since(begun).Round(time.Millisecond))
	s.run(ctx)
	return nil
}

// prove makes one token or vector: only then is a model ready.
func prove(ctx context.Context, parts *Parts) error {
	if parts.Encoder != nil {
		texts := []model.Text{{Tokens: []int32{0}}}
		if err := parts.Encoder.Encode(ctx, texts); err != nil {
			return err
		}
		for _, x := range texts[0].Out {
			if x-x != 0 {
				return errors.New("the model's first vector is not finite")
			}
		}
		return nil
	}
	session, err := parts.Engine.NewSession()
	if err != nil {
		return err
	}
	defer session.Close()
	steps := []batch.Step{{Session: session, Tokens: []int32{0}, Logits: true}}
	if err := parts.Engine.Eval(ctx, steps); err != nil {
		return err
	}
	for _, x := range steps[0].Out {
		if x-x == 0 { // finite
			return nil
		}
	}
	return errors.New("the model's first token has no usable probabilities")
}
