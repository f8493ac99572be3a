// Package h1 is HTTP/1.1 as a client needs it towards a model server on the same machine: one request at a time on a
// connection that is kept, written and read in the caller's own goroutine. So an answer wakes one goroutine and no
// more, which is most of what a proxy adds to a stream.
//
// It is strict. What is not plainly a response (bare line feeds, folded or doubled framing fields, lengths that do not
// parse) is ErrMalformed, and so is more than was announced; such a connection is never used again.
package h1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// ErrMalformed says that what came is not an HTTP/1.1 response.
var ErrMalformed = errors.New("the server sent something that is not an HTTP/1.1 response")

const (
	// maxIdle is how many connections wait for the next request at most.
	maxIdle = 256
	// stale is how long a connection waits. Servers close theirs after five seconds and more, and a request must not
	// meet that.
	stale = 3 * time.Second
	// linger is how long an end that is due may take where the connection cannot be asked about it later.
	linger = 50 * time.Millisecond
)

// Config describes a Client.
type Config struct {
	Addr string // host:port, also what the field Host says
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client sends requests to one server. It may be used by many goroutines.
type Client struct {
	cfg Config

	mu   sync.Mutex
	idle []*conn // the one used last at the end
}

// New returns a Client. It does not connect.
func New(cfg Config) *Client { return &Client{cfg: cfg} }

// Request is a POST of JSON.
type Request struct {
	Path string // such as /v1/chat/completions
	ID   string // the field X-Request-Id; left out when empty
	Body []byte
}

// Post sends a request and reads the head of the answer, whose body must be closed. When ctx ends, also later while
// the body is read, the connection is closed at once, whoever holds it.
func (c *Client) Post(ctx context.Context, r Request) (*Answer, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	a := &Answer{client: c, conn: cn, stop: context.AfterFunc(ctx, cn.abort)}
	if err := a.exchange(&r); err != nil {
		a.fail()
		return nil, err
	}
	return a, nil
}

// check refuses what would become another request than the one that is meant.
func (r *Request) check() error {
	for _, s := range []string{r.Path, r.ID} {
		for i := range len(s) {
			if s[i] <= ' ' || s[i] > '~' {
				return fmt.Errorf("%q cannot stand in a request's head", s)
			}
		}
	}
	if r.Path == "" || r.Path[0] != '/' {
		return fmt.Errorf("%q is no path", r.Path)
	}
	return nil
}

// connect returns a connection that is kept and still good, else a new one.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	var early []*conn // the ends of their answers are still on the way
	defer func() {
		for _, cn := range early {
			c.put(cn)
		}
	}()
	for {
		cn := c.take()
		if cn == nil {
			break
		}
		switch cn.fresh() {
		case alive:
			return cn, nil
		case unfinished:
			early = append(early, cn)
		case dead:
			cn.close()
		}
	}
	n, err := c.cfg.Dial(ctx, "tcp", c.cfg.Addr)
	if err != nil {
		return nil, err
	}
	return newConn(n), nil
}

// take removes the connection that was used last, if one is young enough.
func (c *Client) take() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.idle) - 1
	if last < 0 {
		return nil
	}
	cn := c.idle[last]
	c.idle[last] = nil
	c.idle = c.idle[:last]
	return cn
}

// put keeps a connection. It closes those that nobody took for too long.
func (c *Client) put(cn *conn) {
	c.mu.Lock()
	c.idle = append(c.idle, cn)
	var old []*conn
	for len(c.idle) > maxIdle || (len(c.idle) > 1 && time.Since(c.idle[0].since) > stale) {
		old = append(old, c.idle[0])
		c.idle = c.idle[1:]
	}
	c.mu.Unlock()
	for _, cn := range old {
		cn.close()
	}
}

// CloseIdle closes the connections that wait. The Client stays usable.
func (c *Client) CloseIdle() {
	c.mu.Lock()
	idle := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, cn := range idle {
		cn.close()
	}
}

// Answer is a response whose body is still to be read. One goroutine uses it.
type Answer struct {
	Status     int    // 200 to 599
	Type       string // the field Content-Type
	RetryAfter string // the field Retry-After

	client *Client
	conn   *conn // nil once closed
	stop   func() bool
}

// exchange writes the request and reads the head of the answer to it.
func (a *Answer) exchange(r *Request) error {
	wrote := a.conn.write(a.client.cfg.Addr, r)
	// a server that does not want all of a body may say why and close
	h, err := a.conn.head()
	if err != nil {
		if wrote != nil {
			return wrote
		}
		return err
	}
	if wrote != nil {
		a.conn.keep = false
	}
	a.Status, a.Type, a.RetryAfter = h.status, h.kind, h.retryAfter
	return nil
}

// Read reads the body. Its end is io.EOF; a body that breaks off is io.ErrUnexpectedEOF.
func (a *Answer) Read(p []byte) (int, error) {
	if a.conn == nil {
		return 0, net.ErrClosed
	}
	return a.conn.read(p)
}

// Close ends the answer, and the connection with it unless the body was read to its end.
func (a *Answer) Close() error {
	if a.conn != nil && a.conn.ended() {
		a.keep()
		return nil
	}
	a.fail()
	return nil
}

// Finish closes an answer whose content has come to its end, though the body's end may not have been read. The
// connection is used again only if nothing but that end follows.
func (a *Answer) Finish() {
	if a.conn == nil {
		return
	}
	if err := a.conn.rest(); err != nil {
		a.fail()
		return
	}
	if a.conn.keep && !a.conn.ended() && !a.conn.asks() {
		a.drain()
		return
	}
	a.keep()
}

// drain waits a moment for the end.
func (a *Answer) drain() {
	cn := a.conn
	if cn.net.SetReadDeadline(time.Now().Add(linger)) == nil {
		if n, err := cn.read(make([]byte, 1)); n == 0 && errors.Is(err, io.EOF) && cn.net.SetReadDeadline(time.Time{}) == nil {
			a.keep()
			return
		}
	}
	a.fail()
}

// keep gives the connection back.
func (a *Answer) keep() {
	cn := a.conn
	a.conn = nil
	if !a.stop() || !cn.keep {
		cn.close()
		return
	}
	cn.rested()
	a.client.put(cn)
}

// fail closes the connection.
func (a *Answer) fail() {
	if a.conn == nil {
		return
	}
	a.stop()
	a.conn.close()
	a.conn = nil
}
