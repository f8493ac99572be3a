package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"onebit/engine"
	"onebit/engine/conduit"
)

// ChildConfig describes a Child.
type ChildConfig struct {
	Name    string                 // the device, for logs and errors
	Slots   int                    // how many generations the child runs at the same time; at least 1
	Command func(port int) Command // the command line that serves on this loopback port
	Launch  Launch                 // how its process is started; nil starts Command
	Conduit bool                   // Launch starts a process that takes a conduit
	Ready   string                 // the path that answers 200 once the child serves; default /health
	Proof   Proof                  // what shows, beside its word, that it serves
	Parts   bool                   // unstreamed chats are asked for as streams: see RemoteConfig.Assemble
	Stdout  io.Writer              // where the child writes; nil discards
	Stderr  io.Writer
	Log     *slog.Logger
	Limits  Limits // zero fields take the defaults
}

// Limits are the times of a child's life.
type Limits struct {
	Start    time.Duration // from the start of a process to its first token; default 600 s
	Poll     time.Duration // between two looks at the ready path while it starts; default 250 ms
	Stop     time.Duration // between asking it to end and killing it; default 5 s
	PauseMin time.Duration // before the first restart; default 1 s
	PauseMax time.Duration // the longest pause; default 30 s
	Steady   time.Duration // having served this long wipes out earlier failures; default 30 s
	Settle   time.Duration // a lost request waits this long for news of the child's end; default 1 s
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{
		{&l.Start, 600 * time.Second},
		{&l.Poll, 250 * time.Millisecond},
		{&l.Stop, 5 * time.Second},
		{&l.PauseMin, time.Second},
		{&l.PauseMax, 30 * time.Second},
		{&l.Steady, 30 * time.Second},
		{&l.Settle, time.Second},
	} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	return l
}

// Child is a server process that we keep alive. It implements engine.Backend. The package comment tells its life.
type Child struct {
	cfg ChildConfig
	now atomic.Pointer[moment]
	os  system

	restarts atomic.Int64
}

var _ engine.Backend = (*Child)(nil)

// moment is what the world may know of a child between two changes. Run alone makes moments.
type moment struct {
	state    engine.State
	failures int           // lives in a row that ended without having served well
	reason   string        // why the child does not serve
	retryAt  time.Time     // end of the pause; zero outside of one
	over     chan struct{} // closed when the next moment begins
	info     engine.Info   // what the last process that served said

	// while serving
	since    time.Time
	remote   *Remote
	answered atomic.Bool // a request was answered in full
}

// system is what a child needs of the world; tests replace it.
type system struct {
	launch  func(c Command, stdout, stderr io.Writer) (Process, error)
	port    func() (int, error)
	owns    func(pid, port int) bool
	taken   func(port int) bool
	connect func(port int) (*Remote, error)
}

// errPortTaken says that somebody else got the child's port.
var errPortTaken = errors.New("another process took the port")

// NewChild checks the configuration. It starts nothing.
func NewChild(cfg ChildConfig) (*Child, error) {
	switch {
	case cfg.Name == "":
		return nil, errors.New("a child needs a name")
	case cfg.Command == nil && cfg.Launch == nil:
		return nil, errors.New("a child needs a command")
	case cfg.Conduit && cfg.Launch == nil:
		return nil, errors.New("a command takes no conduit")
	case cfg.Slots < 1:
		return nil, fmt.Errorf("%d slots: at least 1 is needed", cfg.Slots)
	case cfg.Log == nil:
		return nil, errors.New("a child needs a log")
	}
	if cfg.Ready == "" {
		cfg.Ready = "/health"
	}
	cfg.Limits = cfg.Limits.withDefaults()
	c := &Child{cfg: cfg, os: system{
		launch: launch,
		port:   freePort,
		owns:   ownsPort,
		taken:  answered,
		connect: func(port int) (*Remote, error) {
			dialer := &net.Dialer{Timeout: time.Second}
			return NewRemote(RemoteConfig{
				Name: cfg.Name, URL: "http://127.0.0.1:" + strconv.Itoa(port), Slots: cfg.Slots,
				Dial: dialer.DialContext, Assemble: cfg.Parts,
			})
		},
	}}
	c.now.Store(&moment{state: engine.Loading, reason: "the model is loading", over: make(chan struct{})})
	return c, nil
}

