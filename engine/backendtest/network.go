package backendtest

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Network is a listener without a network: connections are pipes in memory. So a server and its clients can run in a
// synctest bubble, where time is false and a goroutine left behind fails the test.
type Network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewNetwork returns a listener.
func NewNetwork() *Network {
	return &Network{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Serve answers on the network with handler until stop is called, which breaks the open connections and returns when
// the last of them has ended.
func (n *Network) Serve(handler http.Handler) (stop func()) {
	var group sync.WaitGroup
	server := &http.Server{Handler: handler, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			group.Add(1)
		case http.StateClosed:
			group.Done()
		}
	}}
	group.Go(func() { _ = server.Serve(n) }) // it ends by Close only
	return func() {
		_ = server.Close() // a network in memory has nothing to say
		group.Wait()
	}
}

// Dial connects. It is refused once the listener is closed.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case n.conns <- there:
		return here, nil
	case <-n.closed:
		return nil, &net.OpError{Op: "dial", Net: network, Addr: n.Addr(), Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for a connection.
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the listener.
func (n *Network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr returns a name.
func (n *Network) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
