package egress_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"onebit/appliance/egress"
)

const public = "93.184.216.34"

// world is a network of names, behind all of whose public addresses is one server.
type world struct {
	mu     sync.Mutex
	names  map[string][]string
	asked  []string // names that were resolved
	dialed []string
	server *httptest.Server
	cfg    egress.Config
}

// newWorld starts the server, which answers on every public address with a certificate for *.example.com.
func newWorld(t *testing.T, h http.HandlerFunc) *world {
	t.Helper()
	w := &world{names: map[string][]string{"example.com": {public}}}
	w.server = httptest.NewTLSServer(h)
	t.Cleanup(w.server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(w.server.Certificate())
	w.cfg = egress.Config{Roots: roots, Resolve: w.resolve, Dial: w.dial}
	return w
}

func (w *world) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, host)
	var out []netip.Addr
	for _, a := range w.names[host] {
		out = append(out, netip.MustParseAddr(a))
	}
	if out == nil {
		return nil, errors.New("no such host")
	}
	return out, nil
}

func (w *world) dial(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, a.String())
	w.mu.Unlock()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", w.server.Listener.Addr().String())
}

func (w *world) client(t *testing.T) *egress.Client {
	t.Helper()
	c, err := egress.New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// get asks and reads all.
func get(t *testing.T, c *egress.Client, url string, l egress.Limits) (*http.Response, string, error) {
	t.Helper()
	res, err := c.Get(t.Context(), url, l)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res, string(b), err
}

// refused are addresses that must not be reached, spelled in every way that has worked somewhere.
var refused = []string{
	"https://127.0.0.1/", "https://127.1/", "https://127.0.0.1:8443/", "https://2130706433/", "https://0x7f000001/",
	"https://0x7f.0.0.1/", "https://0177.0.0.1/", "https://127.0.0.01/", "https://127.0.0.1./", "https://0/",
	"https://0.0.0.0/", "https://0.1.2.3/", "https://10.0.0.1/", "https://172.16.0.1/", "https://172.31.255.255/",
	"https://192.168.1.1/", "https://169.254.169.254/latest/meta-data/", "https://100.64.0.1/", "https://100.127.255.254/",
	"https://192.0.0.1/", "https://192.0.2.1/", "https://198.18.0.1/", "https://198.51.100.1/", "https://203.0.113.9/",
	"https://224.0.0.1/", "https://240.0.0.1/", "https://255.255.255.255/",
	"https://[::]/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:a9fe:a9fe]/", "https://[::127.0.0.1]/",
	"https://[fe80::1]/", "https://[fe80::1%25eth0]/", "https://[fc00::1]/", "https://[fd12:3456::1]/", "https://[ff02::1]/",
	"https://[64:ff9b::127.0.0.1]/", "https://[64:ff9b::169.254.169.254]/", "https://[64:ff9b:1::1]/", "https://[2001::1]/", "https://[2001:db8::1]/",
	"https://[2002:7f00:1::]/", "https://[fec0::1]/",
	"https://attic.local/", "https://ATTIC.LOCAL./", "https://localhost/", "https://private.example.com/", "https://mixed.example.com/", "https://mapped.example.com/",
	"https://carrier.example.com/", "https://metadata.example.com/", "https://nat64.example.com/",
	"http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "javascript:alert(1)", "//",
	"https://user:pass@example.com/", "https://example.com:22/", "https://example.com:25/", "https://example.com:0/",
	"https://①②⑦.⓪.⓪.①/", "https://exa mple.com/", "https://example.com%2f@127.0.0.1/", "https://127.0.0.1#@example.com/",
	"https://127.0.0.1\\@example.com/", "https://.../", "https:///path",
}

func names() map[string][]string {
	return map[string][]string{
		"example.com":          {public},
		"localhost":            {"127.0.0.1", "::1"},
		"private.example.com":  {"192.168.0.7"},
		"mixed.example.com":    {public, "10.0.0.1"},
		"mapped.example.com":   {"::ffff:10.0.0.1"},
		"carrier.example.com":  {"100.100.100.200"},
		"metadata.example.com": {"169.254.169.254"},
		"nat64.example.com":    {"64:ff9b::a00:1"},
		"six.example.com":      {"2606:2800:220:1::1"},
		"far.example.com":      {"64:ff9b::5db8:d822"},
	}
}

func TestRefused(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			rw.Header().Set("Location", to)
			rw.WriteHeader(http.StatusFound)
			return
		}
		io.WriteString(rw, "reached")
	})
	w.names = names()
	c := w.client(t)
	for _, bad := range refused {
		for _, way := range []string{"direct", "redirect"} {
			t.Run(way+" "+bad, func(t *testing.T) {
				w.dialed = nil
				c.Close()
				target := bad
				if way == "redirect" {
					target = "https://example.com/?to=" + url.QueryEscape(bad)
				}
				_, body, err := get(t, c, target, egress.Limits{})
				if way == "redirect" && err == nil && (bad == "//" || strings.HasPrefix(bad, "https:///")) {
					err = errors.New("stays where it is")
				}
				if err == nil {
					t.Fatalf("it was reached: %q", body)
				}
				for _, a := range w.dialed {
					if way == "direct" || a != public+":443" {
						t.Errorf("%s was dialled", a)
					}
				}
			})
		}
	}
	if n := len(refused); n < 40 {
		t.Fatalf("only %d addresses were tried", n)
	}
}

