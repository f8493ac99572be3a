// Package egress is how the box reaches out: one HTTP client that goes to the open network and nowhere else.
//
// The address of each connection is checked, not the text of the URL alone: a name is resolved once, all of its
// addresses are looked at, and one of those is dialled, so that a name cannot mean one thing to the check and another
// to the connection. Each redirect is a request like the first. What the operator allows by name (a mirror in the
// house, a hub stand-in of a test) may lie anywhere and do without TLS; a redirect from there has no such right.
//
// A token belongs to one origin and goes to no other. Answers are bounded in bytes, in time and in how slow they may be.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"onebit/engine"
)

// Config describes a Client. The zero value reaches the open network over HTTPS.
type Config struct {
	Allow  []string         // host or host:port that may lie anywhere and be asked without TLS
	Tokens map[string]Token // by origin, such as https://host; sent as a bearer token to that origin alone
	Proxy  *url.URL         // sends all through this proxy, which then resolves the names; nil for none
	Roots  *x509.CertPool   // issuers of servers' certificates; nil for the system's
	Agent  string           // User-Agent; default 1bit

	Connect time.Duration // to connect to one address, and again for TLS; default 6 s
	Header  time.Duration // from the request to the head of the answer; default 20 s
	Idle    int           // connections to one host that are kept for later requests; default 2

	// Resolve and Dial replace the system's.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, address netip.AddrPort) (net.Conn, error)
}

// Limits bound one request.
type Limits struct {
	Bytes     int64         // of the body; 0 for 1 MiB, negative for no limit
	Total     time.Duration // from the request to the end of the body; 0 for none
	Window    time.Duration // in each such time Least bytes of the body must come; default 60 s
	Least     int64         // default 1
	Redirects int           // to follow; 0 for 10, negative to return the first answer whatever it is
}

func (l Limits) withDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = 1 << 20
	}
	if l.Window == 0 {
		l.Window = time.Minute
	}
	l.Least = max(l.Least, 1)
	if l.Redirects == 0 {
		l.Redirects = 10
	}
	return l
}

// Client asks servers of the open network. It may be used from many goroutines.
type Client struct {
	cfg    Config
	allow  map[string]bool
	tokens map[string]Token
	base   *http.Transport
}

// New checks the configuration.
func New(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg, allow: map[string]bool{}, tokens: map[string]Token{}}
	for _, entry := range cfg.Allow {
		key, err := normal(entry)
		if err != nil {
			return nil, fmt.Errorf("allowing a host: %w", err)
		}
		c.allow[key] = true
	}
	for at, token := range cfg.Tokens {
		u, err := url.Parse(at)
		if err != nil || u.Host == "" || (u.Scheme != "https" && !c.allowed(u.Hostname(), port(u))) {
			return nil, fmt.Errorf("a token belongs to an origin such as https://host, not to %q", at)
		}
		c.tokens[origin(u)] = token
	}
	if c.cfg.Agent == "" {
		c.cfg.Agent = "1bit"
	}
	if c.cfg.Connect == 0 {
		c.cfg.Connect = 6 * time.Second
	}
	if c.cfg.Header == 0 {
		c.cfg.Header = 20 * time.Second
	}
	if c.cfg.Idle == 0 {
		c.cfg.Idle = 2
	}
	if c.cfg.Resolve == nil {
		c.cfg.Resolve = Resolve
	}
	if c.cfg.Dial == nil {
		c.cfg.Dial = dial
	}
	c.base = &http.Transport{
		DialContext:            c.connect,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.Roots},
		TLSHandshakeTimeout:    c.cfg.Connect,
		ResponseHeaderTimeout:  c.cfg.Header,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    c.cfg.Idle,
		IdleConnTimeout:        30 * time.Second,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second}, // a peer that is gone is noticed
		DisableCompression:     true,                                                                                // who wants to unpack an answer says how large it may become
		ForceAttemptHTTP2:      true,
	}
	if cfg.Proxy != nil {
		c.base.Proxy = http.ProxyURL(cfg.Proxy)
	}
	return c, nil
}

func dial(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address.String())
}

// Close lets go of idle connections.
func (c *Client) Close() { c.base.CloseIdleConnections() }

// Do sends a request and returns the answer; the caller closes its body. A request that may not be made, at whichever
// hop, is a *RefusedError; a limit of time that passed is an *engine.TimeoutError, also while the body is read, and
// too many bytes are a *TooLongError. Errors show a URL without its query.
func (c *Client) Do(req *http.Request, l Limits) (*http.Response, error) {
	l = l.withDefaults()
	if err := c.CheckURL(req.URL); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	var total *time.Timer
	if l.Total > 0 {
		total = time.AfterFunc(l.Total, func() {
			cancel(&engine.TimeoutError{Timer: "a download", Limit: l.Total})
		})
	}
	release := func() {
		if total != nil {
			total.Stop()
		}
		cancel(nil)
	}
	req = req.Clone(ctx)
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", c.cfg.Agent)
	}
	client := &http.Client{Transport: bearer{c}, CheckRedirect: c.redirects(l)}
	res, err := client.Do(req)
	if err == nil && l.Bytes > 0 && res.ContentLength > l.Bytes && req.Method != http.MethodHead {
		res.Body.Close()
		err = &TooLongError{Limit: l.Bytes, Announced: res.ContentLength}
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		release()
		return nil, scrub(err)
	}
	res.Body = newBody(res.Body, l, cancel, func() error { return context.Cause(ctx) }, release)
	return res, nil
}

