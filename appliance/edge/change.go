package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// manner is how the box answers, as one configuration wants it: which pages it believes and which proxies, which
// certificates it shows. It does not change; another one takes its place, for connections that are open too.
type manner struct {
	cfg    BoxConfig
	certs  *certificates
	secure http.Handler // over TLS
	open   http.Handler // plain HTTP
}

// newManner makes all of a manner but its certificates, which it may share with the one before.
func (b *Box) newManner(cfg BoxConfig, certs *certificates) (*manner, error) {
	origins := map[string]bool{}
	for _, o := range cfg.Origins {
		c := canonicalOrigin(o)
		if c == "" {
			return nil, fmt.Errorf("%q is no origin of a page, such as https://chat.example.org", o)
		}
		origins[c] = true
	}
	dress := func(h http.Handler) http.Handler {
		return Pace(clientAddress(h, cfg.TrustedProxies), cfg.ReadTimeout, cfg.WriteTimeout)
	}
	return &manner{
		cfg: cfg, certs: certs,
		secure: dress(b.guard(origins, http.HandlerFunc(b.current))),
		open:   dress(b.plainHandler(certs)),
	}, nil
}

// Change is another configuration for a box, with all that it needs. Use takes it on, or Discard gives it up.
type Change struct {
	box   *Box
	next  *manner
	names *names
	ports ports // what is not taken yet has no socket
	late  bool  // HTTP/3 must wait for the port until the one before is through with it
}

// Prepare takes the ports and reads the certificates that another configuration wants beside those that are there.
// Nothing of it is in force yet, and an error leaves nothing behind. Storage, Interfaces, Log and Clock stay what they
// were. One change is prepared at a time.
func (b *Box) Prepare(ctx context.Context, cfg BoxConfig) (*Change, error) {
	cfg.Storage, cfg.Interfaces, cfg.Log, cfg.Clock, cfg.maintenance = b.cfg.Storage, b.cfg.Interfaces, b.cfg.Log, b.cfg.Clock, b.cfg.maintenance
	cfg.complete()
	n, err := newNames(cfg.Name, cfg.Names)
	if err != nil {
		return nil, err
	}
	c := &Change{box: b, names: n}
	if err := c.take(ctx, cfg); err != nil {
		c.Discard()
		return nil, err
	}
	at := reach{host: cfg.Host, secure: c.ports.tcp.port()}
	if c.ports.plain != nil {
		at.plain = c.ports.plain.port()
	}
	old := b.manner.Load()
	var certs *certificates
	if old != nil && old.certs.same(cfg.TLS, at) {
		certs, err = old.certs, old.certs.may(n)
	} else {
		certs, err = newCertificates(b, cfg.TLS, n, at)
	}
	if err == nil {
		c.next, err = b.newManner(cfg, certs)
	}
	if err != nil {
		if certs != nil && (old == nil || certs != old.certs) {
			certs.close()
		}
		c.Discard()
		return nil, err
	}
	return c, nil
}

// Discard gives up a change that is not used.
func (c *Change) Discard() {
	now := c.box.ports.Load()
	if s := c.ports.tcp; s != nil && s != now.tcp && s.listener != nil {
		_ = s.listener.Close() // nobody has it
	}
	if s := c.ports.plain; s != nil && s != now.plain && s.listener != nil {
		_ = s.listener.Close()
	}
	if s := c.ports.udp; s != nil && s != now.udp {
		_ = s.conn.Close()
	}
	if m := c.box.manner.Load(); c.next != nil && (m == nil || c.next.certs != m.certs) {
		c.next.certs.close()
	}
}

// Use takes the change on: what begins from now on goes by it. What runs is not touched: requests on ports that are
// given up run to their end there. An error, such as a port that could be tried only now because the box itself had it,
// leaves everything as it was.
func (c *Change) Use(ctx context.Context) error {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		c.Discard()
		return errors.New("the box is stopping")
	}
	if err := c.takeLate(ctx); err != nil {
		return err
	}
	before, was, called := *b.ports.Load(), b.manner.Load(), b.names.Load()
	if called.box == c.names.box && called.alias != "" {
		c.names = c.names.with(called.alias)
	}
	b.names.Store(c.names)
	b.manner.Store(c.next)
	now := c.ports
	b.ports.Store(&now)
	b.problem.Store(nil)
	b.hand(before, now)
	if c.late {
		b.openLate(ctx)
	}
	if was != nil && was.certs != c.next.certs {
		b.uncare()
		was.certs.close()
	}
	if b.serving == nil {
		return nil
	}
	b.announceAgain(called.box != c.names.box || before.tcp.port() != now.tcp.port() || (before.udp == nil) != (now.udp == nil))
	if was.certs != c.next.certs {
		b.care()
	}
	if err := c.next.certs.manage(b.caring); err != nil {
		b.trouble("public certificates are not cared for", err)
	}
	return nil
}