func TestReached(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "reached "+r.Host) })
	w.names = names()
	c := w.client(t)
	for _, u := range []string{
		"https://example.com/", "https://EXAMPLE.com/x?y=z", "https://example.com:8443/", "https://six.example.com/",
		"https://far.example.com/", // NAT64 of a public address
	} {
		if _, body, err := get(t, c, u, egress.Limits{}); err != nil || !strings.HasPrefix(body, "reached") {
			t.Errorf("%s: %q, %v", u, body, err)
		}
	}
	if _, _, err := get(t, c, "https://nowhere.example.com/?token=secret", egress.Limits{}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("an error shows the query: %v", err)
	}
}

// TestRebinding is a name that means another host when it is resolved a second time.
func TestRebinding(t *testing.T) {
	hops := 0
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		hops++
		rw.Header().Set("Connection", "close")
		rw.Header().Set("Location", fmt.Sprintf("https://example.com/%d", hops))
		rw.WriteHeader(http.StatusFound)
	})
	answers := []string{public, "127.0.0.1"}
	w.cfg.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		a := netip.MustParseAddr(answers[0])
		answers = answers[1:]
		return []netip.Addr{a}, nil
	}
	_, _, err := get(t, w.client(t), "https://example.com/", egress.Limits{})
	if r, ok := errors.AsType[*egress.RefusedError](err); !ok || !strings.Contains(r.Why, "127.0.0.1") {
		t.Fatalf("error %v", err)
	}
	if hops != 1 || len(w.dialed) != 1 || w.dialed[0] != public+":443" {
		t.Fatalf("%d hops, dialled %v", hops, w.dialed)
	}
}

func TestAllow(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(rw, r, "http://127.0.0.1:9/", http.StatusFound)
			return
		}
		io.WriteString(rw, "mirror")
	}))
	defer plain.Close()
	at := strings.TrimPrefix(plain.URL, "http://")
	_, number, _ := net.SplitHostPort(at)
	for _, allow := range []string{at, "127.0.0.1", " 127.0.0.1:" + number + " "} {
		c, err := egress.New(egress.Config{Allow: []string{allow}})
		if err != nil {
			t.Fatal(err)
		}
		if _, body, err := get(t, c, plain.URL, egress.Limits{}); err != nil || body != "mirror" {
			t.Errorf("allowing %q: %q, %v", allow, body, err)
		}
		if allow == at {
			if _, _, err := get(t, c, plain.URL+"/away", egress.Limits{}); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("another port of an allowed host was not refused: %v", err)
			}
		}
		c.Close()
	}
	for _, bad := range []string{"", "http://x", "a b", "host:0", "host:99999", "host/path", "*.example.com"} {
		if _, err := egress.New(egress.Config{Allow: []string{bad}}); err == nil {
			t.Errorf("%q was taken as a host", bad)
		}
	}
}

func TestProxy(t *testing.T) {
	var target string
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		target = r.Method + " " + r.Host
		rw.WriteHeader(http.StatusTeapot)
	}))
	defer proxy.Close()
	at, _ := url.Parse(proxy.URL)
	c, err := egress.New(egress.Config{Proxy: at})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := get(t, c, "https://example.com/", egress.Limits{}); err == nil || target != "CONNECT example.com:443" {
		t.Errorf("the proxy saw %q, error %v", target, err)
	}
	if _, _, err := get(t, c, "https://10.0.0.1/", egress.Limits{}); err == nil || target != "CONNECT example.com:443" {
		t.Errorf("the proxy saw %q, error %v", target, err)
	}
}

func TestRedirectLimits(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/again", http.StatusFound) })
	c := w.client(t)
	if _, _, err := get(t, c, "https://example.com/", egress.Limits{}); err == nil || !strings.Contains(err.Error(), "10 redirects") {
		t.Errorf("a loop of redirects: %v", err)
	}
	res, _, err := get(t, c, "https://example.com/", egress.Limits{Redirects: -1})
	if err != nil || res.StatusCode != http.StatusFound {
		t.Errorf("not following: %v, %v", res, err)
	}
}

func TestBytes(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/announced":
			rw.Header().Set("Content-Length", "2000000")
		case "/gone":
			rw.WriteHeader(http.StatusGone)
		}
		rw.(http.Flusher).Flush()
		if r.URL.Path != "/announced" {
			io.WriteString(rw, strings.Repeat("x", 1000))
		}
	})
	c := w.client(t)
	if b, err := c.Bytes(t.Context(), "https://example.com/", 1000); err != nil || len(b) != 1000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	_, err := c.Bytes(t.Context(), "https://example.com/", 999)
	if long, ok := errors.AsType[*egress.TooLongError](err); !ok || long.Limit != 999 {
		t.Errorf("one byte too many: %v", err)
	}
	_, err = c.Bytes(t.Context(), "https://example.com/announced", 1000)
	if long, ok := errors.AsType[*egress.TooLongError](err); !ok || long.Announced != 2000000 {
		t.Errorf("an announced length: %v", err)
	}
	_, err = c.Bytes(t.Context(), "https://example.com/gone", 1000)
	if s, ok := errors.AsType[*egress.StatusError](err); !ok || s.Status != http.StatusGone {
		t.Errorf("a status: %v", err)
	}
}
