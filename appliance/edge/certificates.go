package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
)

// certificates chooses what the box shows to a client: the operator's own certificate where it covers the name, one of
// a public authority for public names, and one of the local authority for the rest of what is the box.
type certificates struct {
	box     *Box
	cache   *certmagic.Cache
	local   *certmagic.Config
	public  *certmagic.Config // nil unless the mode is acme
	issuer  *certmagic.ACMEIssuer
	own     atomic.Pointer[tls.Certificate] // nil unless the mode is files
	seen    atomic.Pointer[[2]time.Time]    // when the operator's files were changed, as last read
	cfg     TLSConfig
	at      reach
	managed []string
	ended   sync.Once
}

// reach is where the network reaches the box, as far as a public authority must know.
type reach struct {
	host          string
	secure, plain int // ports; plain is 0 without plain HTTP
}

// newCertificates prepares the choice; nothing is obtained yet.
func newCertificates(b *Box, cfg TLSConfig, n *names, at reach) (*certificates, error) {
	c := &certificates{box: b, cfg: cfg, at: at}
	log := certificateLog(b.cfg.Log)
	kept := storage{b.cfg.Storage}
	c.cache = certmagic.NewCache(certmagic.CacheOptions{
		Logger: log,
		GetConfigForCert: func(cert certmagic.Certificate) (*certmagic.Config, error) {
			if c.public != nil && slices.ContainsFunc(cert.Names, func(n string) bool { return !private(n) }) {
				return c.public, nil
			}
			return c.local, nil
		},
	})
	c.local = certmagic.New(c.cache, certmagic.Config{
		Storage: kept, Logger: log, DisableARI: true, OCSP: certmagic.OCSPConfig{DisableStapling: true},
		Issuers: []certmagic.Issuer{b.authority},
		SubjectTransformer: func(_ context.Context, name string) string { // one certificate for all names of a wildcard
			if w := b.names.Load().wildcard(canonical(name)); w != "" {
				return w
			}
			return name
		},
		OnDemand: &certmagic.OnDemandConfig{DecisionFunc: func(_ context.Context, name string) error { return b.mayCertify(name) }},
	})
	switch c.cfg.Mode {
	case ModeLocal:
	case ModeFiles:
		if err := c.readFiles(); err != nil {
			c.close()
			return nil, err
		}
	case ModeACME:
		c.public = certmagic.New(c.cache, certmagic.Config{Storage: kept, Logger: log})
		issuer, err := c.newIssuer(log)
		if err != nil {
			c.close()
			return nil, err
		}
		c.issuer = issuer
		if err := c.may(n); err != nil {
			c.close()
			return nil, err
		}
		c.public.Issuers = []certmagic.Issuer{issuer}
	default:
		c.close()
		return nil, fmt.Errorf("there is no TLS mode %q; there are local, acme and files", c.cfg.Mode)
	}
	return c, nil
}

// same reports whether these certificates serve another configuration as well.
func (c *certificates) same(cfg TLSConfig, at reach) bool {
	return reflect.DeepEqual(c.cfg, cfg) && (c.public == nil || c.at == at) && !c.outdated()
}

// may reports whether public certificates for these names can be had.
func (c *certificates) may(n *names) error {
	if c.public == nil || c.issuer.DNS01Solver != nil {
		return nil
	}
	for _, name := range n.public {
		if strings.HasPrefix(name, "*.") {
			return fmt.Errorf("%s needs the ACME challenge dns-01", name)
		}
	}
	return nil
}

// tlsConfig returns the settings of the TCP listeners; HTTP/3 derives its own from them. The certificates are those of
// the moment.
func (b *Box) tlsConfig() *tls.Config {
	get := func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return b.manner.Load().certs.get(hello) }
	challenge := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{acmez.ACMETLS1Protocol}, GetCertificate: get}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: get,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if b.manner.Load().certs.public != nil && challenged(hello) {
				return challenge, nil
			}
			return nil, nil
		},
	}
}

// challenged reports whether a public authority asks for the answer to its challenge.
func challenged(hello *tls.ClientHelloInfo) bool {
	return slices.Equal(hello.SupportedProtos, []string{acmez.ACMETLS1Protocol})
}

// get is asked for every handshake. A client that asks for an address sends no name; then it is the address at which it
// came in.
func (c *certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.public != nil && challenged(hello) {
		return c.obtain(c.public, hello)
	}
	name := canonical(hello.ServerName)
	if _, err := netip.ParseAddr(name); err == nil {
		return nil, errors.New("an address is no name of a server") // else anybody could have one certified for each of 127.0.0.0/8
	}
	if name == "" && hello.Conn != nil {
		name = localAddress(hello.Conn)
	}
	if own := c.own.Load(); own != nil && own.Leaf.VerifyHostname(name) == nil {
		return own, nil
	}
	if c.public != nil && !private(name) {
		n := c.box.names.Load()
		if !slices.Contains(n.public, name) && n.wildcard(name) == "" {
			return nil, fmt.Errorf("%q is not a name of this box", name)
		}
		return c.obtain(c.public, hello)
	}
	if err := c.box.mayCertify(name); err != nil { // before anything is looked up or made
		return nil, err
	}
	return c.obtain(c.local, hello)
}

