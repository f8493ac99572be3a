package h1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// sizes in bytes.
const (
	// What a connection reads at once. It begins narrow, since a server that speaks as fast as a model has little at hand
	// at any time, and a thousand streams hold a thousand buffers; a read that fills it makes it wide.
	narrow = 8 << 10
	wide   = 32 << 10
	// together is how long a body is copied behind its head, so that both go out in one write.
	together = 32 << 10
	maxLine  = 4 << 10 // of a chunk's length or of a trailer
	maxTrail = 16 << 10
)

// What connections read into while an answer is on its way.
var (
	narrowBuffers = sync.Pool{New: func() any { return new([narrow]byte) }}
	wideBuffers   = sync.Pool{New: func() any { return new([wide]byte) }}
)

// conn is one connection. It belongs to one goroutine at a time, but for close and abort.
type conn struct {
	net net.Conn
	raw syscall.RawConn // nil where the connection cannot be asked without waiting

	small    *[narrow]byte // nil while it rests, or is wide
	large    *[wide]byte   // nil while it rests, or is narrow
	buf      []byte        // all of one of them
	from, to int           // what of buf was read and not yet taken
	peek     func(fd uintptr) bool
	peeked   int
	peekErr  error

	body  body
	keep  bool // the server lets the connection serve again
	since time.Time
	out   []byte
}

func newConn(n net.Conn) *conn {
	c := &conn{net: n}
	c.raw = rawConn(n)
	c.peek = func(fd uintptr) bool {
		c.peeked, c.peekErr = readNow(fd, c.buf[c.to:])
		return true
	}
	return c
}

func (c *conn) abort() { c.net.Close() }

// close ends the connection and gives its memory back. Nobody may use it afterwards.
func (c *conn) close() {
	c.net.Close()
	c.release()
}

func (c *conn) release() {
	if c.small != nil {
		narrowBuffers.Put(c.small)
	}
	if c.large != nil {
		wideBuffers.Put(c.large)
	}
	c.small, c.large, c.buf, c.from, c.to = nil, nil, nil, 0, 0
}

// hold makes sure that there is a buffer.
func (c *conn) hold() {
	if c.buf == nil {
		c.small, _ = narrowBuffers.Get().(*[narrow]byte) // nothing else is put there
		c.buf = c.small[:]
	}
}

// widen takes a wide buffer in place of a narrow one.
func (c *conn) widen() {
	large, _ := wideBuffers.Get().(*[wide]byte) // nothing else is put there
	n := copy(large[:], c.buf[c.from:c.to])
	narrowBuffers.Put(c.small)
	c.small, c.large, c.buf, c.from, c.to = nil, large, large[:], 0, n
}

// rested notes that the connection waits from now on.
func (c *conn) rested() {
	c.since = time.Now()
	if cap(c.out) > 4<<10 {
		c.out = nil
	}
	if c.ended() {
		c.release()
	}
}

// ended reports whether the body has been read to its end and nothing came behind it.
func (c *conn) ended() bool { return c.body.state == over && c.from == c.to }

// asks reports whether the connection can be asked for what has come without waiting.
func (c *conn) asks() bool { return c.raw != nil }

// health is how a waiting connection is.
type health int

const (
	alive health = iota
	unfinished
	dead
)

// fresh looks at a connection that has waited.
func (c *conn) fresh() health {
	if time.Since(c.since) > stale {
		return dead
	}
	if !c.asks() {
		return alive
	}
	c.hold()
	for {
		if c.from == c.to {
			c.from, c.to = 0, 0
		}
		if c.to == len(c.buf) || c.raw.Read(c.peek) != nil {
			return dead // more than an end can be, or closed
		}
		switch {
		case c.peekErr != nil && wouldBlock(c.peekErr):
			if c.ended() {
				return alive
			}
			return unfinished
		case c.peekErr != nil || c.peeked <= 0:
			return dead
		}
		c.to += c.peeked
		if err := c.rest(); err != nil {
			return dead
		}
	}
}

// rest takes what is in the buffer of an end that may hold no more content.
func (c *conn) rest() error {
	var one [1]byte
	n, err := c.body.take(c, one[:])
	if err == nil && (n > 0 || (c.body.state == over && c.from != c.to)) {
		err = ErrMalformed
	}
	return err
}

// fill reads once, at least one byte.
func (c *conn) fill() error {
	if c.small != nil && c.to == len(c.buf) {
		c.widen() // there was more at hand than fits
	} else if c.from == c.to {
		c.from, c.to = 0, 0
	} else if c.to > len(c.buf)/2 {
		c.to = copy(c.buf, c.buf[c.from:c.to]) // it is little, and so would be what is read behind it
		c.from = 0
		if c.to == len(c.buf) {
			return ErrMalformed // a line that long is none
		}
	}
	for range 100 {
		n, err := c.net.Read(c.buf[c.to:])
		if n > 0 {
			c.to += n
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// write sends a request.
func (c *conn) write(host string, r *Request) error {
	b := append(c.out[:0], "POST "...)
	b = append(b, r.Path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	if r.ID != "" {
		b = append(b, "\r\nX-Request-Id: "...)
		b = append(b, r.ID...)
	}
	b = append(b, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(r.Body)), 10)
	b = append(b, "\r\n\r\n"...)
	if len(r.Body) <= together {
		b = append(b, r.Body...)
		c.out = b
		_, err := c.net.Write(b)
		return err
	}
	c.out = b
	_, err := (&net.Buffers{b, r.Body}).WriteTo(c.net)
	return err
}

// head reads the head of the answer, past those that only announce it.
func (c *conn) head() (head, error) {
	c.hold()
	for announced := 0; announced < 8; {
		end := bytes.Index(c.buf[c.from:c.to], []byte("\r\n\r\n"))
		if end < 0 {
			if err := c.fill(); err != nil {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return head{}, err
			}
			continue
		}
		h, err := parseHead(c.buf[c.from : c.from+end+2])
		if err != nil {
			return head{}, err
		}
		c.from += end + 4
		if h.status < 200 {
			announced++
			continue
		}
		c.keep, c.body = h.keep, h.body()
		return h, nil
	}
	return head{}, ErrMalformed
}

// read reads of the body what is there, or waits for more.
func (c *conn) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err := c.body.take(c, p)
		if n > 0 || err != nil {
			return n, err
		}
		if c.body.state == over {
			return 0, io.EOF
		}
		err = c.fill()
		if errors.Is(err, io.EOF) {
			if c.body.state == untilClose {
				c.body.state = over
				return 0, io.EOF
			}
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
	}
}
