package edge_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"onebit/appliance/edge"
)

// rootLike makes a self-signed certificate.
func rootLike(t testing.TB, c x509.Certificate) []byte {
	t.Helper()
	key := newKey(t)
	c.SerialNumber, c.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &c, &c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestParseRoot(t *testing.T) {
	_, lan, _ := net.ParseCIDR("192.168.7.0/24")
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	_, wide, _ := net.ParseCIDR("192.168.0.0/8")
	sound := x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, PermittedDNSDomainsCritical: true,
		PermittedDNSDomains: []string{"local"}, PermittedIPRanges: []*net.IPNet{lan},
	}
	with := func(change func(*x509.Certificate)) []byte {
		c := sound
		change(&c)
		return rootLike(t, c)
	}
	good := rootLike(t, sound)
	box, _ := open(t, config()).Root()
	for _, c := range []struct {
		name string
		pem  []byte
		ok   bool
	}{
		{"a box's", box, true},
		{"limited", good, true},
		{"with blank lines", append([]byte("\n"), append(bytes.Clone(good), '\n', '\n')...), true},
		{"for all names", with(func(c *x509.Certificate) { c.PermittedDNSDomains = nil }), false},
		{"for a public domain", with(func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"local", "com"} }), false},
		{"for all addresses", with(func(c *x509.Certificate) { c.PermittedIPRanges = nil }), false},
		{"for a range with all addresses", with(func(c *x509.Certificate) { c.PermittedIPRanges = []*net.IPNet{lan, all} }), false},
		{"for a range that is too wide", with(func(c *x509.Certificate) { c.PermittedIPRanges = []*net.IPNet{wide} }), false},
		{"limits that clients may ignore", with(func(c *x509.Certificate) { c.PermittedDNSDomainsCritical = false }), false},
		{"a leaf", with(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature }), false},
		{"two", append(bytes.Clone(good), good...), false},
		{"with a text before", append([]byte("hello\n"), good...), false},
		{"a key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{1}}), false},
		{"nonsense", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}}), false},
		{"nothing", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := edge.ParseRoot(c.pem); (err == nil) != c.ok {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func FuzzParseRoot(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"))
	f.Add(rootLike(f, x509.Certificate{IsCA: true, BasicConstraintsValid: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := edge.ParseRoot(b)
		if err == nil && (!c.IsCA || len(c.PermittedDNSDomains) == 0 || len(c.PermittedIPRanges) == 0) {
			t.Error("a root without limits is taken")
		}
	})
}
