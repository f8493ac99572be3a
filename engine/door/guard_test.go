package door_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"onebit/engine/door"
)

func TestGuard(t *testing.T) {
	for _, c := range []struct {
		name         string
		loopback     bool
		method       string
		host, origin string
		want         int
	}{
		{"plain", true, "POST", "127.0.0.1:8000", "", 200},
		{"localhost", true, "POST", "localhost:8000", "", 200},
		{"upper case, final dot", true, "GET", "LocalHost.:8000", "", 200},
		{"below localhost", true, "GET", "box.localhost:8000", "", 200},
		{"127/8", true, "GET", "127.8.9.1", "", 200},
		{"IPv6", true, "GET", "[::1]:8000", "", 200},
		{"IPv6 without port", true, "GET", "[::1]", "", 200},
		{"no host", true, "GET", "", "", 200},
		{"foreign host", true, "GET", "evil.test", "", 403},
		{"foreign host with our port", true, "GET", "evil.test:8000", "", 403},
		{"hidden in the name", true, "GET", "127.0.0.1.evil.test", "", 403},
		{"localhost as a prefix", true, "GET", "localhost.evil.test", "", 403},
		{"a LAN address", true, "GET", "192.168.1.5:8000", "", 403},
		{"short form of an address", true, "GET", "127.1:8000", "", 403},
		{"foreign host on a LAN address", false, "GET", "box.lan:8000", "", 200},
		{"foreign origin", true, "POST", "127.0.0.1:8000", "https://evil.test", 403},
		{"foreign origin, reading", true, "GET", "127.0.0.1:8000", "https://evil.test", 200},
		{"foreign origin, deleting", false, "DELETE", "box.lan:8000", "https://evil.test", 403},
		{"page of this machine", true, "POST", "127.0.0.1:8000", "http://localhost:3000", 200},
		{"page of this machine to the LAN address", false, "POST", "box.lan:8000", "http://127.0.0.1:3000", 200},
		{"same host", false, "POST", "box.lan:8000", "http://box.lan:8000", 200},
		{"same host, other case", false, "POST", "Box.lan:8000", "http://box.LAN:8000", 200},
		{"same host, default port", false, "POST", "box.lan", "http://box.lan", 200},
		{"same host, default port written", false, "POST", "box.lan:443", "https://box.lan", 200},
		{"same host, other port", false, "POST", "box.lan:8000", "http://box.lan:9000", 403},
		{"null", true, "POST", "127.0.0.1:8000", "null", 403},
		{"not a URL", true, "POST", "127.0.0.1:8000", "http://[::1", 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := door.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), c.loopback)
			r := httptest.NewRequest(c.method, "/v1/models", nil)
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("got %d, want %d", w.Code, c.want)
			}
			if c.want == 403 && !strings.HasPrefix(w.Body.String(), `{"error":{"message":`) {
				t.Errorf("body %s is no error object", w.Body)
			}
		})
	}
}
