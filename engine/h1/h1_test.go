package h1_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"onebit/engine/h1"
)

// script is a connection on which a server says the same whatever it is asked, in pieces of a few bytes.
type script struct {
	net.Conn
	says  string
	piece int
	asked strings.Builder
}

func (s *script) Write(p []byte) (int, error) { return s.asked.Write(p) }
func (s *script) Close() error                { return nil }

func (s *script) SetReadDeadline(time.Time) error { return nil }

func (s *script) Read(p []byte) (int, error) {
	if s.says == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.piece)], s.says)
	s.says = s.says[n:]
	return n, nil
}

// ask sends a request to a script and reads all of the answer.
func ask(s *script) (a *h1.Answer, body string, err error) {
	c := h1.New(h1.Config{Addr: "box:1", Dial: func(context.Context, string, string) (net.Conn, error) { return s, nil }})
	a, err = c.Post(context.Background(), h1.Request{Path: "/v1/x", ID: "7", Body: []byte("{}")})
	if err != nil {
		return nil, "", err
	}
	defer a.Close()
	b, err := io.ReadAll(a)
	return a, string(b), err
}

func TestAnswers(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	const chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
	malformed, cut := h1.ErrMalformed, io.ErrUnexpectedEOF
	for _, c := range []struct {
		name, says string
		status     int
		body       string
		err        error
	}{
		{"sized", ok + "Content-Length: 5\r\n\r\nhello", 200, "hello", nil},
		{"sized and empty", ok + "Content-Length: 0\r\n\r\n", 200, "", nil},
		{"until the end", ok + "\r\nhello", 200, "hello", nil},
		{"version 1.0", "HTTP/1.0 503 Busy\r\nRetry-After: 3\r\n\r\nwait", 503, "wait", nil},
		{"without a reason", "HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", 404, "", nil},
		{"announced", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: a\r\n\r\n" + ok + "Content-Length: 1\r\n\r\nx", 200, "x", nil},
		{"chunks", chunked + "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", 200, "abc0123456789", nil},
		{"chunks with trailers", chunked + "1\r\na\r\n000\r\nA: b\r\nC: d\r\n\r\n", 200, "a", nil},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", nil},

		{"nothing", "", 0, "", cut},
		{"half a head", ok + "Content-Le", 0, "", cut},
		{"half a body", ok + "Content-Length: 5\r\n\r\nhel", 200, "hel", cut},
		{"half a chunk", chunked + "5\r\nhel", 200, "hel", cut},
		{"no last chunk", chunked + "1\r\na\r\n", 200, "a", cut},
		{"no end of the trailers", chunked + "1\r\na\r\n0\r\n", 200, "a", cut},

		{"another protocol", "HTTP/2.0 200 OK\r\n\r\n", 0, "", malformed},
		{"no protocol", "hello world, how are you\r\n\r\n", 0, "", malformed},
		{"bare line feeds", "HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n", 0, "", malformed},
		{"a switch of protocols", "HTTP/1.1 101 Switching\r\n\r\n", 0, "", malformed},
		{"announced without end", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9), 0, "", malformed},
		{"a status of four digits", "HTTP/1.1 2000 OK\r\n\r\n", 0, "", malformed},
		{"a length said twice", ok + "Content-Length: 2\r\ncontent-length: 2\r\n\r\nhi", 0, "", malformed},
		{"two lengths", ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhey", 0, "", malformed},
		{"a list of lengths", ok + "Content-Length: 2, 2\r\n\r\nhi", 0, "", malformed},
		{"a length with a sign", ok + "Content-Length: +2\r\n\r\nhi", 0, "", malformed},
		{"length and chunks", ok + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, "", malformed},
		{"another coding", ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", 0, "", malformed},
		{"two codings", ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 0, "", malformed},
		{"chunks in version 1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, "", malformed},
		{"a folded field", ok + "A: b\r\n c\r\n\r\n", 0, "", malformed},
		{"a space before the colon", ok + "Content-Length : 2\r\n\r\nhi", 0, "", malformed},
		{"a field without a colon", ok + "hello\r\n\r\n", 0, "", malformed},
		{"a control character", ok + "A: b\x00c\r\n\r\n", 0, "", malformed},
		{"too many fields", ok + strings.Repeat("A: b\r\n", 129) + "\r\n", 0, "", malformed},
		{"a head without end", ok + strings.Repeat("A: "+strings.Repeat("b", 500)+"\r\n", 100), 0, "", malformed},
		{"a chunk without a length", chunked + "\r\nabc\r\n", 200, "", malformed},
		{"a chunk with a sign", chunked + "-1\r\n", 200, "", malformed},
		{"a chunk beyond numbers", chunked + "1000000000000000\r\n", 200, "", malformed},
		{"a chunk longer than said", chunked + "1\r\nabc\r\n", 200, "a", malformed},
		{"a chunk's length with a bare line feed", chunked + "1\na\r\n", 200, "", malformed},
		{"a chunk's length without end", chunked + "1;" + strings.Repeat("x", 5000), 200, "", malformed},
		{"trailers without end", chunked + "0\r\n" + strings.Repeat("A: b\r\n", 5000), 200, "", malformed},
	} {
		for _, piece := range []int{1, 2, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", c.name, piece), func(t *testing.T) {
				a, body, err := ask(&script{says: c.says, piece: piece})
				status := 0
				if a != nil {
					status = a.Status
				}
				if status != c.status || body != c.body || !errors.Is(err, c.err) {
					t.Errorf("%d %q %v, want %d %q %v", status, body, err, c.status, c.body, c.err)
				}
			})
		}
	}
}

func TestFields(t *testing.T) {
	a, _, err := ask(&script{says: "HTTP/1.1 429 Slow\r\ncontent-TYPE:\t application/json \r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n", piece: 9})
	if err != nil || a.Type != "application/json" || a.RetryAfter != "9" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestRequest(t *testing.T) {
	s := &script{says: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", piece: 99}
	if _, _, err := ask(s); err != nil {
		t.Fatal(err)
	}
	want := "POST /v1/x HTTP/1.1\r\nHost: box:1\r\nX-Request-Id: 7\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	if got := s.asked.String(); got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
	c := h1.New(h1.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialled for a request that cannot be")
		return nil, io.EOF
	}})
	for _, r := range []h1.Request{{Path: "/a b"}, {Path: "a"}, {}, {Path: "/a", ID: "x\r\nY: z"}} {
		if _, err := c.Post(t.Context(), r); err == nil {
			t.Errorf("sent %+v", r)
		}
	}
}
