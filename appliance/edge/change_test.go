package edge_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"onebit/appliance/edge"
)

// at makes a client that trusts the box and goes to a port of loopback.
func (b *running) at(t testing.TB, protocol string, port int) *http.Client {
	t.Helper()
	return client(t, protocol, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), poolOf(t, b))
}

// freePort returns a number that is free for TCP and UDP, below
// those that systems give out by themselves: nobody is given it between here and its use.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(20000+rand.IntN(12000)))
		if err != nil {
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		u, err := net.ListenPacket("udp", l.Addr().String())
		l.Close()
		if err == nil {
			u.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// streams is one open stream for each protocol, and how to go on with them.
type streams struct {
	of  []*events
	in  []*bufio.Reader
	res []*http.Response
}

// openStreams begins one over each protocol, all from the same box.
func openStreams(t *testing.T, b *running) *streams {
	t.Helper()
	s := &streams{}
	for _, p := range protocols {
		e := newEvents()
		b.SetHandler(e)
		res, in := e.open(t, t.Context(), b.client(t, p))
		s.of, s.in, s.res = append(s.of, e), append(s.in, in), append(s.res, res)
	}
	b.SetHandler(says("new"))
	return s
}

// end sends one more event over each, ends them, and expects to read all of that.
func (s *streams) end(t *testing.T) {
	t.Helper()
	for i, e := range s.of {
		select {
		case e.next <- "last":
		case err := <-e.ended:
			t.Errorf("%s: the stream had ended: %v", protocols[i], err)
			continue
		}
		close(e.next)
		if rest, err := io.ReadAll(s.in[i]); err != nil || string(rest) != "\ndata: last\n\n" {
			t.Errorf("%s: the stream ended with %q, %v", protocols[i], rest, err)
		}
	}
}

// TestChangePort moves a box to other ports under streams: they end where they began, and what comes later finds it
// there.
func TestChangePort(t *testing.T) {
	b := serve(t, config(), nil)
	old, oldPlain := b.Port(), b.HTTPPort()
	kept := b.at(t, "h2", old)
	b.SetHandler(says("old"))
	get(t, kept, "https://testbox.local/")
	s := openStreams(t, b)
	cfg := b.Manner()
	cfg.Port, cfg.HTTPPort = freePort(t), -1
	if err := b.Take(cfg); err != nil {
		t.Fatal(err)
	}
	if b.Port() != cfg.Port || b.HTTPPort() != 0 || b.URL() != fmt.Sprintf("https://testbox.local:%d", cfg.Port) || b.TrustURL() != "" {
		t.Errorf("the box says it is at %s, %q", b.URL(), b.TrustURL())
	}
	for _, p := range protocols {
		res, body := get(t, b.at(t, p, cfg.Port), "https://testbox.local/")
		if body != "new" || p != "h3" && !strings.Contains(res.Header.Get("Alt-Svc"), fmt.Sprintf(":%d\"", cfg.Port)) {
			t.Errorf("%s: %q, Alt-Svc %q", p, body, res.Header.Get("Alt-Svc"))
		}
	}
	if res, body := get(t, kept, "https://testbox.local/"); body != "new" || res.Header.Get("Alt-Svc") != "clear" {
		t.Errorf("an open connection answers %q, Alt-Svc %q", body, res.Header.Get("Alt-Svc"))
	}
	for _, p := range []int{old, oldPlain} {
		if c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p))); err == nil {
			c.Close()
			t.Errorf("the old port %d is open", p)
		}
	}
	s.end(t)
	until(t, func() bool { // and is free again, for HTTP/3 too
		u, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(old)))
		if err == nil {
			u.Close()
		}
		return err == nil
	})
}

