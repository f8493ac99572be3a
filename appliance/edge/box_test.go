package edge_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"onebit/appliance/edge"
)

func TestBoxByNameAndAddress(t *testing.T) {
	cfg := config()
	cfg.Names = []string{"box.lan", "box.home.arpa"}
	b := serve(t, cfg, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	want := map[string]string{"h1": "HTTP/1.1", "h2": "HTTP/2.0", "h3": "HTTP/3.0"}
	for _, host := range []string{"testbox.local", "TestBox.Local", "box.lan", "box.home.arpa", "localhost", "127.0.0.1"} {
		for _, p := range protocols {
			t.Run(host+"/"+p, func(t *testing.T) {
				res, body := get(t, b.client(t, p), "https://"+host+"/")
				if body != want[p] {
					t.Errorf("the protocol is %s", body)
				}
				leaf := res.TLS.PeerCertificates[0]
				if life := leaf.NotAfter.Sub(leaf.NotBefore); life > 8*24*time.Hour || life < 6*24*time.Hour {
					t.Errorf("the leaf lives %v", life)
				}
				if len(leaf.DNSNames)+len(leaf.IPAddresses) != 1 {
					t.Errorf("the leaf is for %v %v", leaf.DNSNames, leaf.IPAddresses)
				}
				if res.TLS.CurveID != tls.X25519MLKEM768 {
					t.Errorf("the key exchange is %v", res.TLS.CurveID)
				}
				if alt := res.Header.Get("Alt-Svc"); p != "h3" && alt != fmt.Sprintf(`h3=":%d"; ma=86400`, b.Port()) || p == "h3" && alt != "" {
					t.Errorf("Alt-Svc is %q", alt)
				}
			})
		}
	}
}

// TestBoxOnAllAddresses reaches a box that listens on all addresses under each that this machine has.
func TestBoxOnAllAddresses(t *testing.T) {
	cfg := config()
	cfg.Host = ""
	b := serve(t, cfg, says("here"))
	pem, _ := b.Root()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, a := range list {
		ip, _, err := net.ParseCIDR(a.String())
		if err != nil || ip.IsLinkLocalUnicast() || !ip.IsPrivate() && !ip.IsLoopback() {
			continue
		}
		tried++
		addr := net.JoinHostPort(ip.String(), strconv.Itoa(b.Port()))
		for _, p := range protocols {
			if _, body := get(t, client(t, p, addr, pool), "https://"+addr+"/"); body != "here" {
				t.Errorf("%s %s: %q", p, addr, body)
			}
		}
	}
	if tried == 0 {
		t.Fatal("this machine has no address")
	}
}

func TestBoxRefusesForeignNames(t *testing.T) {
	store := newMemory()
	cfg := config()
	cfg.Storage = store
	b := serve(t, cfg, says("no"))
	for _, host := range []string{"evil.example.com", "other.local", "testbox.local.example.com", "10.9.8.7", "192.0.2.1"} {
		for _, p := range protocols {
			t.Run(host+"/"+p, func(t *testing.T) {
				c := b.client(t, p)
				if ip := net.ParseIP(host); ip != nil {
					// a bare address is not in the handshake: the certificate is that of the address at which the client came in
					if _, err := c.Get("https://" + host + "/"); err == nil {
						t.Error("an address that the box does not have was certified")
					}
					return
				}
				if res, err := c.Get("https://" + host + "/"); err == nil {
					t.Errorf("served a foreign name: %s", res.Status)
				} else if !strings.Contains(err.Error(), "internal error") {
					t.Errorf("the handshake was not refused by the box: %v", err)
				}
			})
		}
	}
	if list, _ := store.List(t.Context(), "certificates", true); len(list) != 3 { // the address of loopback: certificate, key, metadata
		t.Errorf("stored: %v", list)
	}
}

// TestBoxCertifiesNoMoreThanItsNames asks for many names that are almost the box's: what anybody may make it certify is
// bounded.
func TestBoxCertifiesNoMoreThanItsNames(t *testing.T) {
	store := newMemory()
	cfg := config()
	cfg.Storage, cfg.Names = store, []string{"*.apps.lan"}
	b := serve(t, cfg, says("here"))
	for i := range 10 {
		for _, name := range []string{fmt.Sprintf("x%d.localhost", i), fmt.Sprintf("127.1.1.%d", i), fmt.Sprintf("a.b%d.apps.lan", i)} {
			if shown(t, b, name) {
				t.Errorf("%s is certified", name)
			}
		}
		if !shown(t, b, fmt.Sprintf("app%d.apps.lan", i)) {
			t.Error("a name of the wildcard is not certified")
		}
	}
	list, err := store.List(t.Context(), "certificates", true)
	if err != nil || len(list) != 3 { // certificate, key and metadata of the wildcard
		t.Errorf("stored: %v, %v", list, err)
	}
	if _, body := get(t, b.client(t, "h3"), "https://chat.apps.lan/"); body != "here" {
		t.Errorf("got %q", body)
	}
}

// shown reports whether the box shows a certificate to a client that asks for name, an address perhaps, which proper
// clients do not ask for.
func shown(t *testing.T, b *running, name string) bool {
	t.Helper()
	raw, err := net.Dial("tcp", addressOf(b))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	placeholder := strings.Repeat("a", len(name))
	c := tls.Client(&renamed{Conn: raw, from: placeholder, to: name}, &tls.Config{ServerName: placeholder, InsecureSkipVerify: true})
	got := false
	c.SetDeadline(time.Now().Add(10 * time.Second))
	err = c.Handshake()
	if state := c.ConnectionState(); len(state.PeerCertificates) > 0 {
		got = true
	}
	return got || err == nil || strings.Contains(err.Error(), "bad record MAC")
}

// renamed changes a name in the first flight of a client.
type renamed struct {
	net.Conn
	from, to string
}

func (r *renamed) Write(b []byte) (int, error) {
	return r.Conn.Write(bytes.ReplaceAll(b, []byte(r.from), []byte(r.to)))
}

func TestBoxGuard(t *testing.T) {
	cfg := config()
	cfg.Names = []string{"box.lan", "192.0.2.7"}
	cfg.Origins = []string{"https://Chat.example.org:443/", "http://localhost:3000"}
	b := serve(t, cfg, says("in"))
	port := ":" + strconv.Itoa(b.Port())
	for _, c := range []struct {
		name, method, host, origin string
		want                       int
	}{
		{"no origin", "POST", "testbox.local" + port, "", 200},
		{"without a domain", "POST", "testbox", "", 200},
		{"an address given", "POST", "192.0.2.7", "", 200},
		{"rebound name", "GET", "evil.test", "", 421},
		{"rebound name with our port", "POST", "evil.test" + port, "", 421},
		{"our name in front", "GET", "testbox.local.evil.test", "", 421},
		{"an address that is not ours", "GET", "10.99.99.99", "", 421},
		{"own page", "POST", "testbox.local" + port, "https://testbox.local" + port, 200},
		{"own page under another name", "POST", "testbox.local" + port, "https://box.lan" + port, 200},
		{"own page through a port forward", "POST", "testbox.local", "https://testbox.local", 200},
		{"other service of this machine", "POST", "testbox.local" + port, "https://testbox.local:9999", 403},
		{"own name without encryption", "POST", "testbox.local" + port, "http://testbox.local" + port, 403},
		{"foreign page", "POST", "testbox.local" + port, "https://evil.test", 403},
		{"foreign page, reading", "GET", "testbox.local" + port, "https://evil.test", 403},
		{"foreign page, asking first", "OPTIONS", "testbox.local" + port, "https://evil.test", 403},
		{"page that hides", "POST", "testbox.local" + port, "null", 403},
		{"not a page", "POST", "testbox.local" + port, "https://[::1", 403},
		{"allowed page", "POST", "testbox.local" + port, "https://chat.example.org", 200},
		{"allowed page, port written", "POST", "testbox.local" + port, "https://chat.example.org:443", 200},
		{"allowed page of the user's machine", "POST", "testbox.local" + port, "http://localhost:3000", 200},
		{"below an allowed page", "POST", "testbox.local" + port, "https://x.chat.example.org", 403},
	} {
		for _, p := range protocols {
			t.Run(c.name+"/"+p, func(t *testing.T) {
				headers := []string{"Host", c.host}
				if c.origin != "" {
					headers = append(headers, "Origin", c.origin)
				}
				res, body := send(t, b.client(t, p), c.method, "https://testbox.local/", headers...)
				if res.StatusCode != c.want {
					t.Errorf("got %d, want %d", res.StatusCode, c.want)
				}
				if c.want != 200 && !strings.HasPrefix(body, `{"error":{"message":`) {
					t.Errorf("%s is no error object", body)
				}
			})
		}
	}
}

func TestBoxAllowedPages(t *testing.T) {
	cfg := config()
	cfg.Origins = []string{"https://chat.example.org"}
	b := serve(t, cfg, says("in"))
	c := b.client(t, "h2")
	res, _ := send(t, c, "OPTIONS", "https://testbox.local/v1/chat/completions", "Origin", "https://chat.example.org",
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization, content-type")
	if res.StatusCode != 204 || res.Header.Get("Access-Control-Allow-Origin") != "https://chat.example.org" ||
		res.Header.Get("Access-Control-Allow-Headers") != "authorization, content-type" || res.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	res, body := send(t, c, "POST", "https://testbox.local/", "Origin", "https://chat.example.org")
	if body != "in" || res.Header.Get("Access-Control-Allow-Origin") != "https://chat.example.org" || res.Header.Get("Vary") != "Origin" {
		t.Errorf("%q %v", body, res.Header)
	}
	res, _ = send(t, c, "POST", "https://testbox.local/")
	if res.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("a program is told about pages")
	}
}

func TestBoxWithoutHTTP3(t *testing.T) {
	cfg := config()
	cfg.HTTP3 = false
	b := serve(t, cfg, says("here"))
	res, body := get(t, b.client(t, "h2"), "https://testbox.local/")
	if body != "here" || res.Header.Get("Alt-Svc") != "clear" {
		t.Errorf("%q, Alt-Svc %q", body, res.Header.Get("Alt-Svc"))
	}
	u, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(b.Port())))
	if err != nil {
		t.Fatalf("the UDP port is taken: %v", err)
	}
	u.Close()
}

