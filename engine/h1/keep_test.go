package h1_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"onebit/engine/h1"
)

// server answers on loopback by hand.
type server struct {
	t     *testing.T
	l     net.Listener
	dials int
}

func listen(t *testing.T) (*server, *h1.Client) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &server{t: t, l: l}
	c := h1.New(h1.Config{Addr: l.Addr().String(), Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		s.dials++
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}})
	t.Cleanup(c.CloseIdle)
	return s, c
}

// accept returns the next connection.
func (s *server) accept() net.Conn {
	s.t.Helper()
	conn, err := s.l.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// hear reads one request.
func hear(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	req, err := http.ReadRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(req.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

const (
	head  = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	event = "4\r\ndone\r\n"
	end   = "0\r\n\r\n"
)

// TestKeptConnections looks at which connections serve again. Each case is one answer, what comes after it, and whether
// a second request goes over the same connection.
func TestKeptConnections(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer string
		finish bool   // the content has ended and the body perhaps not
		later  string // comes after the answer was closed
		hangUp bool
		again  bool
	}{
		{"read to the end", head + event + end, false, "", false, true},
		{"the end came with the content", head + event + end, true, "", false, true},
		{"the end comes later", head + event, true, end, false, true},
		{"half of the end comes later", head + event + "0\r", true, "\n\r\n", false, true},
		{"the end has not come", head + event, true, "", false, false},
		{"content comes instead of the end", head + event, true, event + end, false, false},
		{"something comes behind the end", head + event, true, end + "HTTP/1.1 200 OK\r\n", false, false},
		{"something comes unasked", head + event + end, false, "HTTP/1.1 200 OK\r\n", false, false},
		{"the server closes", head + event + end, false, "", true, false},
		{"the server closes instead of an end", head + event, true, "", true, false},
		{"not read to the end", head + event, false, end, false, false},
		{"the server wants to close", strings.Replace(head, "\r\n\r\n", "\r\nConnection: Close\r\n\r\n", 1) + event + end, false, "", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, client := listen(t)
			first := make(chan *h1.Answer)
			post := func() {
				a, err := client.Post(t.Context(), h1.Request{Path: "/"})
				if err != nil {
					t.Error(err)
				}
				first <- a
			}
			go post()
			conn := s.accept()
			r := bufio.NewReader(conn)
			hear(t, r)
			say(t, conn, c.answer)
			a := <-first
			if a == nil {
				return
			}
			if _, err := io.ReadFull(a, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			if c.finish {
				a.Finish()
			} else if c.later != end {
				if n, err := a.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
					t.Fatalf("%d, %v behind the content", n, err)
				}
			}
			a.Close()
			if c.later != "" && (c.again || c.finish) {
				say(t, conn, c.later)
			} else if c.later != "" {
				_, _ = io.WriteString(conn, c.later) // the connection may be closed already
			}
			if c.hangUp {
				conn.Close()
			}
			arrived(t, c.later != "" || c.hangUp)
			go post()
			if !c.again {
				conn = s.accept()
				r = bufio.NewReader(conn)
			}
			hear(t, r)
			say(t, conn, head+end)
			if a := <-first; a != nil {
				a.Close()
			}
			if want := map[bool]int{true: 1, false: 2}[c.again]; s.dials != want {
				t.Errorf("%d connections, want %d", s.dials, want)
			}
		})
	}
}

// arrived waits until what was sent is there, on loopback: a byte on another connection comes after it.
func arrived(t *testing.T, sent bool) {
	t.Helper()
	if !sent {
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	say(t, a, "x")
	if _, err := b.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestCancel(t *testing.T) {
	for _, c := range []struct{ name, answer string }{
		{"before the head", ""},
		{"in the head", "HTTP/1.1 200"},
		{"before the body", head},
		{"in the body", head + event},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, client := listen(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() {
				a, err := client.Post(ctx, h1.Request{Path: "/"})
				if err == nil {
					_, err = io.ReadAll(a)
					a.Close()
				}
				ended <- err
			}()
			conn := s.accept()
			r := bufio.NewReader(conn)
			hear(t, r)
			say(t, conn, c.answer)
			cancel()
			if err := <-ended; err == nil {
				t.Error("the request went on")
			}
			if _, err := r.ReadByte(); err == nil {
				t.Error("the server was told nothing")
			}
		})
	}
}

func TestEndedContextConnectsNowhere(t *testing.T) {
	s, client := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Post(ctx, h1.Request{Path: "/"}); !errors.Is(err, context.Canceled) || s.dials != 0 {
		t.Errorf("%v after %d connections", err, s.dials)
	}
}

// TestRefusedBody holds that a server's word about a body that it does not want to read arrives.
func TestRefusedBody(t *testing.T) {
	s, client := listen(t)
	ended := make(chan *h1.Answer)
	go func() {
		a, err := client.Post(t.Context(), h1.Request{Path: "/", Body: make([]byte, 64<<20)})
		if err != nil {
			t.Error(err)
		}
		ended <- a
	}()
	conn := s.accept()
	if _, err := io.ReadFull(conn, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	say(t, conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
	if err := conn.(*net.TCPConn).CloseRead(); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	a := <-ended
	if a == nil {
		return
	}
	defer a.Close()
	if b, err := io.ReadAll(a); a.Status != 413 || err != nil || string(b) != "no" {
		t.Errorf("%d %q %v", a.Status, b, err)
	}
}

// TestPipe holds that a connection which is not the system's is kept too, when its end comes soon.
func TestPipe(t *testing.T) {
	dials := 0
	requests := make(chan string)
	client := h1.New(h1.Config{Addr: "memory", Dial: func(context.Context, string, string) (net.Conn, error) {
		dials++
		here, there := net.Pipe()
		go func() {
			for r := bufio.NewReader(there); ; {
				if _, err := http.ReadRequest(r); err != nil {
					close(requests)
					return
				}
				requests <- "one"
				for _, part := range []string{head, event, end} {
					if _, err := io.WriteString(there, part); err != nil {
						return
					}
				}
			}
		}()
		return here, nil
	}})
	for range 2 {
		asked := make(chan error)
		go func() {
			a, err := client.Post(t.Context(), h1.Request{Path: "/"})
			if err == nil {
				_, err = io.ReadFull(a, make([]byte, 4))
				a.Finish()
			}
			asked <- err
		}()
		<-requests
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
	}
	if dials != 1 {
		t.Errorf("%d connections", dials)
	}
	client.CloseIdle()
	<-requests
}