// TestChangeCertificates goes to the operator's certificate and back under streams.
func TestChangeCertificates(t *testing.T) {
	b := serve(t, config(), nil)
	s := openStreams(t, b)
	dir := t.TempDir()
	key := newKey(t)
	writePair(t, dir, b.Sign(&x509.Certificate{DNSNames: []string{"testbox.local"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}, key.Public()), key)
	shown := func(p string) *x509.Certificate {
		res, body := get(t, b.client(t, p), "https://testbox.local/")
		if body != "new" {
			t.Errorf("%s: %q", p, body)
		}
		return res.TLS.PeerCertificates[0]
	}
	local := b.Manner()
	files := local
	files.TLS = edge.TLSConfig{Mode: edge.ModeFiles, Certificate: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	if err := b.Take(files); err != nil {
		t.Fatal(err)
	}
	for _, p := range protocols {
		if c := shown(p); !key.PublicKey.Equal(c.PublicKey) {
			t.Errorf("%s: the operator's certificate is not shown", p)
		}
	}
	if err := os.WriteFile(files.TLS.Certificate, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Take(files); err == nil {
		t.Error("a broken certificate is taken")
	}
	if c := shown("h2"); !key.PublicKey.Equal(c.PublicKey) {
		t.Error("a broken file took the certificate away")
	}
	if err := b.Take(local); err != nil {
		t.Fatal(err)
	}
	for _, p := range protocols {
		if c := shown(p); key.PublicKey.Equal(c.PublicKey) {
			t.Errorf("%s: the operator's certificate is still shown", p)
		}
	}
	s.end(t)
}

// TestChangeManner changes what needs no other port, and connections that are open go by it at once.
func TestChangeManner(t *testing.T) {
	b := serve(t, config(), says("in"))
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) {
			c := b.client(t, p)
			page := func() int {
				res, _ := send(t, c, "POST", "https://testbox.local/", "Origin", "https://chat.example.org")
				return res.StatusCode
			}
			cfg := b.Manner()
			cfg.Origins = nil
			if err := b.Take(cfg); err != nil || page() != 403 {
				t.Fatalf("before: %v", err)
			}
			cfg.Origins, cfg.WriteTimeout, cfg.Drain = []string{"https://chat.example.org"}, 3*time.Minute, 2*time.Minute
			if err := b.Take(cfg); err != nil || page() != 200 {
				t.Errorf("the page is not let in: %v", err)
			}
			cfg.Origins = nil
			if err := b.Take(cfg); err != nil || page() != 403 {
				t.Errorf("the page is still let in: %v", err)
			}
		})
	}
}

// TestChangeHTTP3 turns HTTP/3 off and on.
func TestChangeHTTP3(t *testing.T) {
	b := serve(t, config(), nil)
	s := openStreams(t, b)
	c := b.client(t, "h2")
	for _, on := range []bool{false, true} {
		cfg := b.Manner()
		cfg.HTTP3 = on
		if err := b.Take(cfg); err != nil {
			t.Fatal(err)
		}
		if !on {
			if res, _ := get(t, c, "https://testbox.local/"); res.Header.Get("Alt-Svc") != "clear" {
				t.Errorf("Alt-Svc is %q", res.Header.Get("Alt-Svc"))
			}
		}
	}
	s.end(t)
	until(t, func() bool { // the port is free only now
		res, _ := get(t, c, "https://testbox.local/")
		return res.Header.Get("Alt-Svc") != "clear"
	})
	if _, body := get(t, b.client(t, "h3"), "https://testbox.local/"); body != "new" {
		t.Errorf("over HTTP/3: %q", body)
	}
}

// TestChangeRefuses spoils a configuration in each way, and the box stays as it was.
func TestChangeRefuses(t *testing.T) {
	b := serve(t, config(), nil)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	takenUDP, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer takenUDP.Close()
	port, plain := b.Port(), b.HTTPPort()
	fixed := b.Manner()
	fixed.Port, fixed.HTTPPort = port, plain
	if err := b.Take(fixed); err != nil { // the ports that it has, by number
		t.Fatal(err)
	}
	s := openStreams(t, b)
	before := runtime.NumGoroutine()
	for name, spoil := range map[string]func(*edge.BoxConfig){
		"a port that is taken":            func(c *edge.BoxConfig) { c.Port = taken.Addr().(*net.TCPAddr).Port },
		"a port that is taken for HTTP/3": func(c *edge.BoxConfig) { c.Port = takenUDP.LocalAddr().(*net.UDPAddr).Port },
		"a plain port that is taken":      func(c *edge.BoxConfig) { c.Port, c.HTTPPort = 0, taken.Addr().(*net.TCPAddr).Port },
		"an address of another machine":   func(c *edge.BoxConfig) { c.Host = "192.0.2.1" },
		"its ports for the other, and elsewhere": func(c *edge.BoxConfig) {
			c.Port, c.HTTPPort, c.Host = c.HTTPPort, c.Port, "192.0.2.1"
		},
		"a name with a dot":       func(c *edge.BoxConfig) { c.Port, c.Name = 0, "a.b" },
		"files without files":     func(c *edge.BoxConfig) { c.Port, c.TLS.Mode = 0, edge.ModeFiles },
		"an origin that is none":  func(c *edge.BoxConfig) { c.Port, c.Origins = 0, []string{"null"} },
		"an unknown DNS provider": func(c *edge.BoxConfig) { c.TLS = acme(edge.ACME{Challenges: []string{"dns-01"}, DNS: "mine"}) },
		"a wildcard without DNS": func(c *edge.BoxConfig) {
			c.TLS, c.Names = acme(edge.ACME{}), []string{"*.box.example.com"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fixed
			cfg.Name, cfg.Origins = "other", []string{"https://chat.example.org"}
			spoil(&cfg)
			if err := b.Take(cfg); err == nil {
				t.Fatal("it is taken on")
			} else {
				t.Log(err)
			}
			if b.Port() != port || b.HTTPPort() != plain || b.Name() != "testbox.local" {
				t.Errorf("the box has become %s at %d and %d", b.Name(), b.Port(), b.HTTPPort())
			}
			for _, p := range protocols {
				if _, body := get(t, b.client(t, p), "https://testbox.local/"); body != "new" {
					t.Errorf("%s: %q", p, body)
				}
				if res, _ := get(t, b.client(t, p), "https://testbox.local/", "Origin", "https://chat.example.org"); res.StatusCode != 403 {
					t.Errorf("%s: a page is let in: %d", p, res.StatusCode)
				}
			}
		})
	}
	until(t, func() bool { return runtime.NumGoroutine() <= before+2 })
	s.end(t)
}

