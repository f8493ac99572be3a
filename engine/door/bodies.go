package door

import (
	"io"
	"net/http"
	"time"
)

// Bodies bounds the time that a request's body takes: arrive to its end (0 is no bound), and rest for what the handler
// has left unread, as handlers do that refuse a request. A server by itself reads what is left before it answers or
// takes the next request, for as long as the client cares to send. Here the answer goes out at once, what comes within
// rest is read, and then the connection is closed. The connection of a request whose body was read to its end serves on.
func Bodies(next http.Handler, arrive, rest time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 || r.ProtoMajor != 1 || r.Body == nil {
			next.ServeHTTP(w, r)
			return
		}
		control := http.NewResponseController(w) // a writer that knows no deadlines is a test's
		if arrive > 0 {
			_ = control.SetReadDeadline(time.Now().Add(arrive))
		}
		w.Header().Set("Connection", "close") // with it the server does not wait for the body before it answers
		b := &body{ReadCloser: r.Body}
		b.ended = func() {
			w.Header().Del("Connection")
			if arrive > 0 {
				_ = control.SetReadDeadline(time.Time{})
			}
		}
		r.Body = b
		defer func() {
			if !b.end {
				_ = control.SetReadDeadline(time.Now().Add(rest))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// body is a request's body that tells when all of it was read.
type body struct {
	io.ReadCloser
	ended func()
	end   bool
}

// Read reads on.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && !b.end {
		b.end = true
		b.ended()
	}
	return n, err
}
