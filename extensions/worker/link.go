package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// conn is what frames travel on. A read or write that takes long ends with os.ErrDeadlineExceeded, so that whoever waits
// can look whether it still wants that; or it has no such thing, and whoever speaks to us ends us instead.
type conn interface{ io.ReadWriteCloser }

// link is one side of a connection between the box and a child. There is one for each instance, and one goroutine at a time
// uses it: it sends and waits for the answer itself. So no goroutine has to wake another.
type link struct {
	conn  conn
	limit int    // of a payload that is read
	in    []byte // bytes read from r to w
	r, w  int
	out   []byte
	told  bool // the other side knows that a call is about to come
}

// Errors of links.
var (
	errLate   = errors.New("the deadline passed")
	errBreach = errors.New("the worker broke the protocol")
)

const readSize = 16 << 10

func newLink(c conn, limit int) *link {
	return &link{conn: c, limit: limit, in: make([]byte, readSize)}
}

// large is what a buffer may keep from one frame to the next.
const large = 1 << 20

// send writes one frame, whose payload add appends. It waits until the deadline for the other side to take it; after an
// error the link is of no use.
func (l *link) send(k kind, id uint64, until time.Time, add func([]byte) []byte) error {
	l.out = begin(l.out, k, id)
	if add != nil {
		l.out = add(l.out)
	}
	b := finish(l.out)
	if cap(l.out) > large {
		l.out = nil
	}
	for {
		n, err := l.conn.Write(b)
		b = b[n:]
		switch {
		case len(b) == 0:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			if passed(until) {
				return errLate
			}
		case err != nil:
			return fmt.Errorf("writing to the other side: %w", err)
		}
	}
}

func passed(until time.Time) bool { return !until.IsZero() && !time.Now().Before(until) }

// await returns the next frame. It ends early with errLate or with ctx's error, after which it may be called again.
func (l *link) await(ctx context.Context, until time.Time) (frame, error) {
	for {
		f, ok, err := l.parse()
		if ok || err != nil {
			return f, err
		}
		if l.r == l.w {
			l.r, l.w = 0, 0
		}
		n, err := l.conn.Read(l.in[l.w:])
		l.w += n
		switch {
		case n > 0:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if ctx.Err() != nil {
				return frame{}, ctx.Err()
			}
			if passed(until) {
				return frame{}, errLate
			}
		case err != nil:
			return frame{}, fmt.Errorf("reading from the other side: %w", err)
		}
	}
}

// parse takes a whole frame from what was read. It makes room for the rest of one that is not whole. Memory grows with
// what came, not with what a header promises.
func (l *link) parse() (f frame, ok bool, err error) {
	have := l.in[l.r:l.w]
	if len(have) < headerSize {
		l.room(headerSize)
		return frame{}, false, nil
	}
	size := binary.LittleEndian.Uint32(have)
	if uint64(size) > uint64(l.limit) {
		return frame{}, false, fmt.Errorf("%w: a payload of %d bytes, at most %d", errBreach, size, l.limit)
	}
	whole := headerSize + int(size)
	if len(have) < whole {
		l.room(min(whole, 2*len(have)+readSize))
		return frame{}, false, nil
	}
	f = frame{kind: kind(have[4]), id: binary.LittleEndian.Uint64(have[5:]), payload: append([]byte(nil), have[headerSize:whole]...)}
	l.r += whole
	if l.r == l.w && len(l.in) > large {
		l.in, l.r, l.w = make([]byte, readSize), 0, 0
	}
	return f, true, nil
}

// room makes sure that n bytes from r on fit, and that there is space to read into.
func (l *link) room(n int) {
	if l.r+n <= len(l.in) && l.w < len(l.in) {
		return
	}
	to := l.in
	if n > len(l.in) || l.w-l.r == len(l.in) {
		to = make([]byte, max(n, 2*(l.w-l.r)))
	}
	l.w = copy(to, l.in[l.r:l.w])
	l.r, l.in = 0, to
}
