package edge

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"onebit/engine/door"
)

// place is where a site listens, as the configuration has it, and what else its server was made with.
type place struct {
	host   string
	port   int // 0 takes a free one
	write  time.Duration
	secure bool
}

// site is one TCP socket with its server.
type site struct {
	place   place
	at      *net.TCPAddr // of the socket; before there is one, as it was configured
	server  *http.Server
	retired atomic.Bool // it takes no more connections
	conns   *flow       // its connections

	listener net.Listener  // nil while it has none
	served   chan struct{} // closed when it accepts no more; nil before it did
}

// site returns the one that is there when it serves the place too, else a new one. It listens, unless the box has the
// port itself, for what is given up.
func (b *Box) site(ctx context.Context, now *site, want place, held map[int]bool) (*site, error) {
	if now != nil && now.place == want {
		return now, nil
	}
	s := &site{place: want, conns: newFlow(), at: &net.TCPAddr{Port: want.port}}
	s.server = b.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.pass(s, w, r) }), want)
	s.server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.conns.add(1)
		case http.StateClosed, http.StateHijacked:
			s.conns.add(-1)
		}
	}
	if now != nil && now.reaches(want) {
		s.at = now.at
		s.share(now)
		return s, nil
	}
	if want.port != 0 && held[want.port] {
		return s, nil
	}
	return s, s.listen(ctx)
}

// port is the number of its port.
func (s *site) port() int { return s.at.Port }

// listen takes the port.
func (s *site) listen(ctx context.Context) error {
	var lc net.ListenConfig
	addr := net.JoinHostPort(s.place.host, strconv.Itoa(s.at.Port))
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	s.listener, s.at = l, l.Addr().(*net.TCPAddr)
	return nil
}

// reaches reports whether the site has the address that is wanted.
func (s *site) reaches(want place) bool {
	return s.place.host == want.host && (s.place.port == want.port || want.port == s.port())
}

// share makes the socket of another site this one's too, so that none of the connections that come in meanwhile is lost.
// Where the system does not do that, the port is taken when the other site has given it up.
func (s *site) share(other *site) {
	tcp, ok := other.listener.(*net.TCPListener)
	if !ok {
		return
	}
	f, err := tcp.File()
	if err != nil {
		return
	}
	if l, err := net.FileListener(f); err == nil {
		s.listener = l
	}
	_ = f.Close() // the listener has a copy
}

// pause gives the socket up, and nothing else.
func (s *site) pause() {
	s.retired.Store(true)
	_ = s.listener.Close() // nothing is left to do about what it says
}

// resume takes a port again that was given up a moment ago. The lock is held.
func (b *Box) resume(ctx context.Context, s *site) error {
	if err := s.listen(ctx); err != nil {
		return err
	}
	if s.served != nil {
		<-s.served
	}
	s.retired.Store(false)
	if b.serving != nil {
		b.start(s)
	}
	return nil
}

// start lets a site serve. The lock is held.
func (b *Box) start(s *site) {
	served := make(chan struct{})
	s.served = served
	l := s.listener
	b.group.Go(func() {
		defer close(served)
		var err error
		if s.place.secure {
			err = s.server.ServeTLS(l, "", "")
		} else {
			err = s.server.Serve(l)
		}
		if !s.retired.Load() {
			b.fail(fmt.Errorf("serving on %s: %w", l.Addr(), err))
		}
	})
}

// fail ends Serve. Only the first reason counts.
func (b *Box) fail(err error) {
	select {
	case b.failed <- err:
	default:
	}
}

// retire lets a site take no more connections. Those that it has end after the answer that runs, or comes next. The lock
// is held.
func (b *Box) retire(s *site) {
	s.pause()
	if b.serving == nil || s.served == nil {
		return
	}
	b.leaving = append(b.leaving, s)
	done, served := b.serving.Done(), s.served
	b.group.Go(func() {
		<-served // every connection is counted now
		select {
		case <-s.conns.idle():
		case <-done:
		}
		_ = s.server.Close() // nothing is left on it
		b.mu.Lock()
		defer b.mu.Unlock()
		b.leaving = slices.DeleteFunc(b.leaving, func(other *site) bool { return other == s })
	})
}

// quicSite is one UDP socket with its server.
type quicSite struct {
	host   string
	conn   net.PacketConn
	server *http3.Server
	flow   *flow // its requests

	once    sync.Once
	gone    chan struct{}      // closed when all clients are gone, after part
	cancel  context.CancelFunc // ends the wait for them
	retired atomic.Bool
}