// Run starts the process, keeps it alive and blocks. It returns nil after ctx has ended and the process with it, and an
// error when the first process did not become ready. It is called once.
func (c *Child) Run(ctx context.Context) error {
	runtime.LockOSThread() // the kernel ends the child when the thread that started it ends
	defer runtime.UnlockOSThread()
	defer func() { c.next(&moment{state: engine.Stopped, reason: c.says("has been stopped")}) }()
	failures, ever := 0, false
	for generation := 1; ; generation++ {
		if generation > 1 {
			c.restarts.Add(1)
			c.next(&moment{state: engine.Down, failures: failures, reason: c.says("is starting again")})
		}
		served, err := c.live(ctx, generation)
		if ctx.Err() != nil {
			return nil
		}
		if served == nil && !ever {
			return fmt.Errorf("%s: %w", c.says("did not become ready"), err)
		}
		ever = true
		if served != nil && (served.answered.Load() || time.Since(served.since) >= c.cfg.Limits.Steady) {
			failures = 0
		}
		failures++
		c.pause(ctx, failures, err)
	}
}

// says puts the child's name before what happened to it.
func (c *Child) says(what string) string { return "the " + c.cfg.Name + " backend " + what }

// next publishes a moment and ends the one before it.
func (c *Child) next(m *moment) {
	m.over = make(chan struct{})
	if m.remote == nil {
		m.info = c.now.Load().info
	}
	close(c.now.Swap(m).over)
}

