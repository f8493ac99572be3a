package edge

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go/http3"
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

// Box is the listeners of an appliance: HTTP/1.1, HTTP/2 and HTTP/3 on one port, plain HTTP for the trust page.
type Box struct {
	cfg       BoxConfig
	port      string // the number of the TCP port, and of the UDP port
	names     atomic.Pointer[names]
	held      addresses
	origins   map[string]bool
	handler   atomic.Pointer[http.Handler]
	authority *authority
	certs     *certificates
	flow      *flow // requests over TCP
	flowQUIC  *flow

	tcp   net.Listener
	udp   net.PacketConn // nil without HTTP/3
	plain net.Listener   // nil without plain HTTP

	secure *http.Server
	quic   *http3.Server // nil without HTTP/3
	open   *http.Server  // nil without plain HTTP

	mu        sync.Mutex // for what follows
	serving   context.Context
	announced *announcement // nil while the box is not advertised
	wanted    bool          // Advertise(true) was said
}

// ListenBox takes the ports, opens or founds the local authority in the storage, and serves nothing yet.
func ListenBox(ctx context.Context, cfg BoxConfig, handler http.Handler) (*Box, error) {
	b := &Box{cfg: cfg, origins: map[string]bool{}, flow: newFlow(), flowQUIC: newFlow()}
	b.complete()
	b.SetHandler(handler)
	for _, o := range cfg.Origins {
		c := canonicalOrigin(o)
		if c == "" {
			return nil, fmt.Errorf("%q is no origin of a page, such as https://chat.example.org", o)
		}
		b.origins[c] = true
	}
	n, err := newNames(cfg.Name, cfg.Names)
	if err != nil {
		return nil, err
	}
	b.names.Store(n)
	if cfg.Storage == nil {
		return nil, errors.New("a box needs a storage for certificates")
	}
	if b.authority, err = openAuthority(ctx, b.cfg, n.box, b.mayCertify); err != nil {
		return nil, err
	}
	if err := b.listen(ctx); err != nil {
		return nil, err
	}
	if b.certs, err = newCertificates(b); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.build()
	return b, nil
}

// complete fills in what the configuration leaves open.
func (b *Box) complete() {
	for _, d := range []*time.Duration{&b.cfg.ReadTimeout, &b.cfg.WriteTimeout, &b.cfg.maintenance} {
		if *d == 0 {
			*d = time.Minute
		}
	}
	if b.cfg.Clock == nil {
		b.cfg.Clock = time.Now
	}
	if b.cfg.Log == nil {
		b.cfg.Log = slog.New(slog.DiscardHandler)
	}
}

// listen takes the ports. A free TCP port whose number is taken for UDP is given back.
func (b *Box) listen(ctx context.Context) (err error) {
	for range 20 {
		if err = b.listenPair(ctx); err == nil || b.cfg.Port != 0 {
			break
		}
	}
	if err == nil && b.cfg.HTTPPort >= 0 {
		b.plain, err = listenTCP(ctx, b.cfg.Host, b.cfg.HTTPPort)
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return nil
}

func (b *Box) listenPair(ctx context.Context) (err error) {
	if b.tcp, err = listenTCP(ctx, b.cfg.Host, b.cfg.Port); err != nil {
		return err
	}
	b.port = strconv.Itoa(b.tcp.Addr().(*net.TCPAddr).Port)
	if !b.cfg.HTTP3 {
		return nil
	}
	var lc net.ListenConfig
	addr := net.JoinHostPort(b.cfg.Host, b.port)
	if b.udp, err = lc.ListenPacket(ctx, "udp", addr); err != nil {
		b.udp = nil
		b.tcp.Close()
		b.tcp = nil
		return fmt.Errorf("cannot listen on %s for HTTP/3: %w", addr, err)
	}
	return nil
}

func listenTCP(ctx context.Context, host string, port int) (net.Listener, error) {
	var lc net.ListenConfig
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	return l, nil
}

// Close gives the ports up when Serve was never called. It may be called twice.
func (b *Box) Close() error {
	if b.tcp != nil {
		b.tcp.Close()
	}
	if b.udp != nil {
		_ = b.udp.Close() // it may be closed already
	}
	if b.plain != nil {
		b.plain.Close()
	}
	if b.certs != nil {
		b.certs.close()
	}
	return nil
}

// SetHandler makes new requests go to another handler. Running ones stay with theirs.
func (b *Box) SetHandler(h http.Handler) { b.handler.Store(&h) }

// SetNames changes what the box is called, beside nothing else: no connection ends. Certificates for new public names
// are obtained in the background, and what is advertised follows.
func (b *Box) SetNames(name string, more []string) error {
	n, err := newNames(name, more)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	renamed := b.names.Load().box != n.box
	b.names.Store(n)
	if b.serving == nil || b.serving.Err() != nil {
		return nil
	}
	if renamed && b.announced != nil {
		b.announced.end()
		b.announced = nil
		b.announce()
	}
	return b.certs.manage(b.serving)
}

// Root returns the certificate that clients must trust, and its SHA-256 in lower-case hex.
func (b *Box) Root() (pem []byte, fingerprint string) {
	f := b.authority.fingerprint()
	return b.authority.rootPEM(), hex.EncodeToString(f[:])
}

// Name returns the box's name with its domain, as other machines reach it: NAME.local.
func (b *Box) Name() string { return b.names.Load().box + ".local" }

// URL is where clients of the network reach the box, by its name and without a final slash.
func (b *Box) URL() string { return "https://" + hostPort(b.Name(), b.port, "443") }

// TrustURL is the page from which clients take the root. Empty without plain HTTP.
func (b *Box) TrustURL() string {
	if b.plain == nil {
		return ""
	}
	return "http://" + hostPort(b.Name(), strconv.Itoa(b.plain.Addr().(*net.TCPAddr).Port), "80") + "/trust"
}

// Port returns the number of the HTTPS port, which HTTP/3 shares.
func (b *Box) Port() int { return b.tcp.Addr().(*net.TCPAddr).Port }

// HTTPPort returns the number of the plain HTTP port, or 0 without one.
func (b *Box) HTTPPort() int {
	if b.plain == nil {
		return 0
	}
	return b.plain.Addr().(*net.TCPAddr).Port
}
