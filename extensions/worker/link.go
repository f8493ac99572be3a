package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// conn is what frames travel on. Deadlines are those of net.Conn; a conn without them is closed by whoever ends its
// process.
type conn interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// box is where a frame waits for the goroutine that it is for. The other side sends one and waits, so one fits.
type box chan frame

// link is one side of the connection between the box and a worker. Nobody reads it all the time: of those who wait for
// a frame one reads for all, and gives the reading on when it has its own. So an answer reaches a single waiter without
// a change of goroutines.
type link struct {
	conn  conn
	limit int                     // of a payload that is read
	route func(frame) (box, bool) // whom a frame is for; false is a breach of the protocol

	reading chan struct{} // holds one while somebody reads
	in      []byte        // the reader's: bytes read from r to w
	r, w    int

	writing sync.Mutex
	out     []byte

	mu   sync.Mutex
	err  error
	down chan struct{} // closed when err is set
}

// Errors of await.
var (
	errLate   = errors.New("the deadline passed")
	errBreach = errors.New("the worker broke the protocol")
)

func newLink(c conn, limit int, route func(frame) (box, bool)) *link {
	return &link{conn: c, limit: limit, route: route, reading: make(chan struct{}, 1), down: make(chan struct{}), in: make([]byte, 16<<10)}
}

// fail ends the link. The first reason stays.
func (l *link) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		l.conn.Close()
		close(l.down)
	}
	return l.err
}

func (l *link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// send writes one frame, whose payload add appends. It waits until the deadline for the other side to take it; what
// goes out in part ends the link.
func (l *link) send(k kind, id uint64, until time.Time, add func([]byte) []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.out = begin(l.out, k, id)
	if add != nil {
		l.out = add(l.out)
	}
	_ = l.conn.SetWriteDeadline(until) // a conn that has none is closed with its process
	_, err := l.conn.Write(finish(l.out))
	if cap(l.out) > 1<<20 {
		l.out = nil
	}
	if err != nil {
		return l.fail(fmt.Errorf("writing to the other side: %w", err))
	}
	return nil
}

// await returns the next frame for mine. It ends early with errLate, with ctx's error, or with why the link ended.
func (l *link) await(ctx context.Context, mine box, until time.Time) (frame, error) {
	select {
	case l.reading <- struct{}{}: // nobody else reads: no timer is needed
		f, err := l.lead(ctx, mine, until)
		<-l.reading
		return f, err
	default:
	}
	var late <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		late = t.C
	}
	select {
	case f := <-mine:
		return f, nil
	case l.reading <- struct{}{}:
		f, err := l.lead(ctx, mine, until)
		<-l.reading
		return f, err
	case <-late:
		return frame{}, errLate
	case <-ctx.Done():
		return frame{}, ctx.Err()
	case <-l.down:
	}
	select {
	case f := <-mine: // it came before the end
		return f, nil
	default:
		return frame{}, l.failure()
	}
}

// lead reads for all until there is a frame for mine. The caller holds reading.
func (l *link) lead(ctx context.Context, mine box, until time.Time) (frame, error) {
	select {
	case f := <-mine:
		return f, nil
	default:
	}
	_ = l.conn.SetReadDeadline(until)
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { _ = l.conn.SetReadDeadline(time.Unix(1, 0)) })()
	}
	for {
		f, ok, err := l.parse()
		if err != nil {
			return frame{}, l.fail(err)
		}
		if !ok {
			if err := l.fill(ctx, until); err != nil {
				return frame{}, err
			}
			continue
		}
		to, ok := l.route(f)
		switch {
		case !ok:
			return frame{}, l.fail(fmt.Errorf("%w: kind %d for %d", errBreach, f.kind, f.id))
		case to == mine:
			return f, nil
		case to == nil: // nobody waits for it any more
		default:
			select {
			case to <- f:
			default:
				return frame{}, l.fail(fmt.Errorf("%w: two frames at once for %d", errBreach, f.id))
			}
		}
	}
}

// fill reads some bytes. A deadline that was another's is set again.
func (l *link) fill(ctx context.Context, until time.Time) error {
	if l.r == l.w {
		l.r, l.w = 0, 0
	}
	for {
		n, err := l.conn.Read(l.in[l.w:])
		l.w += n
		switch {
		case n > 0:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !until.IsZero() && !time.Now().Before(until) {
				return errLate
			}
			_ = l.conn.SetReadDeadline(until)
		case err != nil:
			return l.fail(fmt.Errorf("reading from the other side: %w", err))
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
		l.room(min(whole, 2*len(have)+(16<<10)))
		return frame{}, false, nil
	}
	f = frame{kind: kind(have[4]), id: binary.LittleEndian.Uint64(have[5:]), payload: append([]byte(nil), have[headerSize:whole]...)}
	l.r += whole
	if l.r == l.w && len(l.in) > 1<<20 {
		l.in, l.r, l.w = make([]byte, 16<<10), 0, 0
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
