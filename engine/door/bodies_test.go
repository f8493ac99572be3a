package door_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"onebit/engine/door"
)

// line is a listener with one connection.
type line struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *line) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *line) Close() error {
	close(l.closed)
	return nil
}

func (l *line) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestBodies has clients that announce a body and send some of it, or all.
func TestBodies(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "refused", http.StatusNotFound) }
	long := func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1<<20)) }
	read := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		request string
		status  int
		open    bool          // the connection serves on
		after   time.Duration // the answer comes; 0 is at once
	}{
		{"a body that does not come", refuse, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{", 404, false, 0},
		{"before a long answer", long, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{", 200, false, 0},
		{"in chunks", refuse, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 404, false, 0},
		{"larger than anybody reads", refuse, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n{", 404, false, 0},
		{"announced, not sent", refuse, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n", 404, false, 0},
		{"wanted, and does not come", read, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{", 200, false, time.Minute},
		{"unread, but there", refuse, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", 404, false, 0},
		{"read to its end", read, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", 200, true, 0},
		{"chunks read to their end", read, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 200, true, 0},
		{"no body", refuse, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 404, true, 0},
		{"nothing said of a body", refuse, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 404, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, served := net.Pipe()
				l := &line{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
				l.conns <- served
				server := &http.Server{Handler: door.Bodies(c.handler, time.Minute, 5*time.Second)}
				go server.Serve(l)
				defer server.Close()
				go client.Write([]byte(c.request)) // what nobody reads stays unsent
				begin := time.Now()
				in := bufio.NewReader(client)
				res, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadAll(res.Body); err != nil {
					t.Errorf("the answer is not whole: %v", err)
				}
				if res.StatusCode != c.status || res.Close == c.open {
					t.Errorf("status %d, closes %v", res.StatusCode, res.Close)
				}
				if took := time.Since(begin); took != c.after { // in the test's own time
					t.Errorf("the answer came after %v, not %v", took, c.after)
				}
				if c.open {
					client.Close()
					return
				}
				if _, err := in.ReadByte(); err != io.EOF {
					t.Errorf("the connection gave %v, not its end", err)
				}
				if took := time.Since(begin); took > c.after+6*time.Second {
					t.Errorf("the connection ended after %v", took)
				}
			})
		})
	}
}