// pause waits before the next start.
func (c *Child) pause(ctx context.Context, failures int, why error) {
	length := c.cfg.Limits.PauseMax
	if shift := failures - 1; shift < 20 {
		length = min(length, c.cfg.Limits.PauseMin<<shift)
	}
	c.cfg.Log.Warn(c.says("ended"), "why", why, "starting_again_in", length, "failures", failures)
	c.next(&moment{state: engine.Down, failures: failures, retryAt: time.Now().Add(length), reason: fmt.Sprintf("%s: %v", c.says("ended"), why)})
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// live runs one process from start to end. It returns the moment in which it served, nil when it never did, and why it
// ended.
func (c *Child) live(ctx context.Context, generation int) (served *moment, err error) {
	for range 3 {
		served, err = c.process(ctx, generation)
		if !errors.Is(err, errPortTaken) {
			return served, err
		}
		c.cfg.Log.Warn(c.says("lost its port, trying another"))
	}
	return served, err
}

func (c *Child) process(ctx context.Context, generation int) (*moment, error) {
	at, caller, err := c.place()
	if err != nil {
		return nil, err
	}
	if caller != nil {
		defer func() { _ = caller.Close() }()
	}
	begin := time.Now()
	p, err := c.start(at)
	if at.End != nil {
		_ = at.End.Close() // the process has its own, with which it goes; an error says that there is none
	}
	if err != nil {
		return nil, fmt.Errorf("starting it: %w", err)
	}
	alive, died := context.WithCancelCause(ctx)
	defer died(nil)
	ended := make(chan struct{})
	go func() {
		died(ending(p.Wait()))
		close(ended)
	}()
	defer c.end(p, ended)
	remote, err := c.connect(at, caller)
	if err != nil {
		return nil, err
	}
	defer remote.Close()
	info, err := c.await(alive, remote, p, at)
	if err != nil {
		return nil, err
	}
	m := &moment{state: engine.Ready, since: time.Now(), remote: remote, info: info}
	c.cfg.Log.Info(c.says("is ready"), "pid", p.Pid(), "at", at.String(), "start", generation, "took", time.Since(begin).Round(time.Millisecond))
	c.next(m)
	<-alive.Done()
	return m, context.Cause(alive)
}

// place makes the place where the next process is to serve. The caller is for a conduit alone.
func (c *Child) place() (Place, *conduit.Caller, error) {
	if c.cfg.Conduit {
		caller, end, err := conduit.New()
		return Place{End: end}, caller, err
	}
	port, err := c.os.port()
	if err != nil {
		return Place{}, nil, fmt.Errorf("finding a port: %w", err)
	}
	return Place{Port: port}, nil, nil
}

// connect returns what speaks with a process at its place.
func (c *Child) connect(at Place, caller *conduit.Caller) (*Remote, error) {
	if caller == nil {
		return c.os.connect(at.Port)
	}
	return NewRemote(RemoteConfig{Name: c.cfg.Name, URL: "http://localhost", Slots: c.cfg.Slots, Dial: caller.Dial, Assemble: c.cfg.Parts})
}

// start starts the process for a place.
func (c *Child) start(at Place) (Process, error) {
	if c.cfg.Launch != nil {
		return c.cfg.Launch(at, c.cfg.Stdout, c.cfg.Stderr)
	}
	return c.os.launch(c.cfg.Command(at.Port), c.cfg.Stdout, c.cfg.Stderr)
}

// owns reports whether the place is the process's own. Nobody else has a conduit.
func (c *Child) owns(p Process, at Place) bool {
	if at.End != nil {
		return true
	}
	if o, ok := p.(owner); ok {
		return heldBy(o.UID(), at.Port)
	}
	return c.os.owns(p.Pid(), at.Port)
}

// ErrMemory is in errors of a process that was killed, and not by its keeper.
var ErrMemory = errors.New("the kernel does when memory runs out")

// ending puts the end of a process into words.
func ending(err error) error {
	switch {
	case err == nil:
		return errors.New("it exited with status 0")
	case strings.HasSuffix(err.Error(), "signal: killed"): // not by us, or nobody would ask; a keeper says it in words
		return fmt.Errorf("it ended: %w, as %w", err, ErrMemory)
	}
	return fmt.Errorf("it ended: %w", err)
}

// end makes sure that nothing is left of a process.
func (c *Child) end(p Process, ended <-chan struct{}) {
	timer := time.NewTimer(c.cfg.Limits.Stop)
	defer timer.Stop()
	select {
	case <-ended:
	default:
		p.Terminate()
		select {
		case <-ended:
		case <-timer.C:
			c.cfg.Log.Warn(c.says("did not stop when asked and is killed"), "after", c.cfg.Limits.Stop)
		}
	}
	p.Kill() // also what it may have left behind
	<-ended
}

// await waits until the process serves: it answers on its ready path, the place is its own, and it gives its proof.
func (c *Child) await(alive context.Context, remote *Remote, p Process, at Place) (engine.Info, error) {
	limit := &engine.TimeoutError{Timer: "starting a backend", Limit: c.cfg.Limits.Start}
	ctx, cancel := context.WithTimeoutCause(alive, limit.Limit, limit)
	defer cancel()
	tick := time.NewTicker(c.cfg.Limits.Poll)
	defer tick.Stop()
	for {
		if status, err := remote.health(ctx, c.cfg.Ready); err == nil && status == http.StatusOK {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if alive.Err() != nil && at.End == nil && c.os.taken(at.Port) {
				return engine.Info{}, errPortTaken
			}
			return engine.Info{}, context.Cause(ctx)
		}
	}
	if !c.owns(p, at) {
		return engine.Info{}, errPortTaken
	}
	if err := c.cfg.Proof.ask(ctx, remote); err != nil {
		return engine.Info{}, err
	}
	info, err := remote.Info(ctx)
	if err != nil {
		c.cfg.Log.Debug(c.says("says nothing about its model"), "why", err)
	}
	return info, nil
}

// Name returns the device.
func (c *Child) Name() string { return c.cfg.Name }

// Slots returns the configured number of slots.
func (c *Child) Slots() int { return c.cfg.Slots }

// State tells where the child stands at the moment.
func (c *Child) State() engine.State { return c.now.Load().state }

// Restarts is how many processes were started after the first.
func (c *Child) Restarts() int { return int(c.restarts.Load()) }

// Info returns what the child said about its model when it last became ready; empty before.
func (c *Child) Info() engine.Info { return c.now.Load().info }

// Ready waits until the child serves. A child that is pausing after its second failure in a row, or later, is not
// waited for.
func (c *Child) Ready(ctx context.Context) error {
	for {
		m := c.now.Load()
		if m.state == engine.Ready {
			return nil
		}
		if m.state == engine.Stopped || (m.failures > 1 && !m.retryAt.IsZero()) {
			return m.unavailable()
		}
		select {
		case <-m.over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unavailable says why the child does not serve and when it may again.
func (m *moment) unavailable() error {
	e := &engine.UnavailableError{Reason: m.reason}
	switch {
	case m.state == engine.Stopped:
	case m.retryAt.IsZero():
		e.RetryAfter = 2 * time.Second
	default:
		e.RetryAfter = max(time.Until(m.retryAt), 0) + time.Second
	}
	return e
}

// Generate runs the request on the child as it stands; see engine.Backend.
func (c *Child) Generate(ctx context.Context, req *engine.Request, emit func(engine.Chunk) error) (engine.Usage, error) {
	m := c.now.Load()
	if m.remote == nil {
		return engine.Usage{}, m.unavailable()
	}
	usage, err := m.remote.Generate(ctx, req, emit)
	if err == nil {
		m.answered.Store(true)
	}
	return usage, c.settle(ctx, m, err)
}

// Relay sends a request of another route to the child; see Remote.Relay.
func (c *Child) Relay(in *http.Request) (*http.Response, error) {
	m := c.now.Load()
	if m.remote == nil {
		return nil, m.unavailable()
	}
	res, err := m.remote.Relay(in)
	return res, c.settle(in.Context(), m, err)
}

// settle holds back the news of a lost request until Run has heard of the child's end too, so that a second attempt
// does not meet the same dead process.
func (c *Child) settle(ctx context.Context, m *moment, err error) error {
	if !errors.Is(err, engine.ErrLost) {
		return err
	}
	timer := time.NewTimer(c.cfg.Limits.Settle)
	defer timer.Stop()
	select {
	case <-m.over:
	case <-timer.C:
	case <-ctx.Done():
	}
	return err
}
