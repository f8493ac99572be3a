package edge

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// errStalled is why the context of a request ends whose client took nothing for too long.
var errStalled = errors.New("the client did not read its answer")

// Pace bounds each single wait for the client: read for a piece of the request's body, write for taking a piece of the
// answer. An answer may take as long as it likes as long as the client keeps reading. When a write takes too long, it
// fails and the request's context ends. It behaves the same over HTTP/1.1, HTTP/2 and HTTP/3.
func Pace(next http.Handler, read, write time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		p := &paced{ResponseWriter: w, control: http.NewResponseController(w), limit: write}
		p.watch.limit = write
		p.watch.expired = func() {
			p.stalled = true
			_ = p.control.SetWriteDeadline(past()) // a connection without deadlines is not one of ours
			cancel(errStalled)
		}
		if r.ProtoMajor == 1 {
			_ = p.control.SetWriteDeadline(time.Time{}) // the last request on this connection left its own
		}
		r = r.WithContext(ctx)
		if r.Body != nil && r.Body != http.NoBody {
			b := &pacedBody{ReadCloser: r.Body}
			b.watch.limit = read
			b.watch.expired = func() { _ = p.control.SetReadDeadline(past()) }
			defer b.watch.stop()
			r.Body = b
		}
		defer p.finish()
		next.ServeHTTP(p, r)
	})
}

// past is a deadline that is over.
func past() time.Time { return time.Unix(1, 0) }

// watch calls expired when one wait takes longer than limit. One wait runs at a time.
type watch struct {
	limit   time.Duration
	expired func()

	mu    sync.Mutex
	timer *time.Timer
	until time.Time // zero while nothing waits
	done  bool
}

func (w *watch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = time.Now().Add(w.limit)
	switch {
	case w.done:
	case w.timer == nil:
		w.timer = time.AfterFunc(w.limit, w.look)
	default:
		w.timer.Reset(w.limit)
	}
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
}

// stop ends the watch for good: expired is not called after it returns.
func (w *watch) stop() {
	w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
}

// look runs when the timer fires. A wait that has ended meanwhile, or a later one, is not cut.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done && !w.until.IsZero() && !time.Now().Before(w.until) {
		w.expired()
	}
}

// paced is a ResponseWriter whose waits are watched.
type paced struct {
	http.ResponseWriter
	control  *http.ResponseController
	watch    watch
	limit    time.Duration
	hijacked bool
	stalled  bool // under the watch's lock
}

// Unwrap lets http.ResponseController reach the connection.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *paced) Write(b []byte) (int, error) {
	p.watch.begin()
	defer p.watch.end()
	return p.ResponseWriter.Write(b)
}

// FlushError sends what is buffered.
func (p *paced) FlushError() error {
	p.watch.begin()
	defer p.watch.end()
	return p.control.Flush()
}

// Flush sends what is buffered.
func (p *paced) Flush() { _ = p.FlushError() } // http.Flusher has no error

// Hijack hands the connection over; nothing is watched from then on.
func (p *paced) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := p.control.Hijack()
	p.hijacked = err == nil
	return c, rw, err
}

// finish bounds what the server itself still sends after the handler.
func (p *paced) finish() {
	p.watch.stop() // what it calls has ended with it
	if !p.hijacked && !p.stalled {
		_ = p.control.SetWriteDeadline(time.Now().Add(p.limit))
	}
}

// pacedBody is a request's body whose waits are watched.
type pacedBody struct {
	io.ReadCloser
	watch watch
}

func (b *pacedBody) Read(p []byte) (int, error) {
	b.watch.begin()
	defer b.watch.end()
	return b.ReadCloser.Read(p)
}
