//go:build unix

package e2e_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// endless is a body without an end. It counts what was taken of it.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.n += int64(len(p))
	return len(p), nil
}

// TestBoxAttacked does to a box what was done to others.
func TestBoxAttacked(t *testing.T) {
	b := startBox(t, boxState(t, fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048}]\n", smollm2(t))))
	b.claim()
	key, _ := b.key("")
	ask := func(change func(*http.Request), method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(method, "https://127.0.0.1:"+b.port+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+key)
		change(r)
		res, err := b.client.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	chat := "{" + parisQuestion + "}"
	for _, c := range []struct {
		name         string
		change       func(*http.Request)
		method, path string
		body         string
		status       int
		want         string
	}{
		{"a page whose name was made to point here", func(r *http.Request) { r.Host = "evil.test" }, "POST", "/v1/chat/completions", chat, 421, "misdirected"},
		{"a page of another site", header("Origin", "https://evil.test"), "POST", "/v1/chat/completions", chat, 403, "evil.test"},
		{"a page without an origin", header("Origin", "null"), "POST", "/v1/chat/completions", chat, 403, ""},
		{"a key in the address", func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "api_key=" + key }, "GET", "/v1/models", "", 401, "address"},
		{"a local file as an image", header("X", ""), "POST", "/v1/chat/completions",
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]}`, 400, ""},
		{"an address inside as an image", header("X", ""), "POST", "/v1/chat/completions",
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}]}]}`, 400, ""},
		{"another upstream", header("X", ""), "POST", "/v1/chat/completions", `{"api_base":"http://169.254.169.254/","base_url":"http://169.254.169.254/",` + parisQuestion + "}", 200, "Paris"},
		{"a negative discard", header("X", ""), "POST", "/v1/chat/completions", `{"n_discard":-1,"id_slot":-7,` + parisQuestion + "}", 200, "Paris"},
		{"a number without an end", header("X", ""), "POST", "/v1/chat/completions", `{"n_predict":1e308,` + parisQuestion + "}", 400, "n_predict"},
		{"a model that is a path", header("X", ""), "POST", "/v1/chat/completions", `{"model":"../../etc/passwd",` + parisQuestion + "}", 404, "model_not_found"},
		{"a model with a zero byte", header("X", ""), "POST", "/v1/chat/completions", `{"model":"small\u0000x",` + parisQuestion + "}", 404, "model_not_found"},
		{"a path out of the API", header("X", ""), "GET", "/v1/models/..%2f..%2fadmin%2fv1%2fstatus", "", 404, ""},
		{"the slots of others", header("X", ""), "GET", "/slots", "", 404, ""},
		{"somebody's slot file", header("X", ""), "POST", "/slots/0?action=save", `{"filename":"/tmp/x"}`, 404, ""},
		{"an injected key", header("Authorization", "Bearer 1b_' OR '1'='1"), "GET", "/v1/models", "", 401, ""},
		{"two keys", func(r *http.Request) { r.Header.Set("x-api-key", "1b_other") }, "GET", "/v1/models", "", 0, ""},
	} {
		status, text := ask(c.change, c.method, c.path, c.body)
		if c.status != 0 && (status != c.status || !strings.Contains(text, c.want)) {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
		if c.status == 0 && status == 200 {
			t.Errorf("%s: the second key was passed over: %s", c.name, text)
		}
		if strings.Contains(text, "root:") {
			t.Errorf("%s: a file of the machine is shown: %s", c.name, text)
		}
	}
	t.Run("a body without an end and without a key", func(t *testing.T) {
		before := footprint(t, b.cmd.Process.Pid)[1]
		body := &endless{}
		r, err := http.NewRequest("POST", "https://127.0.0.1:"+b.port+"/v1/chat/completions", io.LimitReader(body, 1<<30))
		if err != nil {
			t.Fatal(err)
		}
		res, err := b.client.Do(r)
		if err != nil {
			t.Skipf("the box closed the connection at once: %v", err)
		}
		defer res.Body.Close()
		if res.StatusCode != 401 {
			t.Errorf("status %d", res.StatusCode)
		}
		if after := footprint(t, b.cmd.Process.Pid)[1]; after > before+64<<10 || body.n > 256<<20 {
			t.Errorf("memory went from %d to %d KiB, %d bytes were taken", before, after, body.n)
		}
	})
	t.Run("a body that does not come", func(t *testing.T) {
		conn, err := tls.Dial("tcp", "127.0.0.1:"+b.port, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
		conn.SetDeadline(time.Now().Add(60 * time.Second))
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 4") {
			t.Errorf("the connection stays open: %v %.100s", err, answer)
		}
	})
	t.Run("a header that never ends", func(t *testing.T) {
		conn, err := tls.Dial("tcp", "127.0.0.1:"+b.port, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			return // an error answer is an end too
		} else if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
			t.Error("the box waits for the rest of a header for ever")
		}
	})
}
