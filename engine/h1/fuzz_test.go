package h1_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzAnswer holds that whatever is taken for an answer is the same answer to the standard library's reader, and that
// it does not matter in which pieces it comes.
func FuzzAnswer(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n10\r\ndata: {\"a\":1}\n\n\r\n0\r\n\r\n")
	f.Add("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}")
	f.Add("HTTP/1.0 200 OK\r\n\r\nall of it")
	f.Fuzz(func(t *testing.T, says string) {
		a, body, err := ask(&script{says: says, piece: 1 << 20})
		b, again, err2 := ask(&script{says: says, piece: 3})
		if (err == nil) != (err2 == nil) || body != again || (a == nil) != (b == nil) {
			t.Fatalf("%q, %v in one piece, %q, %v in many", body, err, again, err2)
		}
		if err != nil {
			return
		}
		r := bufio.NewReader(strings.NewReader(says))
		for {
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("taken for an answer, but %v", err)
			}
			defer res.Body.Close()
			if res.StatusCode < 200 {
				continue
			}
			want, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != a.Status || string(want) != body {
				t.Fatalf("%d %q, but the standard library reads %d %q %v", a.Status, body, res.StatusCode, want, err)
			}
			return
		}
	})
}
