// Package remote is a model that somebody else's server runs: another box, or one that speaks OpenAI's API. It is the
// only way in which what people ask leaves the box, and it is there only where the configuration names it.
//
// What is sent is the request as it stands, under the name that the model has there and with the key that is for that
// server alone. What would tell who asks is left out, and so is what only our own servers understand. What comes back
// is a stranger's: headers, bodies, events and silences are bounded, redirects are not followed, and the server's own
// words reach a client only where they are about the client's request.
//
// A Remote is up while a cheap question, for the list of models, is answered. The pool asks it when it brings the
// model up, and again at growing distances while it fails; between that the Remote asks itself.
package remote

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"onebit/appliance/egress"
	"onebit/engine"
	"onebit/engine/backend"
)

// Config describes a Remote.
type Config struct {
	Name    string       // of the model here
	URL     string       // of the server, such as https://box.example.org/v1
	Model   string       // its name there; empty for the same
	Token   egress.Token // the key for that server; empty for none
	Root    []byte       // certificates in PEM that the server's is checked against; nil for the system's
	Private []string     // host:port on private addresses that may be reached
	Slots   int          // requests at the same time; default 4
	Timeout time.Duration
	Self    string // tells this box from others in the hops
	Log     *slog.Logger

	Check time.Duration // between two looks at the server while nobody asks it; default 30 s

	// Resolve and Dial replace the system's.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, address netip.AddrPort) (net.Conn, error)
}

// Defaults of a Config.
const (
	DefaultSlots   = 4
	DefaultTimeout = 5 * time.Minute // to the first byte, and between two events
)

const (
	maxAnswer  = 256 << 20        // bytes of an answer, streamed or not
	maxList    = 1 << 20          // bytes of a list of models
	checkLimit = 10 * time.Second // for a look at the server
	again      = time.Second      // between two looks when the first failed
	maxPause   = time.Minute      // the longest that a server's wish to be left alone is heeded
	usualPause = 5 * time.Second  // where it wishes for no certain time
)

// Remote is a model that another server runs. It implements engine.Backend, and is an instance of itself for the pool.
type Remote struct {
	cfg    Config
	host   string // with the port, for logs
	list   string // where the models are listed
	client *egress.Client
	http   *http.Client // for looks
	ask    *backend.Remote
	slots  chan struct{}
	stop   context.CancelFunc
	doubt  chan struct{} // a request failed in a way that asks for a look
	done   chan struct{}

	mu      sync.Mutex
	info    engine.Info
	problem string    // what requests ran into; empty since one was answered
	missing string    // what the latest look found; empty while all is well
	listed  bool      // the latest look that was answered got a list
	curious bool      // an answered request has asked for a look, since the context is not known
	good    time.Time // when the server last answered
	paused  time.Time // until when it wants to be left alone
	err     error     // why it ended by itself
}

var _ engine.Backend = (*Remote)(nil)

// New checks the configuration. It does not connect.
func New(cfg Config) (*Remote, error) {
	cfg.Slots = cmp.Or(cfg.Slots, DefaultSlots)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.Check = cmp.Or(cfg.Check, 30*time.Second)
	cfg.Model = cmp.Or(cfg.Model, cfg.Name)
	if cfg.Log == nil {
		return nil, errors.New("a remote model needs a log")
	}
	u, err := Address(cfg.URL, cfg.Private)
	if err != nil {
		return nil, err
	}
	allow := cfg.Private
	if loopback(u.Hostname()) {
		allow = append(allow[:len(allow):len(allow)], u.Host)
	}
	var roots *x509.CertPool
	if cfg.Root != nil {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(cfg.Root) {
			return nil, errors.New("its root holds no certificate in PEM")
		}
	}
	r := &Remote{
		cfg: cfg, host: u.Host, slots: make(chan struct{}, cfg.Slots), stop: func() {},
		doubt: make(chan struct{}, 1), done: make(chan struct{}),
	}
	r.client, err = egress.New(egress.Config{
		Allow: allow, Tokens: map[string]egress.Token{u.Scheme + "://" + u.Host: cfg.Token}, Roots: roots,
		Header: cfg.Timeout + time.Minute, // our own limit is the one that fires
		Idle:   cfg.Slots, Resolve: cfg.Resolve, Dial: cfg.Dial,
	})
	if err != nil {
		return nil, err
	}
	transport := hopping{r.client.Transport(egress.Limits{Bytes: maxAnswer, Window: cfg.Timeout + time.Minute}), cfg.Self}
	r.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	r.list = u.String() + "/v1/models"
	r.ask, err = backend.NewRemote(backend.RemoteConfig{Name: string(engine.Elsewhere), URL: u.String(), Slots: cfg.Slots, Transport: transport})
	return r, err
}

