package edge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/brutella/dnssd"
	"github.com/miekg/dns"
)

// What the box is for those who look for services near by.
const (
	typeHTTPS   = "_https._tcp"
	typeGateway = "_ai-gateway._tcp"
)

// gatewaySubtypes say which dialects the gateway speaks.
func gatewaySubtypes() []string { return []string{"_chat-completions", "_responses", "_messages"} }

// Advertise announces the box to the network, or takes that back. The network learns the box's name, its addresses and
// its port, and how its root begins; never models, people or keys. Without Discovery it does nothing. It may be called
// before Serve: then it holds from there on.
func (b *Box) Advertise(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted = on
	b.announceAgain(false)
}

// announceAgain makes what is announced what is wanted; anew says that what the network was told has changed. The lock
// is held.
func (b *Box) announceAgain(anew bool) {
	wanted := b.wanted && b.serving != nil && b.manner.Load().cfg.Discovery
	if b.announced != nil && (anew || !wanted) {
		b.announced.end()
		b.announced = nil
	}
	if b.announced == nil && wanted {
		b.announce()
	}
}

// announce begins an announcement. The lock is held.
func (b *Box) announce() {
	ctx, cancel := context.WithCancel(b.serving)
	a := &announcement{cancel: cancel}
	n := b.names.Load()
	a.group.Go(func() {
		if err := b.advertise(ctx, n); err != nil && ctx.Err() == nil {
			b.cfg.Log.Warn("the box cannot be announced to the network", "why", err)
		}
	})
	b.announced = a
}

// announcement is one that runs.
type announcement struct {
	cancel context.CancelFunc
	group  sync.WaitGroup
}

// end says good-bye and waits until that is out.
func (a *announcement) end() {
	a.cancel()
	a.group.Wait()
}

// advertise announces the box until ctx ends, then says good-bye. When another machine has the name already, the box
// takes the next one that is free, and answers to that too.
func (b *Box) advertise(ctx context.Context, n *names) error {
	probe, err := dnssd.ProbeService(ctx, b.service(n.box, typeHTTPS, nil))
	if err != nil {
		return fmt.Errorf("looking for a free name: %w", err)
	}
	if probe.Host != n.box {
		b.cfg.Log.Warn("another machine has this name: taking the next", "name", n.box+".local", "taken", probe.Host+".local")
		b.alias(n.box, probe.Host)
	}
	responder, err := dnssd.NewResponder()
	if err != nil {
		return fmt.Errorf("listening for questions: %w", err)
	}
	var told [2]dnssd.ServiceHandle
	for i, s := range [2]dnssd.Service{
		b.service(probe.Host, typeHTTPS, map[string]string{"path": "/"}), b.service(probe.Host, typeGateway, b.gatewayText()),
	} {
		if told[i], err = responder.Add(s); err != nil {
			return fmt.Errorf("announcing %s: %w", s.Type, err)
		}
	}
	return b.respond(ctx, responder, told[0], told[1])
}

// registering is how long the end of an announcement waits for its beginning; that takes two seconds where no name is
// fought over.
const registering = 5 * time.Second

// respond answers for the services until ctx ends, then says good-bye. A registration that has begun is let end first:
// interrupted, the responder would not take back what it has announced by then, nor close its sockets.
func (b *Box) respond(ctx context.Context, responder dnssd.Responder, https, gateway dnssd.ServiceHandle) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	lasting, through := context.WithCancel(context.WithoutCancel(ctx))
	begun := &noticed{Context: running, asked: make(chan struct{})}
	registered := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		<-begun.asked
		responder.Remove(nil) // it removes nothing, once it has the lock that registering holds
		close(registered)
		if running.Err() != nil {
			return
		}
		t := newSubtypes(gateway.Service(), gatewaySubtypes())
		t.services = []dns.RR{dnssd.PTR(https.Service()), dnssd.PTR(gateway.Service())}
		if err := t.run(lasting, b.cfg.Interfaces); err != nil {
			b.cfg.Log.Warn("the kinds of the gateway are not announced", "why", err)
		}
	})
	group.Go(func() {
		select {
		case <-ctx.Done():
		case <-running.Done():
			return
		}
		select {
		case <-registered:
		case <-time.After(registering):
		}
		stop()
	})
	err := responder.Respond(begun)
	stop()
	through()
	begun.notice()
	group.Wait()
	return err
}

// noticed is a context that tells when it is first asked for its end. The responder does so when it has begun to
// register, which it says in no other way.
type noticed struct {
	context.Context
	once  sync.Once
	asked chan struct{} // closed then
}

// Done is the context's.
func (n *noticed) Done() <-chan struct{} {
	n.notice()
	return n.Context.Done()
}

func (n *noticed) notice() { n.once.Do(func() { close(n.asked) }) }

// service describes the box under a name that is known to be valid.
func (b *Box) service(host, kind string, text map[string]string) dnssd.Service {
	s, err := dnssd.NewService(dnssd.Config{
		Name: host, Type: kind, Domain: "local", Host: host, Port: b.Port(), Text: text, Ifaces: b.cfg.Interfaces,
	})
	if err != nil {
		panic(err) // it complains about missing words only
	}
	return s
}

// gatewayText is what the announcement of the gateway says.
func (b *Box) gatewayText() map[string]string {
	protocols := "h2"
	if b.ports.Load().udp != nil {
		protocols = "h2,h3"
	}
	_, f := b.Root()
	return map[string]string{"txtvers": "1", "path": "/v1", "alpn": protocols, "auth": "bearer", "fp": f[:16]}
}

// alias adds a name under which the network knows the box called box, unless it is called otherwise meanwhile.
func (b *Box) alias(box, host string) {
	for {
		old := b.names.Load()
		if old.box != box || b.names.CompareAndSwap(old, old.with(host)) {
			return
		}
	}
}
