package gateway_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/engine"
	"onebit/engine/backend"
)

// chunked frames a piece of a body.
func chunked(b []byte) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(b), b) }

// sender answers each request on a connection with n events, each written by itself after the client has taken the one
// before it, without allocating.
func sender(t *testing.T, event []byte, n *int, taken <-chan bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	head := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	framed, end := chunked(event), append(chunked([]byte("data: [DONE]\n\n")), "0\r\n\r\n"...)
	answer := func(conn net.Conn) {
		defer conn.Close()
		for r := bufio.NewReader(conn); ; {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if req.Method == http.MethodGet {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				continue
			}
			_, _ = conn.Write(head)
			for range *n {
				_, _ = conn.Write(framed) // the client misses what fails
				<-taken
			}
			_, _ = conn.Write(end)
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn)
		}
	}()
	return "http://" + l.Addr().String()
}

// TestStreamsDoNotAllocate holds that an event costs no allocation on its whole way, from the backend's socket to the
// client's. The exception is not ours: net/http writes the length of a chunk of more than 255 bytes with one of 8 bytes.
func TestStreamsDoNotAllocate(t *testing.T) {
	for _, c := range []struct {
		name string
		fill int // bytes of text in an event
		most float64
	}{{"short events", 10, 0}, {"long events", 300, 1}} {
		t.Run(c.name, func(t *testing.T) {
			event := []byte(`data: {"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("a", c.fill) + `"},"finish_reason":null}],"model":"child"}` + "\n\n")
			n, taken := 0, make(chan bool)
			remote, err := backend.NewRemote(backend.RemoteConfig{Name: "cpu", URL: sender(t, event, &n, taken), Slots: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(remote.Close)
			g, err := gateway.New(gateway.Config{
				Model:  gateway.Model{Name: "served", Device: engine.CPU, Backend: remote},
				Limits: config.Defaults(), Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: g}
			go func() { _ = server.Serve(l) }() // it ends by Close
			t.Cleanup(func() { server.Close() })
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			request := []byte("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " + strconv.Itoa(len(body("", true))) + "\r\n\r\n" + body("", true))
			r := bufio.NewReader(conn)
			allocations := func(events int) float64 {
				n = events
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if _, err := conn.Write(request); err != nil {
					t.Fatal(err)
				}
				for got := 0; ; {
					line, err := r.ReadSlice('\n')
					if err != nil {
						t.Fatal(err)
					}
					if bytes.HasPrefix(line, []byte("data: {")) {
						got++
						taken <- true
					}
					if string(line) == "0\r\n" {
						if got != events {
							t.Fatalf("%d events of %d came", got, events)
						}
						_, err := r.Discard(2)
						runtime.ReadMemStats(&after)
						if err != nil {
							t.Fatal(err)
						}
						return float64(after.Mallocs - before.Mallocs)
					}
				}
			}
			allocations(50)
			few, many := allocations(100), allocations(3100)
			// the clock, the collector and the race detector add a few of their own
			if extra := many - few - (c.most+raced)*3000; extra > 300 {
				t.Errorf("100 events take %v allocations and 3100 take %v", few, many)
			}
		})
	}
}
