package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"onebit/engine"
	"onebit/engine/door"
)

// altSvcLife is how long a client may believe that there is HTTP/3, in seconds: a firewall may change.
const altSvcLife = "86400"

// lingering is how long the last bytes of HTTP/3 answers may take to arrive when the box stops.
const lingering = 500 * time.Millisecond

// build makes the servers of the listeners.
func (b *Box) build() {
	inner := Pace(clientAddress(b.guard(http.HandlerFunc(b.current)), b.cfg.TrustedProxies), b.cfg.ReadTimeout, b.cfg.WriteTimeout)
	t := b.certs.tlsConfig()
	b.secure = b.server(b.announceHTTP3(b.flow.count(inner)))
	b.secure.TLSConfig = t
	if b.udp != nil {
		b.quic = &http3.Server{
			Handler:        b.flowQUIC.count(inner),
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
	}
	if b.plain != nil {
		b.open = b.server(b.flow.count(Pace(clientAddress(b.plainHandler(), b.cfg.TrustedProxies), b.cfg.ReadTimeout, b.cfg.WriteTimeout)))
	}
}

// current passes a request to the handler of the moment.
func (b *Box) current(w http.ResponseWriter, r *http.Request) { (*b.handler.Load()).ServeHTTP(w, r) }

// server makes a server over TCP with the bounds that all have, also on bodies that no handler reads.
func (b *Box) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           door.Bodies(h, 0, unread),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(b.cfg.Log.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 256,
			SendPingTimeout:      30 * time.Second,
			PingTimeout:          15 * time.Second,
			WriteByteTimeout:     b.cfg.WriteTimeout,
		},
	}
}

// announceHTTP3 tells clients over TCP whether there is HTTP/3. Without it, it takes back what was said before.
func (b *Box) announceHTTP3(next http.Handler) http.Handler {
	value := "clear"
	if b.udp != nil {
		value = `h3=":` + b.port + `"; ma=` + altSvcLife
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", value)
		next.ServeHTTP(w, r)
	})
}

// Serve answers requests until ctx ends. Then it says good-bye to the network, takes no more, lets running answers end
// for as long as Drain says, and cuts what is left: the context of such a request ends with an
// *engine.UnavailableError as its cause, and the handler has a second to say so. It closes the ports and returns nil
// after a stop.
func (b *Box) Serve(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	failed := make(chan error, 3)
	var group sync.WaitGroup
	defer func() { // whatever the reason is
		stop()
		_ = b.Close()
		group.Wait()
	}()
	b.run(&group, failed)
	group.Go(func() { b.certs.keep(work) })
	if err := b.begin(work); err != nil {
		b.cut()
		return err
	}
	select {
	case err := <-failed:
		b.quiet()
		b.cut()
		return err
	case <-ctx.Done():
	}
	b.quiet()
	return b.end()
}

// run starts the servers.
func (b *Box) run(group *sync.WaitGroup, failed chan<- error) {
	group.Go(func() { failed <- fmt.Errorf("serving on %s: %w", b.tcp.Addr(), b.secure.ServeTLS(b.tcp, "", "")) })
	if b.quic != nil {
		group.Go(func() { failed <- fmt.Errorf("serving HTTP/3 on %s: %w", b.udp.LocalAddr(), b.quic.Serve(b.udp)) })
	}
	if b.open != nil {
		group.Go(func() { failed <- fmt.Errorf("serving on %s: %w", b.plain.Addr(), b.open.Serve(b.plain)) })
	}
}

// begin does what needs running listeners: public certificates, and discovery when it was wanted before.
func (b *Box) begin(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serving = ctx
	if b.wanted {
		b.announce()
	}
	return b.certs.manage(ctx)
}

// quiet says good-bye to the network.
func (b *Box) quiet() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.announced != nil {
		b.announced.end()
		b.announced = nil
	}
	b.serving = nil
}

// end stops politely, then firmly.
func (b *Box) end() error {
	parting := b.part()
	defer b.cut()
	defer parting.over()
	if b.shut(b.cfg.Drain, parting) == nil {
		return nil
	}
	b.stop()
	if err := b.shut(time.Second, parting); err != nil {
		b.cfg.Log.Warn("some answers did not end", "why", err)
	}
	return nil
}

// stop ends the contexts of running requests.
func (b *Box) stop() {
	for _, f := range []*flow{b.flow, b.flowQUIC} {
		f.stop(&engine.UnavailableError{Reason: "the server is stopping"})
	}
}

// shut takes no more requests and waits for running ones.
func (b *Box) shut(limit time.Duration, quic *parting) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	results := make(chan error, 3)
	var group sync.WaitGroup
	for _, s := range []*http.Server{b.secure, b.open} {
		if s != nil {
			group.Go(func() { results <- s.Shutdown(ctx) })
		}
	}
	group.Go(func() { results <- quic.wait(ctx) })
	group.Wait()
	close(results)
	var all error
	for err := range results {
		all = errors.Join(all, err)
	}
	return all
}

// parting is the end of HTTP/3: clients were told to go.
type parting struct {
	box    *Box
	cancel context.CancelFunc
	done   chan struct{} // closed when all clients are gone
}

// part tells HTTP/3 clients to go. Requests that they begin now are refused.
func (b *Box) part() *parting {
	p := &parting{box: b, cancel: func() {}, done: make(chan struct{})}
	if b.quic == nil {
		close(p.done)
		return p
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		_ = b.quic.Shutdown(ctx) // that clients did not go is not worth a word
	}()
	return p
}

// wait waits for running requests. Clients that do not go by themselves are not waited for: what is left of their
// answers has a moment to arrive.
func (p *parting) wait(ctx context.Context) error {
	for {
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-p.box.flowQUIC.idle():
		}
		linger := time.NewTimer(lingering)
		select {
		case <-p.done:
		case <-linger.C:
		}
		linger.Stop()
		select {
		case <-p.box.flowQUIC.idle():
			return nil
		default: // one had begun before the clients heard of the end
		}
	}
}

// over ends the connections that are left, and closes the port: on an open one, clients would wait for an answer.
func (p *parting) over() {
	p.cancel()
	late := time.NewTimer(time.Second)
	defer late.Stop()
	select {
	case <-p.done:
	case <-late.C: // a handler does not end
	}
	if p.box.udp != nil {
		_ = p.box.udp.Close() // nothing is left to do about what it says
	}
}

// cut ends everything at once.
func (b *Box) cut() {
	b.stop()
	_ = b.secure.Close() // they may be closed already
	if b.open != nil {
		_ = b.open.Close()
	}
}

// flow counts running requests and can end them.
type flow struct {
	cut  context.Context
	stop context.CancelCauseFunc

	mu      sync.Mutex
	running int
	waiting []chan struct{} // closed when nothing runs
}

func newFlow() *flow {
	f := &flow{}
	f.cut, f.stop = context.WithCancelCause(context.Background())
	return f
}

// count counts the requests of a handler, and ends their contexts when the flow is stopped.
func (f *flow) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.add(1)
		defer f.add(-1)
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(f.cut, func() { cancel(context.Cause(f.cut)) })()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (f *flow) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running += n; f.running == 0 {
		for _, c := range f.waiting {
			close(c)
		}
		f.waiting = nil
	}
}

// idle returns a channel that closes when no request runs.
func (f *flow) idle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{})
	if f.running == 0 {
		close(c)
		return c
	}
	f.waiting = append(f.waiting, c)
	return c
}