// TestBoxRefusesEarlyData comes twice and tries to send a request in the first flight: whoever copied that flight could
// send it again.
func TestBoxRefusesEarlyData(t *testing.T) {
	b := serve(t, config(), says("here"))
	pem, _ := b.Root()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	tc := &tls.Config{RootCAs: pool, ServerName: "testbox.local", NextProtos: []string{http3.NextProtoH3}, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(b.Port()))
	resumed := false
	for range 3 {
		conn, err := quic.DialAddrEarly(t.Context(), addr, tc, &quic.Config{})
		if err != nil {
			t.Fatal(err)
		}
		tr := &http3.Transport{}
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "https://testbox.local/", nil)
		res, err := tr.NewClientConn(conn).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		s := conn.ConnectionState()
		if s.Used0RTT {
			t.Error("the box took early data")
		}
		resumed = resumed || s.TLS.DidResume
		conn.CloseWithError(0, "")
	}
	if !resumed {
		t.Error("no connection was resumed, so early data was not tried")
	}
}

// TestBoxReload changes handler and names under connections that go on.
func TestBoxReload(t *testing.T) {
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) {
			b := serve(t, config(), nil)
			step := make(chan string)
			b.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c := http.NewResponseController(w)
				for text := range step {
					io.WriteString(w, text)
					c.Flush()
				}
			}))
			c := b.client(t, p)
			go func() { step <- "old " }()
			res, err := c.Get("https://testbox.local/")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			b.SetHandler(says("new"))
			if err := b.SetNames("other", []string{"further.lan"}); err != nil {
				t.Fatal(err)
			}
			for _, host := range []string{"other.local", "further.lan"} {
				if _, body := get(t, b.client(t, p), "https://"+host+"/"); body != "new" {
					t.Errorf("%s answered %q", host, body)
				}
			}
			if p != "h1" { // its only connection is busy
				if res, _ := get(t, c, "https://testbox.local/"); res.StatusCode != http.StatusMisdirectedRequest {
					t.Errorf("the old name on the old connection: %d", res.StatusCode)
				}
			}
			if _, err := b.client(t, p).Get("https://testbox.local/"); err == nil {
				t.Error("the old name is still certified")
			}
			step <- "still "
			close(step)
			if body, err := io.ReadAll(res.Body); string(body) != "old still " || err != nil {
				t.Errorf("the stream said %q, %v", body, err)
			}
		})
	}
}

