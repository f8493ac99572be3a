// Package conduit gives a process connections and no network. Whoever starts the process keeps one end of a pair of
// sockets, and the process inherits the other. A connection is a new pair, half of which is handed over through the
// first. The process makes no socket, no name and no port; nobody else can connect to it; and when it ends, all its
// connections end.
package conduit

import (
	"context"
	"errors"
	"net"
	"os"
)

// Descriptor is where a process that inherits an end finds it.
const Descriptor = 3

// network is what connections call themselves.
const network = "conduit"

// ErrUnsupported says that this system cannot do it.
var ErrUnsupported = errors.New("this system has no conduits")

// Caller is the end of whoever makes connections. It is safe for concurrent use.
type Caller struct{ conn *net.UnixConn }

// Dial makes a connection; see net.Dialer.DialContext. It does not wait for the other side to take it. Network and
// address mean nothing.
func (c *Caller) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	conn, err := c.dial()
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return conn, nil
}

// Close ends the conduit. Connections that were made stay.
func (c *Caller) Close() error { return c.conn.Close() }

// Listener is the end of the process that is called. It implements net.Listener.
type Listener struct{ conn *net.UnixConn }

var _ net.Listener = (*Listener)(nil)

// Listen takes the inherited end. The file is closed.
func Listen(end *os.File) (*Listener, error) {
	conn, err := control(end)
	if err != nil {
		return nil, err
	}
	return &Listener{conn}, nil
}

// Close ends the conduit for this side. Connections that were taken stay.
func (l *Listener) Close() error { return l.conn.Close() }

// Addr names no place: there is none to connect to.
func (l *Listener) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return network }
func (address) String() string  { return network }