// TestChangeWithinItsPorts takes ports on that the box itself has, for something else.
func TestChangeWithinItsPorts(t *testing.T) {
	cfg := config()
	cfg.Port, cfg.HTTPPort = freePort(t), freePort(t)
	for name, change := range map[string]func(*edge.BoxConfig){
		"the other way round": func(c *edge.BoxConfig) { c.Port, c.HTTPPort = c.HTTPPort, c.Port },
		"all addresses":       func(c *edge.BoxConfig) { c.Host = "0.0.0.0" },
		"HTTPS where HTTP was, and no HTTP": func(c *edge.BoxConfig) {
			c.Port, c.HTTPPort = c.HTTPPort, -1
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, cfg, nil)
			s := openStreams(t, b)
			next := b.Manner()
			change(&next)
			if err := b.Take(next); err != nil {
				t.Fatal(err)
			}
			for _, p := range []string{"h1", "h2"} {
				if _, body := get(t, b.at(t, p, next.Port), "https://testbox.local/"); body != "new" {
					t.Errorf("%s: %q", p, body)
				}
			}
			if next.HTTPPort > 0 {
				res, err := http.Get(fmt.Sprintf("http://localhost:%d/trust/fingerprint", next.HTTPPort))
				if err != nil || res.StatusCode != 200 {
					t.Fatalf("the trust page: %v", err)
				}
				res.Body.Close()
			}
			s.end(t)
			until(t, func() bool { return strings.HasPrefix(altSvc(t, b), "h3=") })
			if _, body := get(t, b.at(t, "h3", next.Port), "https://testbox.local/"); body != "new" {
				t.Errorf("over HTTP/3: %q", body)
			}
			if b.Problem() != "" {
				t.Error(b.Problem())
			}
		})
	}
}

// altSvc is what a box says about HTTP/3.
func altSvc(t *testing.T, b *running) string {
	res, _ := get(t, b.client(t, "h2"), "https://testbox.local/")
	return res.Header.Get("Alt-Svc")
}

// TestChangeUnderLoad changes ports, limits and certificates again and again under requests and streams: none is lost and
// nothing is left.
func TestChangeUnderLoad(t *testing.T) {
	b := serve(t, config(), nil)
	s := openStreams(t, b)
	ctx, stop := context.WithCancel(t.Context())
	var lost []error
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			address, trust := b.Self()
			tr := &http.Transport{TLSClientConfig: trust, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address)
			}, ForceAttemptHTTP2: true}
			res, err := (&http.Client{Transport: tr}).Post("https://testbox.local/", "text/plain", strings.NewReader("x"))
			if err == nil {
				res.Body.Close()
			} else if now, _ := b.Self(); now == address { // else it has moved between the question and the call
				lost = append(lost, err)
			}
			tr.CloseIdleConnections()
		}
	}()
	before := 0
	for i := range 60 {
		cfg := b.Manner()
		cfg.WriteTimeout = time.Minute + time.Duration(i)*time.Second
		cfg.Names = []string{fmt.Sprintf("n%d.lan", i)}
		if i%5 == 4 {
			cfg.Port = freePort(t)
		}
		if err := b.Take(cfg); err != nil {
			t.Fatal(err)
		}
		if i == 10 {
			before = runtime.NumGoroutine()
		}
	}
	stop()
	<-done
	if len(lost) > 0 {
		t.Errorf("%d requests were lost, such as by %v", len(lost), lost[0])
	}
	until(t, func() bool { return runtime.NumGoroutine() <= before+6 })
	s.end(t)
}