func TestSetNamesRefuses(t *testing.T) {
	b := serve(t, config(), says("here"))
	for _, name := range []string{"", "two words", "a.b", "-x", "käse"} {
		if b.SetNames(name, nil) == nil {
			t.Errorf("%q is taken as a name", name)
		}
	}
	for _, more := range []string{"", "*", "*.lan", "a b", "http://x", "x:1", "a..b"} {
		if b.SetNames("box", []string{more}) == nil {
			t.Errorf("%q is taken as a further name", more)
		}
	}
	if _, body := get(t, b.client(t, "h2"), "https://testbox.local/"); body != "here" {
		t.Error("a refused change changed something")
	}
}

func TestBoxURLs(t *testing.T) {
	b := serve(t, config(), says(""))
	if want := fmt.Sprintf("https://testbox.local:%d", b.Port()); b.URL() != want {
		t.Errorf("URL is %s, want %s", b.URL(), want)
	}
	if want := fmt.Sprintf("http://testbox.local:%d/trust", b.HTTPPort()); b.TrustURL() != want {
		t.Errorf("TrustURL is %s, want %s", b.TrustURL(), want)
	}
}

func TestListenBoxRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*edge.BoxConfig){
		"a name with a dot":        func(c *edge.BoxConfig) { c.Name = "a.b" },
		"no storage":               func(c *edge.BoxConfig) { c.Storage = nil },
		"an unknown mode":          func(c *edge.BoxConfig) { c.TLS.Mode = "best" },
		"files without files":      func(c *edge.BoxConfig) { c.TLS.Mode = edge.ModeFiles },
		"files that are not there": func(c *edge.BoxConfig) { c.TLS = edge.TLSConfig{Mode: edge.ModeFiles, Certificate: "no", Key: "no"} },
		"an origin that is none":   func(c *edge.BoxConfig) { c.Origins = []string{"null"} },
		"an origin with a path":    func(c *edge.BoxConfig) { c.Origins = []string{"https://x.org/y"} },
		"an unknown challenge":     func(c *edge.BoxConfig) { c.TLS = acme(edge.ACME{Challenges: []string{"dns-02"}}) },
		"an unknown DNS provider":  func(c *edge.BoxConfig) { c.TLS = acme(edge.ACME{Challenges: []string{"dns-01"}, DNS: "mine"}) },
		"a DNS provider without its options": func(c *edge.BoxConfig) {
			c.TLS = acme(edge.ACME{Challenges: []string{"dns-01"}, DNS: "cloudflare"})
		},
		"an option that the DNS provider lacks": func(c *edge.BoxConfig) {
			c.TLS = acme(edge.ACME{Challenges: []string{"dns-01"}, DNS: "hetzner", DNSOptions: map[string]string{"token": "x", "tokn": "y"}})
		},
		"a wildcard without DNS": func(c *edge.BoxConfig) {
			c.TLS, c.Names = acme(edge.ACME{}), []string{"*.box.example.com"}
		},
		"http-01 without its port": func(c *edge.BoxConfig) {
			c.TLS, c.HTTPPort = acme(edge.ACME{Challenges: []string{"http-01"}}), -1
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			spoil(&cfg)
			if b, err := edge.ListenBox(t.Context(), cfg, nil); err == nil {
				b.Close()
				t.Error("taken")
			} else {
				t.Log(err)
			}
		})
	}
}

func acme(a edge.ACME) edge.TLSConfig { return edge.TLSConfig{Mode: edge.ModeACME, ACME: a} }

func TestListenBoxGivesPortsBack(t *testing.T) {
	cfg := config()
	b, err := edge.ListenBox(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Port = b.Port()
	if _, err := edge.ListenBox(t.Context(), cfg, nil); err == nil || !strings.HasPrefix(err.Error(), "cannot listen on 127.0.0.1:") {
		t.Errorf("a taken port: %v", err)
	}
	b.Close()
	b.Close() // again
	second, err := edge.ListenBox(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}
