package edge_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"onebit/appliance/edge"
)

// zone is the part of the public name system that the tests need: box.example.com, where everything is this machine.
type zone struct {
	addr string

	mu  sync.Mutex
	txt map[string][]string
}

const (
	apex    = "box.example.com."
	tsigKey = "update."
	tsig    = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA=="
)

// newZone answers over UDP and TCP on one free port until the test ends.
func newZone(t *testing.T) *zone {
	t.Helper()
	z := &zone{txt: map[string][]string{}}
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		u, err := net.ListenPacket("udp", l.Addr().String())
		if err != nil {
			l.Close()
			continue
		}
		z.addr = l.Addr().String()
		for _, s := range []*dns.Server{{Listener: l}, {PacketConn: u}} {
			s.Handler, s.TsigSecret = z, map[string]string{tsigKey: tsig}
			s.MsgAcceptFunc = func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }
			go s.ActivateAndServe()
			t.Cleanup(func() { s.Shutdown() })
		}
		return z
	}
	t.Fatal("no port is free for both TCP and UDP")
	return nil
}

// ServeDNS answers questions, and takes updates that are signed.
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	m.Authoritative = true
	z.mu.Lock()
	defer z.mu.Unlock()
	if q.Opcode == dns.OpcodeUpdate {
		if q.IsTsig() == nil || w.TsigStatus() != nil {
			m.Rcode = dns.RcodeRefused
		} else {
			z.update(q.Ns)
			m.SetTsig(tsigKey, dns.HmacSHA256, 300, time.Now().Unix())
		}
		w.WriteMsg(m)
		return
	}
	name := strings.ToLower(q.Question[0].Name)
	record := func(text string) dns.RR {
		r, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		return r
	}
	switch kind := q.Question[0].Qtype; {
	case kind == dns.TypeA:
		m.Answer = append(m.Answer, record(name+" 5 IN A 127.0.0.1"))
	case kind == dns.TypeTXT:
		for _, v := range z.txt[name] {
			m.Answer = append(m.Answer, &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: 1, Ttl: 1}, Txt: []string{v}})
		}
	case kind == dns.TypeSOA && name == apex:
		m.Answer = append(m.Answer, record(apex+" 5 IN SOA ns1."+apex+" admin."+apex+" 1 60 60 60 5"))
	case kind == dns.TypeNS && name == apex:
		m.Answer = append(m.Answer, record(apex+" 5 IN NS ns1."+apex))
	}
	if len(m.Answer) == 0 {
		m.Ns = append(m.Ns, record(apex+" 5 IN SOA ns1."+apex+" admin."+apex+" 1 60 60 60 5"))
	}
	w.WriteMsg(m)
}

// update adds and removes texts as RFC 2136 says. The lock is held.
func (z *zone) update(records []dns.RR) {
	for _, r := range records {
		name := strings.ToLower(r.Header().Name)
		if r.Header().Class != dns.ClassINET {
			delete(z.txt, name)
		} else if text, ok := r.(*dns.TXT); ok {
			z.txt[name] = append(z.txt[name], strings.Join(text.Txt, ""))
		}
	}
}

// webhook is somebody's program that sets records.
func (z *zone) webhook(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ FQDN, Value string }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.Method != "POST" || r.Header.Get("Authorization") != "Bearer hook" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		z.mu.Lock()
		defer z.mu.Unlock()
		name := strings.ToLower(q.FQDN)
		switch r.URL.Path {
		case "/dns/present":
			z.txt[name] = append(z.txt[name], q.Value)
		case "/dns/cleanup":
			delete(z.txt, name)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/dns"
}

// left returns the texts that nobody took away.
func (z *zone) left() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return len(z.txt)
}

// pebble is an ACME authority for tests. It has two profiles; the second is for a few days.
type pebble struct {
	directory, management string
	root                  string // PEM file for its own certificate
	client                *http.Client
	start                 func(httpPort, tlsPort int, resolver string)
	stop                  func()
}

