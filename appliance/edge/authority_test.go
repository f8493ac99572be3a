package edge_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"onebit/appliance/edge"
)

const rootKey = "ca/private/root.key"

// open opens a box that does not serve.
func open(t *testing.T, cfg edge.BoxConfig) *edge.Box {
	t.Helper()
	b, err := edge.ListenBox(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestRoot(t *testing.T) {
	b := open(t, config())
	root := b.RootCertificate()
	if life := root.NotAfter.Sub(root.NotBefore); life < 9*365*24*time.Hour || life > 11*365*24*time.Hour {
		t.Errorf("the root lives %v", life)
	}
	if !root.IsCA || root.MaxPathLen != 1 || !root.PermittedDNSDomainsCritical || len(root.PermittedDNSDomains) == 0 || len(root.PermittedIPRanges) == 0 {
		t.Errorf("the root is not limited: %+v", root)
	}
	inter := b.Intermediate()
	if life := inter.NotAfter.Sub(inter.NotBefore); life < 89*24*time.Hour || life > 91*24*time.Hour {
		t.Errorf("the intermediate lives %v", life)
	}
	if !inter.IsCA || !inter.MaxPathLenZero {
		t.Error("the intermediate may make further authorities")
	}
}

// TestForgedLeafIsRefused is what a thief of the box's key could do.
func TestForgedLeafIsRefused(t *testing.T) {
	b := open(t, config())
	key := newKey(t)
	for _, c := range []struct {
		name  string
		names []string
		ips   []net.IP
		host  string
		ok    bool
	}{
		{"local name", []string{"anything.local"}, nil, "anything.local", true},
		{"private address", nil, []net.IP{net.IPv4(192, 168, 1, 5)}, "192.168.1.5", true},
		{"bank", []string{"example.com"}, nil, "example.com", false},
		{"bank beside a local name", []string{"x.local", "example.com"}, nil, "x.local", false},
		{"ends like a local name", []string{"notlocal"}, nil, "notlocal", false},
		{"public address", nil, []net.IP{net.IPv4(192, 0, 2, 1)}, "192.0.2.1", false},
		{"public IPv6 address", nil, []net.IP{net.ParseIP("2001:db8::1")}, "2001:db8::1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			chain := b.Sign(&x509.Certificate{
				NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
				DNSNames: c.names, IPAddresses: c.ips, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			}, key.Public())
			leaf, err := x509.ParseCertificate(chain[0])
			if err != nil {
				t.Fatal(err)
			}
			roots, inter := x509.NewCertPool(), x509.NewCertPool()
			roots.AddCert(b.RootCertificate())
			inter.AddCert(b.Intermediate())
			if _, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, DNSName: c.host}); (err == nil) != c.ok {
				t.Errorf("verifying says %v", err)
			}
		})
	}
}

func TestIssueRefuses(t *testing.T) {
	cfg := config()
	cfg.Names = []string{"box.example.com", "10.20.30.40"}
	b := open(t, cfg)
	page, _ := url.Parse("https://testbox.local")
	for _, c := range []struct {
		name string
		csr  x509.CertificateRequest
		ok   bool
	}{
		{"own name", x509.CertificateRequest{DNSNames: []string{"testbox.local"}}, true},
		{"own address", x509.CertificateRequest{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, true},
		{"address given", x509.CertificateRequest{IPAddresses: []net.IP{net.IPv4(10, 20, 30, 40)}}, true},
		{"foreign local name", x509.CertificateRequest{DNSNames: []string{"printer.local"}}, false},
		{"own and foreign", x509.CertificateRequest{DNSNames: []string{"testbox.local", "printer.local"}}, false},
		{"own public name", x509.CertificateRequest{DNSNames: []string{"box.example.com"}}, false},
		{"foreign address", x509.CertificateRequest{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 99)}}, false},
		{"nothing", x509.CertificateRequest{}, false},
		{"a page", x509.CertificateRequest{DNSNames: []string{"testbox.local"}, URIs: []*url.URL{page}}, false},
		{"a person", x509.CertificateRequest{DNSNames: []string{"testbox.local"}, EmailAddresses: []string{"a@testbox.local"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			der, err := x509.CreateCertificateRequest(rand.Reader, &c.csr, newKey(t))
			if err != nil {
				t.Fatal(err)
			}
			csr, err := x509.ParseCertificateRequest(der)
			if err != nil {
				t.Fatal(err)
			}
			chain, err := b.Issue(t.Context(), csr)
			if (err == nil) != c.ok {
				t.Fatalf("Issue says %v", err)
			}
			if block, rest := pem.Decode(chain); c.ok && (block == nil || len(rest) == 0) {
				t.Error("the chain has no intermediate")
			}
			csr.Signature[len(csr.Signature)-1] ^= 1
			if _, err := b.Issue(t.Context(), csr); err == nil {
				t.Error("a request is served that nobody signed")
			}
		})
	}
}