// Transport is the client as one that makes requests within limits. It follows no redirect.
func (c *Client) Transport(l Limits) http.RoundTripper {
	l.Redirects = -1
	return within{c, l}
}

// within is a client with limits.
type within struct {
	c *Client
	l Limits
}

// RoundTrip makes one request.
func (w within) RoundTrip(req *http.Request) (*http.Response, error) { return w.c.Do(req, w.l) }

// Get asks for a URL.
func (c *Client) Get(ctx context.Context, url string, l Limits) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, &RefusedError{Why: "it is no URL"}
	}
	return c.Do(req, l)
}

// Bytes returns the body of a URL that answers 200, at most limit bytes of it.
func (c *Client) Bytes(ctx context.Context, url string, limit int64) ([]byte, error) {
	res, err := c.Get(ctx, url, Limits{Bytes: limit, Total: time.Minute})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, &StatusError{Status: res.StatusCode, Host: res.Request.URL.Hostname()}
	}
	return io.ReadAll(res.Body)
}

// StatusError is an answer other than the one that was hoped for.
type StatusError struct {
	Status int
	Host   string
}

// Error names the host and the status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("%s answered %d %s", e.Host, e.Status, http.StatusText(e.Status))
}

// harmless are the headers that a request keeps on its way to another origin.
var harmless = []string{"Accept", "Accept-Encoding", "If-None-Match", "If-Range", "Range", "User-Agent"}

// redirects returns what is done about a redirect: the same checks, and nothing told that is not for the new host.
func (c *Client) redirects(l Limits) func(req *http.Request, via []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if l.Redirects < 0 {
			return http.ErrUseLastResponse
		}
		if len(via) > l.Redirects {
			return &RefusedError{Host: req.URL.Hostname(), Why: fmt.Sprintf("it comes after %d redirects", l.Redirects)}
		}
		if err := c.CheckURL(req.URL); err != nil {
			return err
		}
		req.Header.Del("Referer") // it may hold a signed query
		if origin(req.URL) != origin(via[0].URL) {
			for name := range req.Header {
				if !slices.Contains(harmless, name) {
					req.Header.Del(name)
				}
			}
		}
		return nil
	}
}

// bearer adds an origin's token to the requests that go there.
type bearer struct{ c *Client }

// RoundTrip sends one request of a chain of redirects.
func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	if t, ok := b.c.tokens[origin(req.URL)]; ok && !t.Empty() {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+t.text)
	}
	return b.c.base.RoundTrip(req)
}

// connect resolves a host, checks all of its addresses and dials the first that answers.
func (c *Client) connect(ctx context.Context, _, at string) (net.Conn, error) {
	host, service, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	addresses, err := c.addresses(ctx, host, service)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, a := range addresses[:min(len(addresses), 8)] {
		try, cancel := context.WithTimeout(ctx, c.cfg.Connect)
		conn, err := c.cfg.Dial(try, netip.AddrPortFrom(a, uint16(number)))
		cancel()
		if err == nil {
			return conn, nil
		}
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("connecting to %s: %w", host, failed)
}

// addresses returns where a host may be dialled. One bad address among good ones refuses the host.
func (c *Client) addresses(ctx context.Context, host, service string) ([]netip.Addr, error) {
	found := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		found = append(found, a)
	} else if found, err = c.cfg.Resolve(ctx, strings.TrimSuffix(strings.ToLower(host), ".")); err != nil {
		return nil, fmt.Errorf("resolving %s: %w", host, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("resolving %s: it has no address", host)
	}
	free := c.allowed(host, service) || (c.cfg.Proxy != nil && host == c.cfg.Proxy.Hostname() && service == port(c.cfg.Proxy))
	for i, a := range found {
		found[i] = a.Unmap()
		if err := CheckAddress(a); err != nil && !free {
			return nil, &RefusedError{Host: host, Why: err.Error()}
		}
	}
	return found, nil
}

// scrub takes the queries out of an error: that of a signed URL is a secret.
func scrub(err error) error {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused
	}
	u, ok := errors.AsType[*url.Error](err)
	if !ok {
		return err
	}
	return fmt.Errorf("asking %s: %w", withoutQuery(u.URL), u.Err)
}

// withoutQuery returns a URL for messages.
func withoutQuery(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "a server"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}