// obtain finds or makes a certificate for a handshake. It does not outlive the box: others of the same name, in this
// process too, would wait for it.
func (c *certificates) obtain(from *certmagic.Config, hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	ctx, cancel := context.WithCancel(hello.Context())
	defer cancel()
	defer context.AfterFunc(c.box.life, cancel)()
	return from.GetCertificateWithContext(ctx, hello)
}

// localAddress returns the address at which a connection came in.
func localAddress(conn net.Conn) string {
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err != nil {
		return ""
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	return a.Unmap().WithZone("").String()
}

// mayCertify refuses names and addresses for which the local authority gives no certificate to this box.
func (b *Box) mayCertify(name string) error {
	if !private(name) || !b.ours(name) {
		return fmt.Errorf("%q is not a local name of this box", name)
	}
	return nil
}

// errMissing says that the operator's files are not named.
var errMissing = errors.New("TLS mode files needs a certificate and a key")

// readFiles reads the operator's certificate.
func (c *certificates) readFiles() error {
	if c.cfg.Certificate == "" || c.cfg.Key == "" {
		return errMissing
	}
	changed := c.changed() // before reading: a change meanwhile is read again
	pair, err := tls.LoadX509KeyPair(c.cfg.Certificate, c.cfg.Key)
	if err != nil {
		return fmt.Errorf("reading the certificate %s: %w", c.cfg.Certificate, err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return fmt.Errorf("reading the certificate %s: %w", c.cfg.Certificate, err)
		}
	}
	c.seen.Store(&changed)
	c.own.Store(&pair)
	return nil
}

// changed returns when the operator's files were changed.
func (c *certificates) changed() (out [2]time.Time) {
	for i, f := range []string{c.cfg.Certificate, c.cfg.Key} {
		if s, err := os.Stat(f); err == nil {
			out[i] = s.ModTime()
		}
	}
	return out
}

// outdated reports whether the operator's files have changed since they were read.
func (c *certificates) outdated() bool {
	return c.cfg.Mode == ModeFiles && c.changed() != *c.seen.Load()
}

// close ends the care for certificates.
func (c *certificates) close() { c.ended.Do(c.cache.Stop) }

// manage obtains and renews certificates for the public names, in the background until ctx ends, and lets go of those
// of names that the box no longer has.
func (c *certificates) manage(ctx context.Context) error {
	if c.public == nil {
		return nil
	}
	want := c.box.names.Load().public
	var gone []certmagic.SubjectIssuer
	for _, n := range c.managed {
		if !slices.Contains(want, n) {
			gone = append(gone, certmagic.SubjectIssuer{Subject: n})
		}
	}
	c.cache.RemoveManaged(gone)
	c.managed = slices.Clone(want)
	if err := c.public.ManageAsync(ctx, want); err != nil {
		return fmt.Errorf("managing certificates: %w", err)
	}
	return nil
}

// Renew obtains all public certificates anew, whatever is left of their life, and shows the new ones from then on. It
// does nothing in other modes than ModeACME.
func (b *Box) Renew(ctx context.Context) error {
	c := b.manner.Load().certs
	if c.public == nil {
		return nil
	}
	for _, name := range b.names.Load().public {
		var old []string
		for _, cert := range c.cache.AllMatchingCertificates(name) {
			old = append(old, cert.Hash())
		}
		if err := c.public.RenewCertSync(ctx, name, true); err != nil {
			return fmt.Errorf("renewing the certificate of %s: %w", name, err)
		}
		if _, err := c.public.CacheManagedCertificate(ctx, name); err != nil {
			return fmt.Errorf("taking the new certificate of %s: %w", name, err)
		}
		c.cache.Remove(old)
	}
	return nil
}

// keep does what must be done from time to time until ctx ends: renew the intermediate, read the operator's files when
// they changed. A failure is logged and tried again.
func (c *certificates) keep(ctx context.Context) {
	tick := time.NewTicker(c.box.cfg.maintenance)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if c.box.authority.due() {
			if err := c.box.authority.renew(ctx); err != nil {
				c.box.cfg.Log.Error("the intermediate certificate cannot be renewed", "why", err)
			}
		}
		if c.outdated() {
			if err := c.readFiles(); err != nil {
				c.box.cfg.Log.Error("keeping the certificate that was read before", "why", err)
			}
		}
	}
}
