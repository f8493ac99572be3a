package edge

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/netip"
	"time"

	"github.com/brutella/dnssd"
	"github.com/libdns/libdns"
	"github.com/miekg/dns"
)

// Maintain makes a box do its maintenance every so often.
func Maintain(cfg *BoxConfig, every time.Duration) { cfg.maintenance = every }

// Sign makes a certificate under the box's intermediate, whatever is in it. It returns the chain.
func (b *Box) Sign(t *x509.Certificate, key any) [][]byte {
	s := b.authority.signer.Load()
	t.SerialNumber = serial()
	der, err := x509.CreateCertificate(nil, t, s.cert, key, s.key)
	if err != nil {
		panic(err)
	}
	return [][]byte{der, s.cert.Raw}
}

// Intermediate returns the certificate that signs leaves now.
func (b *Box) Intermediate() *x509.Certificate { return b.authority.signer.Load().cert }

// RootCertificate returns the root.
func (b *Box) RootCertificate() *x509.Certificate { return b.authority.root }

// Issue asks the local authority for a certificate.
func (b *Box) Issue(ctx context.Context, csr *x509.CertificateRequest) ([]byte, error) {
	c, err := b.authority.Issue(ctx, csr)
	if err != nil {
		return nil, err
	}
	return c.Certificate, nil
}

// ClientOf reads X-Forwarded-For.
func ClientOf(values []string, trusted []netip.Prefix) netip.Addr { return clientOf(values, trusted) }

// Subtypes answers mDNS questions for the kinds of a service.
type Subtypes struct{ s *subtypes }

// NewSubtypes returns what answers for kinds of a service.
func NewSubtypes(service dnssd.Service, kinds ...string) Subtypes {
	return Subtypes{newSubtypes(service, kinds)}
}

// Answer answers a message.
func (s Subtypes) Answer(message []byte, port int) (*dns.Msg, bool) { return s.s.answer(message, port) }

// CanonicalOrigin returns an origin in the form in which origins are compared.
func CanonicalOrigin(origin string) string { return canonicalOrigin(origin) }

// WordList returns the words of fingerprints.
func WordList() string { return wordList }

// Present has a webhook set a record.
func Present(ctx context.Context, url, name string) error {
	h := &webhook{url: url, client: http.DefaultClient}
	_, err := h.AppendRecords(ctx, name, []libdns.Record{libdns.TXT{Name: "@", Text: "x"}})
	return err
}

// SetNames changes what a box is called, and nothing else.
func (b *Box) SetNames(name string, more []string) error {
	cfg := b.manner.Load().cfg
	cfg.Name, cfg.Names = name, more
	return b.Take(cfg)
}

// Take gives a box another configuration.
func (b *Box) Take(cfg BoxConfig) error {
	change, err := b.Prepare(context.Background(), cfg)
	if err != nil {
		return err
	}
	return change.Use(context.Background())
}

// Manner returns the configuration of the moment.
func (b *Box) Manner() BoxConfig { return b.manner.Load().cfg }
