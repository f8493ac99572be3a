package egress_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"onebit/appliance/egress"
	"onebit/engine"
)

// slow returns a client whose server sends the head of an answer of 100 bytes and then one byte each so often.
func slow(t *testing.T, head, every time.Duration) *egress.Client {
	t.Helper()
	c, err := egress.New(egress.Config{
		Allow: []string{"10.0.0.1"},
		Dial: func(context.Context, netip.AddrPort) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				if _, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil {
					return
				}
				time.Sleep(head)
				fmt.Fprint(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\n")
				for range 100 {
					time.Sleep(every)
					if _, err := theirs.Write([]byte{'x'}); err != nil {
						return
					}
				}
			}()
			return ours, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTimes(t *testing.T) {
	for _, c := range []struct {
		name        string
		head, every time.Duration
		limits      egress.Limits
		timer       string // "" when it succeeds
	}{
		{"in time", time.Second, time.Second, egress.Limits{}, ""},
		{"a byte in each window", 0, 50 * time.Second, egress.Limits{}, ""},
		{"stalls", 0, 61 * time.Second, egress.Limits{}, "1 bytes of a download to come"},
		{"drips", 0, time.Second, egress.Limits{Least: 70}, "70 bytes of a download to come"},
		{"takes too long in all", 0, time.Second, egress.Limits{Total: 30 * time.Second}, "a download"},
		{"no head within the total", 15 * time.Second, 0, egress.Limits{Total: 10 * time.Second}, "a download"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := slow(t, c.head, c.every)
				defer time.Sleep(time.Hour) // until the server has seen that nobody listens
				defer client.Close()
				res, err := client.Get(t.Context(), "http://10.0.0.1/", c.limits)
				if err == nil {
					_, err = io.ReadAll(res.Body)
					res.Body.Close()
				}
				late, ok := errors.AsType[*engine.TimeoutError](err)
				if ok != (c.timer != "") || (ok && late.Timer != c.timer) || (!ok && err != nil) {
					t.Errorf("error %v, want the timer %q", err, c.timer)
				}
			})
		})
	}
	t.Run("no head", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client := slow(t, 30*time.Second, 0)
			defer time.Sleep(time.Hour)
			defer client.Close()
			if _, err := client.Get(t.Context(), "http://10.0.0.1/", egress.Limits{}); err == nil {
				t.Error("the head came after 30 s and was waited for")
			}
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client := slow(t, 0, time.Second)
			defer time.Sleep(time.Hour)
			defer client.Close()
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("enough"))
			defer cancel()
			res, err := client.Get(ctx, "http://10.0.0.1/", egress.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if _, err := io.ReadAll(res.Body); err == nil || err.Error() != "enough" {
				t.Errorf("error %v", err)
			}
		})
	})
}
