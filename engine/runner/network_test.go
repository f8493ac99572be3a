package runner_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"onebit/engine/runner"
)

// line is a listener on loopback for connections that a test makes.
type line struct {
	*quietListener
	conns chan net.Conn
}

func (l *line) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// TestStrangers has clients that no program is meant to be, on connections of their own.
func TestStrangers(t *testing.T) {
	const upload, idle = 5 * time.Minute, 10 * time.Minute
	for _, c := range []struct {
		name, request string
		status        int           // 0 is no answer
		after, ends   time.Duration // when the answer comes and the connection ends
	}{
		{"a body that does not come", "POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", 400, upload, upload + 5*time.Second},
		{"a body that nobody wants", "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", 404, 0, 5 * time.Second},
		{"a body to a question", "GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", 200, 0, 5 * time.Second},
		{"more than is taken", "POST /completion HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n", 413, 0, 0},
		{"silence", "", 0, 0, 30 * time.Second},
		{"silence after an answer", "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, 0, idle},
		{"a name that was made to point here", "GET /slots HTTP/1.1\r\nHost: evil.test\r\n\r\n", 403, 0, idle},
		{"a page of another site", "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://evil.test\r\nContent-Length: 0\r\n\r\n", 403, 0, idle},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &line{newQuietListener(), make(chan net.Conn, 1)}
				r, err := runner.New(runner.Config{Model: "fake.gguf", Listener: l, Load: loader(fakeParts(&fakeEngine{}, 1, 64))})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- r.Run(ctx) }()
				synctest.Wait()

				client, served := net.Pipe()
				l.conns <- served
				go client.Write([]byte(c.request)) // what nobody reads stays unsent
				begin, in := time.Now(), bufio.NewReader(client)
				if c.status != 0 {
					res, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(res.Body)
					if err != nil || res.StatusCode != c.status {
						t.Errorf("%v, status %d: %s", err, res.StatusCode, body)
					}
					if took := time.Since(begin); took != c.after {
						t.Errorf("the answer came after %v, not %v", took, c.after)
					}
				}
				if _, err := in.ReadByte(); err != io.EOF {
					t.Errorf("the connection gave %v, not its end", err)
				}
				if took := time.Since(begin).Round(time.Second); took != c.ends {
					t.Errorf("the connection ended after %v, not %v", took, c.ends)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