// TestRootKeyRests opens a box again and again: the root's key is read only when an intermediate is needed.
func TestRootKeyRests(t *testing.T) {
	store := newMemory()
	now := time.Now()
	again := func() *edge.Box {
		cfg := config()
		cfg.Storage, cfg.Clock = store, func() time.Time { return now }
		b, err := edge.ListenBox(t.Context(), cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
		return b
	}
	first := again()
	for _, days := range []int{0, 30, 59} {
		now = first.Intermediate().NotBefore.AddDate(0, 0, days)
		b := again()
		if !b.RootCertificate().Equal(first.RootCertificate()) || !b.Intermediate().Equal(first.Intermediate()) {
			t.Errorf("after %d days the authority is another", days)
		}
	}
	if n := store.read(rootKey); n != 0 {
		t.Errorf("the root's key was read %d times", n)
	}
	now = first.Intermediate().NotBefore.AddDate(0, 0, 61)
	b := again()
	if !b.RootCertificate().Equal(first.RootCertificate()) || b.Intermediate().Equal(first.Intermediate()) {
		t.Error("the intermediate was not renewed under the same root")
	}
	if n := store.read(rootKey); n != 1 {
		t.Errorf("the root's key was read %d times for one renewal", n)
	}
}

// TestIntermediateIsRenewedWhileServing lets 61 days pass under a box that serves.
func TestIntermediateIsRenewedWhileServing(t *testing.T) {
	var ahead atomic.Int64
	cfg := config()
	cfg.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	edge.Maintain(&cfg, time.Millisecond)
	b := serve(t, cfg, says("here"))
	get(t, b.client(t, "h2"), "https://testbox.local/")
	old := b.Intermediate()
	ahead.Store(int64(61 * 24 * time.Hour))
	until(t, func() bool { return !b.Intermediate().Equal(old) })
	if _, body := get(t, b.client(t, "h2"), "https://testbox.local/"); body != "here" {
		t.Errorf("got %q", body)
	}
}

func TestAuthorityAfterRestore(t *testing.T) {
	for _, c := range []struct {
		name  string
		lose  []string
		after time.Duration
		same  bool // the root stays
		ok    bool
	}{
		{"all there", nil, 0, true, true},
		{"without the root's key", []string{rootKey}, 0, true, true},
		{"without the root's key, later", []string{rootKey}, 70 * 24 * time.Hour, true, true},
		{"without the root's key, too late", []string{rootKey}, 91 * 24 * time.Hour, true, false},
		{"without the intermediate", []string{"ca/intermediate.pem", "ca/private/intermediate.key"}, 0, true, true},
		{"without private keys", []string{"ca/private"}, 0, false, true},
		{"without anything", []string{"ca"}, 0, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := newMemory()
			cfg := config()
			cfg.Storage = store
			first := open(t, cfg)
			for _, k := range c.lose {
				store.Delete(t.Context(), k)
			}
			cfg.Clock = func() time.Time { return time.Now().Add(c.after) }
			b, err := edge.ListenBox(t.Context(), cfg, nil)
			if (err == nil) != c.ok {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			defer b.Close()
			if b.RootCertificate().Equal(first.RootCertificate()) != c.same {
				t.Error("the root is not what it should be")
			}
			if err := b.Intermediate().CheckSignatureFrom(b.RootCertificate()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAuthorityRefusesDamage(t *testing.T) {
	other := newMemory()
	cfg := config()
	cfg.Storage = other
	open(t, cfg)
	for name, spoil := range map[string]func(m *memory){
		"root":               func(m *memory) { m.Store(t.Context(), "ca/root.pem", []byte("x")) },
		"another root's key": func(m *memory) { m.values[rootKey] = other.values[rootKey]; m.values["ca/intermediate.pem"] = nil },
		"key of another kind": func(m *memory) {
			m.values[rootKey] = []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
			delete(m.values, "ca/intermediate.pem")
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newMemory()
			cfg := config()
			cfg.Storage = store
			open(t, cfg)
			spoil(store)
			if b, err := edge.ListenBox(t.Context(), cfg, nil); err == nil {
				b.Close()
				t.Error("taken")
			} else if !strings.HasPrefix(err.Error(), "opening the local authority: ") {
				t.Error(err)
			}
		})
	}
}

// TestAuthorityWithoutClock founds an authority on a board whose clock starts in 1970: it must be valid once the clock
// is right.
func TestAuthorityWithoutClock(t *testing.T) {
	cfg := config()
	cfg.Clock = func() time.Time { return time.Unix(0, 0) }
	b := serve(t, cfg, says("here"))
	if now := time.Now(); now.Before(b.RootCertificate().NotBefore) || now.After(b.RootCertificate().NotAfter) {
		t.Errorf("the root is valid from %v to %v", b.RootCertificate().NotBefore, b.RootCertificate().NotAfter)
	}
}

// TestOwnFiles shows the operator's certificate for its names, and the local authority's for the rest, and reads the
// files again when they change.
func TestOwnFiles(t *testing.T) {
	company := open(t, config())
	dir := t.TempDir()
	write := func() {
		key := newKey(t)
		chain := company.Sign(&x509.Certificate{
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			DNSNames: []string{"box.lan"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}, key.Public())
		writePair(t, dir, chain, key)
	}
	write()
	cfg := config()
	cfg.Names = []string{"box.lan"}
	cfg.TLS = edge.TLSConfig{Mode: edge.ModeFiles, Certificate: dir + "/cert.pem", Key: dir + "/key.pem"}
	edge.Maintain(&cfg, time.Millisecond)
	b := serve(t, cfg, says("here"))
	pool := x509.NewCertPool()
	pool.AddCert(company.RootCertificate())
	pool.AddCert(b.RootCertificate())
	shown := func(p, host string) *x509.Certificate {
		res, body := get(t, client(t, p, strings.TrimPrefix(addressOf(b), "https://"), pool), "https://"+host+"/")
		if body != "here" {
			t.Errorf("%s %s: %q", p, host, body)
		}
		return res.TLS.PeerCertificates[len(res.TLS.PeerCertificates)-1]
	}
	for _, p := range protocols {
		if !shown(p, "box.lan").Equal(company.Intermediate()) {
			t.Errorf("%s: box.lan has not the operator's certificate", p)
		}
		if !shown(p, "testbox.local").Equal(b.Intermediate()) {
			t.Errorf("%s: testbox.local has not the box's certificate", p)
		}
	}
	old := leafOf(t, b, "box.lan", pool)
	write()
	until(t, func() bool { return !leafOf(t, b, "box.lan", pool).Equal(old) })
}

func addressOf(b *running) string {
	return net.JoinHostPort("127.0.0.1", b.URL()[strings.LastIndexByte(b.URL(), ':')+1:])
}

// leafOf returns the certificate that a box shows for a name.
func leafOf(t *testing.T, b *running, name string, pool *x509.CertPool) *x509.Certificate {
	t.Helper()
	c, err := tls.Dial("tcp", addressOf(b), &tls.Config{ServerName: name, RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}
