package edge

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"onebit/engine"
)

// altSvcLife is how long a client may believe that there is HTTP/3, in seconds: a firewall may change.
const altSvcLife = "86400"

// lingering is how long the last bytes of HTTP/3 answers may take to arrive when the box stops.
const lingering = 500 * time.Millisecond

// current passes a request to the handler of the moment.
func (b *Box) current(w http.ResponseWriter, r *http.Request) { (*b.handler.Load()).ServeHTTP(w, r) }

// pass answers a request that came in at a site.
func (b *Box) pass(s *site, w http.ResponseWriter, r *http.Request) {
	retired, m := s.retired.Load(), b.manner.Load()
	if retired { // its clients find the new place by themselves
		w.Header().Set("Connection", "close")
	}
	if !s.place.secure {
		m.open.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Alt-Svc", b.altSvc(retired))
	m.secure.ServeHTTP(w, r)
}

// passQUIC answers a request over HTTP/3.
func (b *Box) passQUIC(w http.ResponseWriter, r *http.Request) {
	b.manner.Load().secure.ServeHTTP(w, r)
}

// altSvc tells clients over TCP whether there is HTTP/3. Without it, it takes back what was said before.
func (b *Box) altSvc(retired bool) string {
	if now := b.ports.Load(); now.udp != nil && !retired {
		return `h3=":` + strconv.Itoa(now.udp.port()) + `"; ma=` + altSvcLife
	}
	return "clear"
}

// Serve answers requests until ctx ends. Then it says good-bye to the network, takes no more, lets running answers end
// for as long as Drain says, and cuts what is left: the context of such a request ends with an
// *engine.UnavailableError as its cause, and the handler has a second to say so. It closes the ports and returns nil
// after a stop.
func (b *Box) Serve(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() { // whatever the reason is
		stop()
		_ = b.Close()
		b.group.Wait()
	}()
	if err := b.begin(work); err != nil {
		b.quiet()
		b.cut()
		return err
	}
	select {
	case err := <-b.failed:
		b.quiet()
		b.cut()
		return err
	case <-ctx.Done():
	}
	b.quiet()
	return b.end()
}

// begin starts the servers, and what needs them running: public certificates, and discovery when it was wanted before.
func (b *Box) begin(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serving = ctx
	now := b.ports.Load()
	b.start(now.tcp)
	if now.plain != nil {
		b.start(now.plain)
	}
	if now.udp != nil {
		b.startQUIC(now.udp)
	}
	b.care()
	b.announceAgain(false)
	return b.manner.Load().certs.manage(b.caring)
}

// quiet says good-bye to the network. No change is carried through from then on.
func (b *Box) quiet() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.announced != nil {
		b.announced.end()
		b.announced = nil
	}
	b.serving, b.stopped = nil, true
}

// all lists what serves, that whose place another has taken too.
func (b *Box) all() (sites []*site, quic []*quicSite) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.ports.Load()
	sites, quic = append(sites, b.leaving...), append(quic, b.parting...)
	for _, s := range []*site{now.tcp, now.plain} {
		if s != nil {
			sites = append(sites, s)
		}
	}
	if now.udp != nil {
		quic = append(quic, now.udp)
	}
	return sites, quic
}

// end stops politely, then firmly.
func (b *Box) end() error {
	_, quic := b.all()
	for _, s := range quic {
		s.part()
	}
	defer b.cut()
	defer func() {
		for _, s := range quic {
			s.over()
		}
	}()
	if b.shut(b.manner.Load().cfg.Drain) == nil {
		return nil
	}
	b.stop()
	if err := b.shut(time.Second); err != nil {
		b.cfg.Log.Warn("some answers did not end", "why", err)
	}
	return nil
}

// stop ends the contexts of running requests.
func (b *Box) stop() {
	why := &engine.UnavailableError{Reason: "the server is stopping"}
	b.flow.stop(why)
	_, quic := b.all()
	for _, s := range quic {
		s.flow.stop(why)
	}
}

// shut takes no more requests and waits for running ones.
func (b *Box) shut(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	sites, quic := b.all()
	results := make(chan error, len(sites)+len(quic))
	var group sync.WaitGroup
	for _, s := range sites {
		group.Go(func() { results <- s.server.Shutdown(ctx) })
	}
	for _, s := range quic {
		group.Go(func() { results <- s.wait(ctx) })
	}
	group.Wait()
	close(results)
	var all error
	for err := range results {
		all = errors.Join(all, err)
	}
	return all
}

// cut ends everything at once.
func (b *Box) cut() {
	b.stop()
	sites, _ := b.all()
	for _, s := range sites {
		_ = s.server.Close() // they may be closed already
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