// TestChangeBeforeServing takes another configuration on before the box serves.
func TestChangeBeforeServing(t *testing.T) {
	b, err := edge.ListenBox(t.Context(), config(), says("here"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := b.Manner()
	cfg.Port, cfg.Names = freePort(t), []string{"further.lan"}
	if err := b.Take(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- b.Serve(ctx) }()
	r := &running{Box: b}
	for _, p := range protocols {
		if _, body := get(t, r.at(t, p, cfg.Port), "https://further.lan/"); body != "here" {
			t.Errorf("%s: %q", p, body)
		}
	}
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
	if err := b.Take(cfg); err == nil {
		t.Error("a box that has stopped takes a configuration on")
	}
}

// TestSelf reaches a box by what it says of itself, whatever certificate it shows.
func TestSelf(t *testing.T) {
	b := serve(t, config(), says("here"))
	dir, key := t.TempDir(), newKey(t)
	foreign := serve(t, config(), nil)
	writePair(t, dir, foreign.Sign(&x509.Certificate{DNSNames: []string{"testbox.local"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}, key.Public()), key)
	expired := t.TempDir() // nobody's reason to start the box again
	writePair(t, expired, foreign.Sign(&x509.Certificate{DNSNames: []string{"testbox.local"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}, key.Public()), key)
	for _, host := range []string{"127.0.0.1", "", "0.0.0.0"} {
		dir, expired = expired, dir
		for _, mode := range []string{edge.ModeLocal, edge.ModeFiles} {
			cfg := b.Manner()
			cfg.Host, cfg.TLS = host, edge.TLSConfig{Mode: mode, Certificate: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
			if err := b.Take(cfg); err != nil {
				t.Fatal(err)
			}
			address, trust := b.Self()
			c, err := tls.Dial("tcp", address, trust)
			if err != nil {
				t.Errorf("%s, %s: %v", host, mode, err)
				continue
			}
			c.Close()
		}
	}
}

// TestChangeAtRandom goes through configurations that a seed chooses, each of which may clash with the ports that the box
// has or others have, while streams run. After each step the box serves what it says it does, and has changed in
// whole or not at all.
func TestChangeAtRandom(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			b := serve(t, config(), nil)
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()
			dir, key := t.TempDir(), newKey(t)
			writePair(t, dir, b.Sign(&x509.Certificate{DNSNames: []string{"testbox.local"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}, key.Public()), key)
			files := edge.TLSConfig{Mode: edge.ModeFiles, Certificate: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
			wrong := files
			wrong.Key = dir
			ports := []int{0, freePort(t), freePort(t), freePort(t), taken.Addr().(*net.TCPAddr).Port}
			s := openStreams(t, b)
			refused := 0
			for range 25 {
				before, port, plain := b.Manner(), b.Port(), b.HTTPPort()
				cfg := before
				switch random.IntN(3) {
				case 0:
					cfg.Port, cfg.HTTPPort = ports[random.IntN(len(ports))], append(ports, -1)[random.IntN(len(ports)+1)]
				case 1:
					cfg.Host, cfg.HTTP3 = []string{"127.0.0.1", "0.0.0.0", ""}[random.IntN(3)], random.IntN(4) > 0
				case 2:
					cfg.TLS, cfg.WriteTimeout = []edge.TLSConfig{{Mode: edge.ModeLocal}, files, wrong}[random.IntN(3)], time.Duration(1+random.IntN(3))*time.Minute
				}
				cfg.Names = []string{fmt.Sprintf("n%d.lan", random.IntN(1000))}
				if cfg.Port == cfg.HTTPPort && cfg.Port != 0 {
					continue // the configuration's reader refuses that
				}
				if err := b.Take(cfg); err != nil {
					refused++
					if now := b.Manner(); b.Port() != port || b.HTTPPort() != plain || !reflect.DeepEqual(now.Names, before.Names) || now.Host != before.Host {
						t.Fatalf("half of %+v is taken, after %v", cfg, err)
					}
				} else if cfg.Port != 0 && b.Port() != cfg.Port || cfg.HTTPPort > 0 && b.HTTPPort() != cfg.HTTPPort || (cfg.HTTPPort < 0) != (b.HTTPPort() == 0) {
					t.Fatalf("it is at %d and %d, not at %d and %d", b.Port(), b.HTTPPort(), cfg.Port, cfg.HTTPPort)
				}
				for _, p := range []string{"h1", "h2"} {
					if _, body := get(t, b.client(t, p), "https://"+append(b.Manner().Names, "testbox.local")[0]+"/"); body != "new" {
						t.Fatalf("%s answers %q", p, body)
					}
				}
				if b.HTTPPort() != 0 {
					res, err := http.Get(fmt.Sprintf("http://localhost:%d/trust/fingerprint", b.HTTPPort()))
					if err != nil || res.StatusCode != 200 {
						t.Fatalf("the trust page: %v", err)
					}
					res.Body.Close()
				}
			}
			s.end(t)
			t.Logf("%d changes were refused", refused)
			if !b.Manner().HTTP3 {
				return
			}
			until(t, func() bool { return strings.HasPrefix(altSvc(t, b), "h3=") })
			if _, body := get(t, b.client(t, "h3"), "https://testbox.local/"); body != "new" {
				t.Errorf("over HTTP/3: %q", body)
			}
		})
	}
}