// Address reads the address of a server, and refuses one that the box does not go to: what is not HTTPS, but for this
// machine and for what is named as private, and addresses in the house that are not named.
func Address(text string, private []string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("the address of a server is of the form https://host/v1")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the address of a server has no user, query or fragment; its key is a setting of its own")
	}
	allow := private
	if loopback(u.Hostname()) {
		allow = append(allow[:len(allow):len(allow)], u.Host)
	}
	c, err := egress.New(egress.Config{Allow: allow})
	if err != nil {
		return nil, fmt.Errorf("egress.private: %w", err)
	}
	defer c.Close()
	if err := c.CheckURL(u); err != nil {
		return nil, fmt.Errorf("%w; an address in the house, or one without TLS, is named in egress.private as host:port", err)
	}
	return u, nil
}

// loopback reports whether a host is this machine, as it is written.
func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// Start looks at the server once, and keeps looking until Stop. Without an answer there is no Remote.
func Start(ctx context.Context, cfg Config) (*Remote, error) {
	r, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := r.look(ctx); err != nil {
		r.client.Close()
		return nil, err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	go r.watch(watching)
	return r, nil
}

// watch looks at the server from time to time, and at once when a request failed in a way that tells that it may have
// gone. After two looks in a row that failed the Remote ends.
func (r *Remote) watch(ctx context.Context) {
	defer close(r.done)
	tick := time.NewTicker(r.cfg.Check)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.doubt:
		case <-tick.C:
			r.mu.Lock()
			lately := time.Since(r.good) < r.cfg.Check/2
			r.mu.Unlock()
			if lately {
				continue
			}
		}
		err := r.look(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
		if err = r.look(ctx); err == nil || ctx.Err() != nil {
			continue
		}
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
		return
	}
}

// suspect asks for a look.
func (r *Remote) suspect() {
	select {
	case r.doubt <- struct{}{}:
	default:
	}
}

// Backend is the Remote itself.
func (r *Remote) Backend() engine.Backend { return r }

// Info is what the server says of its model.
func (r *Remote) Info() engine.Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// Done is closed when the Remote has ended.
func (r *Remote) Done() <-chan struct{} { return r.done }

// Err returns why it ended by itself.
func (r *Remote) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Stop ends the looks. Requests that run go on.
func (r *Remote) Stop() {
	r.stop()
	<-r.done
	r.client.Close()
}

// String names the server, for logs.
func (r *Remote) String() string { return r.cfg.Model + " on " + r.host }

// Problem is what an admin should know of the server; empty while all is well.
func (r *Remote) Problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.problem, r.missing)
}

// Name says that the model runs elsewhere.
func (r *Remote) Name() string { return string(engine.Elsewhere) }

// Slots is how many requests run at the same time.
func (r *Remote) Slots() int { return r.cfg.Slots }

// State is Down while the server wants to be left alone, and once it has gone.
func (r *Remote) State() engine.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || time.Until(r.paused) > 0 {
		return engine.Down
	}
	return engine.Ready
}

// Ready returns nil unless the server wants to be left alone.
func (r *Remote) Ready(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if left := time.Until(r.paused); left > 0 {
		return r.unavailable("is busy where it runs", left)
	}
	return nil
}

// unavailable says that the model cannot be had, without the words of its server.
func (r *Remote) unavailable(why string, after time.Duration) error {
	return &engine.UnavailableError{Reason: "the model " + r.cfg.Name + " " + why, RetryAfter: after}
}

// pause leaves the server alone for a while.
func (r *Remote) pause(d time.Duration) time.Duration {
	if d <= 0 {
		d = usualPause
	}
	d = min(d, maxPause)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = time.Now().Add(d)
	return d
}

// note keeps what an admin should know of a request, and writes it to the log when it is new.
func (r *Remote) note(problem string) { r.keep(&r.problem, problem) }

// keep changes what an admin should know.
func (r *Remote) keep(at *string, problem string) {
	r.mu.Lock()
	known := *at == problem
	*at = problem
	r.mu.Unlock()
	if !known && problem != "" {
		r.cfg.Log.Warn("a remote model", "model", r.cfg.Name, "server", r.host, "problem", problem)
	}
}

// answered notes that the server has answered a request. Boxes know a model's context only once it is loaded there, which
// it is now.
func (r *Remote) answered() {
	r.mu.Lock()
	r.good, r.problem = time.Now(), ""
	look := r.info.Context == 0 && !r.curious
	r.curious = true
	r.mu.Unlock()
	if look {
		r.suspect()
	}
}