// pebbleProgram finds the program.
func pebbleProgram(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("ONEBIT_PEBBLE"); p != "" {
		return p
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(cache, "1bit/tools/pebble-v2.10.3/pebble")
	if _, err := os.Stat(p); err != nil {
		t.Skip("the ACME test server is not there: `bash e2e/setup.sh pebble` builds it, as `make test` does")
	}
	return p
}

// newPebble prepares an authority; start makes it run until the test ends.
func newPebble(t *testing.T) *pebble {
	t.Helper()
	program := pebbleProgram(t)
	dir := t.TempDir()
	own := open(t, config()) // its certificate comes from an authority of ours
	key := newKey(t)
	writePair(t, dir, own.Sign(&x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, key.Public()), key)
	rootPEM, _ := own.Root()
	p := &pebble{directory: "https://" + freeAddr(t) + "/dir", management: freeAddr(t), root: filepath.Join(dir, "root.pem")}
	if err := os.WriteFile(p.root, rootPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(own.RootCertificate())
	p.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	t.Cleanup(p.client.CloseIdleConnections)
	p.start = func(httpPort, tlsPort int, resolver string) { p.run(t, program, dir, httpPort, tlsPort, resolver) }
	return p
}

func (p *pebble) run(t *testing.T, program, dir string, httpPort, tlsPort int, resolver string) {
	t.Helper()
	conf, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress":           strings.TrimSuffix(strings.TrimPrefix(p.directory, "https://"), "/dir"),
		"managementListenAddress": p.management,
		"certificate":             filepath.Join(dir, "cert.pem"), "privateKey": filepath.Join(dir, "key.pem"),
		"httpPort": httpPort, "tlsPort": tlsPort,
		"retryAfter": map[string]int{"authz": 1, "order": 1}, "keyAlgorithm": "ecdsa",
		"profiles": map[string]any{
			"default":    map[string]any{"description": "months", "validityPeriod": 7776000},
			"shortlived": map[string]any{"description": "days", "validityPeriod": 518400},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pebble.json"), conf, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-strict", "-config", filepath.Join(dir, "pebble.json"), "-dnsserver", resolver)
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=10", "PEBBLE_AUTHZREUSE=0")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stop = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("pebble said:\n%s", said.Bytes())
		}
	})
	until(t, func() bool {
		c, err := net.Dial("tcp", p.management)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// roots returns what clients of the authority trust. It makes another root at each start.
func (p *pebble) roots(t *testing.T) *x509.CertPool {
	t.Helper()
	res, err := p.client.Get("https://" + p.management + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(b) {
		t.Fatalf("no root: %v", err)
	}
	return pool
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestACME(t *testing.T) {
	for _, c := range []struct {
		name, ask string // the name that the box has, and one that it covers
		acme      func(t *testing.T, z *zone) edge.ACME
		days      int // 0 leaves it to the authority
	}{
		{"h." + apex, "", func(*testing.T, *zone) edge.ACME { return edge.ACME{Challenges: []string{edge.ChallengeHTTP}} }, 0},
		{"a." + apex, "", func(*testing.T, *zone) edge.ACME { return edge.ACME{Challenges: []string{edge.ChallengeALPN}} }, 0},
		{"d." + apex, "", func(t *testing.T, z *zone) edge.ACME { return byWebhook(t, z, "") }, 0},
		{"*.w." + apex, "any.w." + apex, func(t *testing.T, z *zone) edge.ACME { return byWebhook(t, z, "shortlived") }, 6},
		{"u." + apex, "", func(_ *testing.T, z *zone) edge.ACME {
			return edge.ACME{Challenges: []string{edge.ChallengeDNS}, DNS: "rfc2136", DNSOptions: map[string]string{
				"server": z.addr, "key_name": tsigKey, "key": tsig, "resolvers": z.addr, "propagation": "off",
			}}
		}, 0},
	} {
		name := strings.TrimSuffix(c.name, ".")
		ask := strings.TrimSuffix(c.ask, ".")
		if ask == "" {
			ask = name
		}
		t.Run(name, func(t *testing.T) {
			z, p := newZone(t), newPebble(t)
			cfg := config()
			cfg.Names = []string{name}
			cfg.TLS = acme(c.acme(t, z))
			cfg.TLS.ACME.Directory, cfg.TLS.ACME.Root, cfg.TLS.ACME.Email = p.directory, p.root, "admin@box.example.com"
			checkPublic(t, cfg, p, z, ask, c.days)
			if n := z.left(); n != 0 {
				t.Errorf("%d names still have challenge records", n)
			}
		})
	}
}

func byWebhook(t *testing.T, z *zone, profile string) edge.ACME {
	return edge.ACME{Challenges: []string{edge.ChallengeDNS}, Profile: profile, DNS: "webhook", DNSOptions: map[string]string{
		"url": z.webhook(t), "token": "hook", "resolvers": z.addr, "propagation": "off",
	}}
}

// checkPublic starts a box and its authority, reaches the box by the public name over all protocols, and has the
// certificate renewed.
func checkPublic(t *testing.T, cfg edge.BoxConfig, p *pebble, z *zone, host string, days int) {
	t.Helper()
	b, err := edge.ListenBox(t.Context(), cfg, says("public"))
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	cfg.Port, cfg.HTTPPort = b.Port(), b.HTTPPort()
	p.start(cfg.HTTPPort, cfg.Port, z.addr)
	run := serve(t, cfg, says("public"))
	pool := p.roots(t)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(run.Port()))
	if ip := net.ParseIP(host); ip != nil {
		addr = net.JoinHostPort(host, strconv.Itoa(run.Port()))
	}
	until(t, func() bool {
		c, err := tls.Dial("tcp", addr, &tls.Config{ServerName: host, RootCAs: pool})
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	serial := ""
	for _, step := range []string{"obtained", "renewed"} {
		seen := ""
		for _, pr := range protocols {
			res, body := get(t, client(t, pr, addr, pool), "https://"+host+"/")
			leaf := res.TLS.PeerCertificates[0]
			if life := leaf.NotAfter.Sub(leaf.NotBefore).Round(time.Hour); body != "public" || days != 0 && life != time.Duration(days)*24*time.Hour {
				t.Errorf("%s, %s: %q, a life of %v", step, pr, body, life)
			}
			seen = leaf.SerialNumber.String()
		}
		if seen == serial {
			t.Error("the certificate was not renewed")
		}
		if serial = seen; step == "obtained" {
			if err := run.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, body := get(t, run.client(t, "h2"), "https://testbox.local/"); body != "public" {
		t.Errorf("the local name: %q", body)
	}
	if _, err := client(t, "h2", addr, pool).Get("https://other.example.com/"); err == nil {
		t.Error("a name that is not the box's is served")
	}
}

// TestACMEKeepsCertificates starts a box again: what is stored serves without asking the authority.
func TestACMEKeepsCertificates(t *testing.T) {
	z, p := newZone(t), newPebble(t)
	cfg := config()
	cfg.Names = []string{"h.box.example.com"}
	cfg.TLS = acme(edge.ACME{Directory: p.directory, Root: p.root})
	checkPublic(t, cfg, p, z, "h.box.example.com", 0)
	pool := p.roots(t)
	p.stop()
	b := serve(t, cfg, says("again"))
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(b.Port()))
	until(t, func() bool {
		c, err := tls.Dial("tcp", addr, &tls.Config{ServerName: "h.box.example.com", RootCAs: pool})
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	if _, body := get(t, client(t, "h3", addr, pool), "https://h.box.example.com/"); body != "again" {
		t.Errorf("got %q", body)
	}
}

func TestWebhookRefusals(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"refuses": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"breaks":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(h)
			defer s.Close()
			if err := edge.Present(t.Context(), s.URL, fmt.Sprintf("_acme-challenge.%s", apex)); err == nil {
				t.Error("taken for success")
			}
		})
	}
}
