package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// The ways to come by certificates.
const (
	ModeLocal = "local" // the box's own authority, for local names and addresses
	ModeACME  = "acme"  // a public authority for the public names, the box's own for the rest
	ModeFiles = "files" // the operator's certificate for the names in it, the box's own authority for the rest
)

// TLSConfig says which certificates the box shows.
type TLSConfig struct {
	Mode        string // ModeLocal, ModeACME or ModeFiles
	ACME        ACME   // for ModeACME
	Certificate string // for ModeFiles: a PEM file with the chain; read again when it changes
	Key         string // for ModeFiles: the PEM file of its private key
}

// BoxConfig says where the box listens and as whom.
type BoxConfig struct {
	Host     string // address to listen on; empty means all
	Port     int    // HTTPS over TCP, and HTTP/3 over UDP; 0 takes a free one
	HTTPPort int    // plain HTTP: trust page and redirects; 0 takes a free one, below 0 turns it off
	HTTP3    bool

	Name  string   // the box's name, without a domain; it is reached as NAME.local too
	Names []string // further names, *.wildcards and addresses

	TLS     TLSConfig
	Storage TLSStorage

	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed
	Origins        []string       // pages of other sites that may use the API, such as https://chat.example.org
	Discovery      bool           // whether Advertise does anything
	Interfaces     []string       // for discovery; empty means all

	ReadTimeout  time.Duration // for one piece of a request's body; 0 means a minute
	WriteTimeout time.Duration // for a client to take one piece of an answer; 0 means a minute
	Drain        time.Duration // how long running answers may take when the box stops
	Log          *slog.Logger
	Clock        func() time.Time // for certificates of the local authority; nil means time.Now

	maintenance time.Duration
}

// Box is the listeners of an appliance: HTTP/1.1, HTTP/2 and HTTP/3 on one port, plain HTTP for the trust page. Prepare
// and Change.Use give it another configuration while it runs.
type Box struct {
	cfg       BoxConfig // of it only what no change touches: storage, clock, log, interfaces, maintenance
	names     atomic.Pointer[names]
	held      addresses
	handler   atomic.Pointer[http.Handler]
	authority *authority
	manner    atomic.Pointer[manner]
	ports     atomic.Pointer[ports]
	flow      *flow // requests over TCP
	tls       *tls.Config
	life      context.Context // ends when the box is closed
	die       context.CancelFunc
	problem   atomic.Pointer[string] // what went wrong after a change; nil for nothing

	mu        sync.Mutex      // for what follows
	serving   context.Context // nil while the box does not serve
	stopped   bool            // it has served, and does so no more
	group     sync.WaitGroup  // what serves
	failed    chan error      // why a server ended by itself
	leaving   []*site         // sites whose place another has taken, with answers that still run
	parting   []*quicSite     // those of HTTP/3
	caring    context.Context // while the certificates of the moment are cared for
	uncare    func()          // ends it
	announced *announcement   // nil while the box is not advertised
	wanted    bool            // Advertise(true) was said
}

// ListenBox takes the ports, opens or founds the local authority in the storage, and serves nothing yet.
func ListenBox(ctx context.Context, cfg BoxConfig, handler http.Handler) (*Box, error) {
	cfg.complete()
	b := &Box{cfg: cfg, flow: newFlow(), failed: make(chan error, 1), uncare: func() {}}
	b.life, b.die = context.WithCancel(context.WithoutCancel(ctx))
	b.tls = b.tlsConfig()
	b.SetHandler(handler)
	b.ports.Store(&ports{})
	n, err := newNames(cfg.Name, cfg.Names)
	if err != nil {
		return nil, err
	}
	b.names.Store(n)
	if cfg.Storage == nil {
		return nil, errors.New("a box needs a storage for certificates")
	}
	if b.authority, err = openAuthority(ctx, cfg, n.box, b.mayCertify); err != nil {
		return nil, err
	}
	change, err := b.Prepare(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := change.Use(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// complete fills in what the configuration leaves open.
func (c *BoxConfig) complete() {
	for _, d := range []*time.Duration{&c.ReadTimeout, &c.WriteTimeout, &c.maintenance} {
		if *d == 0 {
			*d = time.Minute
		}
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Close gives the ports up when Serve was never called. It may be called twice.
func (b *Box) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.die()
	b.ports.Load().close()
	if m := b.manner.Load(); m != nil {
		m.certs.close()
	}
	return nil
}

// SetHandler makes new requests go to another handler. Running ones stay with theirs.
func (b *Box) SetHandler(h http.Handler) { b.handler.Store(&h) }

// Root returns the certificate that clients must trust, and its SHA-256 in lower-case hex.
func (b *Box) Root() (pem []byte, fingerprint string) {
	f := b.authority.fingerprint()
	return b.authority.rootPEM(), hex.EncodeToString(f[:])
}

// Name returns the box's name with its domain, as other machines reach it: NAME.local.
func (b *Box) Name() string { return b.names.Load().box + ".local" }

// URL is where clients of the network reach the box, by its name and without a final slash.
func (b *Box) URL() string { return "https://" + hostPort(b.Name(), b.port(), "443") }

// TrustURL is the page from which clients take the root. Empty without plain HTTP.
func (b *Box) TrustURL() string {
	p := b.HTTPPort()
	if p == 0 {
		return ""
	}
	return "http://" + hostPort(b.Name(), strconv.Itoa(p), "80") + "/trust"
}

// Port returns the number of the HTTPS port, which HTTP/3 shares.
func (b *Box) Port() int { return b.ports.Load().tcp.port() }

// port is Port as text.
func (b *Box) port() string { return strconv.Itoa(b.Port()) }

// HTTPPort returns the number of the plain HTTP port, or 0 without one.
func (b *Box) HTTPPort() int {
	if p := b.ports.Load().plain; p != nil {
		return p.port()
	}
	return 0
}

// Self says how this machine reaches the box over TLS: at which address, and what the certificate that it shows is
// checked against, which the operator's own is too. Whether that has expired, or the clock is wrong, does not matter here.
func (b *Box) Self() (address string, t *tls.Config) {
	roots, name := x509.NewCertPool(), b.Name()
	roots.AddCert(b.authority.root)
	now := b.authority.now
	if own := b.manner.Load().certs.own.Load(); own != nil && own.Leaf.VerifyHostname(name) == nil {
		roots.AddCert(own.Leaf)
		now = func() time.Time { return own.Leaf.NotAfter }
	}
	at := b.ports.Load().tcp.at
	ip := at.IP
	switch {
	case len(ip) == 0 || ip.IsUnspecified() && ip.To4() != nil, ip.IsUnspecified() && b.manner.Load().cfg.Host == "":
		ip = net.IPv4(127, 0, 0, 1)
	case ip.IsUnspecified():
		ip = net.IPv6loopback
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(at.Port)), &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12, Time: now}
}

// Problem says what went wrong when the last change was carried through, after it was taken on. Empty when nothing did.
func (b *Box) Problem() string {
	if p := b.problem.Load(); p != nil {
		return *p
	}
	return ""
}