// trouble notes what went wrong after a change was taken on.
func (b *Box) trouble(what string, err error) {
	b.cfg.Log.Error(what, "why", err)
	text := what + ": " + err.Error()
	b.problem.Store(&text)
}

// care begins the care for the certificates of the moment. The lock is held.
func (b *Box) care() {
	b.caring, b.uncare = context.WithCancel(b.serving)
	ctx, certs := b.caring, b.manner.Load().certs
	b.group.Go(func() { certs.keep(ctx) })
}

// hand lets sites go that are not among the ports any more, and starts those that are new. The lock is held.
func (b *Box) hand(before, now ports) {
	for _, pair := range [][2]*site{{before.tcp, now.tcp}, {before.plain, now.plain}} {
		if old, next := pair[0], pair[1]; old != next {
			if old != nil {
				b.retire(old)
			}
			if next != nil && b.serving != nil {
				b.start(next)
			}
		}
	}
	if before.udp == now.udp {
		return
	}
	if before.udp != nil {
		b.retireQUIC(before.udp)
	}
	if now.udp != nil && b.serving != nil {
		b.startQUIC(now.udp)
	}
}

// ports are the sockets of the moment.
type ports struct {
	tcp   *site
	plain *site     // nil without plain HTTP
	udp   *quicSite // nil without HTTP/3
}

func (p *ports) close() {
	for _, s := range []*site{p.tcp, p.plain} {
		if s != nil {
			_ = s.listener.Close() // they may be closed already
		}
	}
	if p.udp != nil {
		_ = p.udp.conn.Close()
	}
}

// take takes the ports of a configuration. Where the port is the same, so is the site. What the box itself has at the
// moment, for something else that the change gives up, is taken when the change is used.
func (c *Change) take(ctx context.Context, cfg BoxConfig) (err error) {
	b, now := c.box, c.box.ports.Load()
	secure := place{cfg.Host, cfg.Port, cfg.WriteTimeout, true}
	open := place{cfg.Host, cfg.HTTPPort, cfg.WriteTimeout, false}
	held := map[int]bool{} // ports that the change gives up
	for _, s := range []struct {
		old  *site
		next place
	}{{now.tcp, secure}, {now.plain, open}} {
		if s.old != nil && !s.old.reaches(s.next) {
			held[s.old.port()] = true
		}
	}
	for range 20 { // a free TCP port may have a number that is taken for UDP
		if c.ports.tcp, err = b.site(ctx, now.tcp, secure, held); err != nil {
			return err
		}
		if err = c.takeUDP(ctx, cfg, now); err == nil || cfg.Port != 0 || c.ports.tcp == now.tcp {
			break
		}
		_ = c.ports.tcp.listener.Close()
		c.ports.tcp = nil
	}
	if err == nil && cfg.HTTPPort >= 0 {
		c.ports.plain, err = b.site(ctx, now.plain, open, held)
	}
	return err
}

// takeUDP takes the port of HTTP/3, which is that of HTTPS.
func (c *Change) takeUDP(ctx context.Context, cfg BoxConfig, now *ports) (err error) {
	if !cfg.HTTP3 {
		return nil
	}
	port := c.ports.tcp.port()
	if now.udp != nil && now.udp.port() == port {
		if now.udp.host == cfg.Host {
			c.ports.udp = now.udp
			return nil
		}
		c.late = true // one socket serves one address: the answers on the old one come first
		return nil
	}
	if b := c.box; slices.ContainsFunc(b.partingPorts(), func(p int) bool { return p == port }) {
		c.late = true
		return nil
	}
	c.ports.udp, err = c.box.quicSite(ctx, cfg.Host, port)
	return err
}

// takeLate takes what the box itself had for something else. The lock is held.
func (c *Change) takeLate(ctx context.Context) error {
	b, now := c.box, c.box.ports.Load()
	var late, given []*site
	for _, next := range []*site{c.ports.tcp, c.ports.plain} {
		if next == nil || next.listener != nil {
			continue
		}
		late = append(late, next)
		for _, old := range []*site{now.tcp, now.plain} {
			if old != nil && old != c.ports.tcp && old != c.ports.plain && old.port() == next.port() {
				old.pause()
				given = append(given, old)
			}
		}
	}
	var err error
	for _, next := range late {
		if err == nil {
			err = next.listen(ctx)
		}
	}
	if err == nil {
		return nil
	}
	c.Discard()
	for _, s := range given {
		if back := b.resume(ctx, s); back != nil {
			err = errors.Join(err, back)
			b.fail(back) // the box is deaf: better to end, and be started again
		}
	}
	return err
}