// quicSite takes a UDP port.
func (b *Box) quicSite(ctx context.Context, host string, port int) (*quicSite, error) {
	var lc net.ListenConfig
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	conn, err := lc.ListenPacket(ctx, "udp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s for HTTP/3: %w", addr, err)
	}
	t := b.tls.Clone()
	t.GetConfigForClient = nil // public authorities ask over TCP
	s := &quicSite{host: host, conn: conn, flow: newFlow(), gone: make(chan struct{}), cancel: func() {}}
	s.server = &http3.Server{
		Handler:        s.flow.count(http.HandlerFunc(b.passQUIC)),
		TLSConfig:      http3.ConfigureTLSConfig(t),
		MaxHeaderBytes: 64 << 10,
		IdleTimeout:    2 * time.Minute,
		Logger:         slog.New(slog.DiscardHandler), // one line for each client that goes
		QUICConfig: &quic.Config{ // without one, early data would be on: requests that anybody can send again
			Allow0RTT:             false,
			HandshakeIdleTimeout:  10 * time.Second,
			MaxIdleTimeout:        90 * time.Second,
			KeepAlivePeriod:       20 * time.Second,
			MaxIncomingStreams:    256,
			MaxIncomingUniStreams: 8,
		},
	}
	return s, nil
}

func (s *quicSite) port() int { return s.conn.LocalAddr().(*net.UDPAddr).Port }

// startQUIC lets a site serve. The lock is held.
func (b *Box) startQUIC(s *quicSite) {
	b.group.Go(func() {
		if err := s.server.Serve(s.conn); !s.retired.Load() {
			b.fail(fmt.Errorf("serving HTTP/3 on %s: %w", s.conn.LocalAddr(), err))
		}
	})
}

// retireQUIC sends the clients of a site away; what runs ends. When it is through, the HTTP/3 of the moment may have its
// port. The lock is held.
func (b *Box) retireQUIC(s *quicSite) {
	if b.serving == nil {
		_ = s.conn.Close() // it never served
		return
	}
	b.parting = append(b.parting, s)
	ctx := b.serving
	s.part()
	b.group.Go(func() {
		_ = s.wait(ctx) // it ends with the box at the latest
		s.over()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.parting = slices.DeleteFunc(b.parting, func(other *quicSite) bool { return other == s })
		if b.serving != nil {
			b.openLate(ctx)
		}
	})
}

// part tells the clients to go. Requests that they begin now are refused.
func (s *quicSite) part() {
	s.once.Do(func() {
		s.retired.Store(true)
		ctx, cancel := context.WithCancel(context.Background())
		s.cancel = cancel
		go func() {
			defer close(s.gone)
			_ = s.server.Shutdown(ctx) // that clients did not go is not worth a word
		}()
	})
}

// wait waits for running requests, after part. Clients that do not go by themselves are not waited for: what is left of
// their answers has a moment to arrive.
func (s *quicSite) wait(ctx context.Context) error {
	for {
		select {
		case <-s.gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-s.flow.idle():
		}
		linger := time.NewTimer(lingering)
		select {
		case <-s.gone:
		case <-linger.C:
		}
		linger.Stop()
		select {
		case <-s.flow.idle():
			return nil
		default: // one had begun before the clients heard of the end
		}
	}
}

// over ends the connections that are left, after part, and closes the port: on an open one, clients would wait for an
// answer.
func (s *quicSite) over() {
	s.cancel()
	late := time.NewTimer(time.Second)
	defer late.Stop()
	select {
	case <-s.gone:
	case <-late.C: // a handler does not end
	}
	_ = s.conn.Close() // nothing is left to do about what it says
}

// partingPorts are those that HTTP/3 sites still have whose place another has taken.
func (b *Box) partingPorts() (all []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.parting {
		all = append(all, s.port())
	}
	return all
}

// openLate takes the port of HTTP/3 for a configuration that had to wait for it. The lock is held.
func (b *Box) openLate(ctx context.Context) {
	now, cfg := *b.ports.Load(), b.manner.Load().cfg
	if !cfg.HTTP3 || now.udp != nil {
		return
	}
	for _, s := range b.parting {
		if s.port() == now.tcp.port() {
			return // another is still on it
		}
	}
	s, err := b.quicSite(ctx, cfg.Host, now.tcp.port())
	if err != nil {
		b.trouble("the box goes on without HTTP/3", err)
		return
	}
	now.udp = s
	b.ports.Store(&now)
	if b.serving != nil {
		b.startQUIC(s)
		b.announceAgain(true)
	}
}

// server makes a server over TCP with the bounds that all have, also on bodies that no handler reads.
func (b *Box) server(h http.Handler, p place) *http.Server {
	s := &http.Server{
		Handler:           door.Bodies(b.flow.count(h), 0, unread),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(b.cfg.Log.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 256,
			SendPingTimeout:      30 * time.Second,
			PingTimeout:          15 * time.Second,
			WriteByteTimeout:     p.write,
		},
	}
	if p.secure {
		s.TLSConfig = b.tls.Clone() // the server adds to it
	}
	return s
}
