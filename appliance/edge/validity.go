package edge

import (
	"crypto/x509"
	"time"
)

// Validity says from when to when a certificate is good.
type Validity struct {
	Name   string // root, intermediate, files, or the public name that it is for
	Begins time.Time
	Ends   time.Time
}

// Validities lists the certificates that clients come to depend on, as they are now. Those that the local authority
// gives for a handshake are not among them: another is made when one has ended.
func (b *Box) Validities() []Validity {
	of := func(name string, c *x509.Certificate) Validity { return Validity{name, c.NotBefore, c.NotAfter} }
	all := []Validity{of("root", b.authority.root)}
	if s := b.authority.signer.Load(); s != nil {
		all = append(all, of("intermediate", s.cert))
	}
	certs := b.manner.Load().certs
	if own := certs.own.Load(); own != nil {
		all = append(all, of("files", own.Leaf))
	}
	if certs.public == nil {
		return all
	}
	for _, name := range b.names.Load().public {
		var latest *x509.Certificate
		for _, c := range certs.cache.AllMatchingCertificates(name) {
			if c.Leaf != nil && (latest == nil || c.Leaf.NotAfter.After(latest.NotAfter)) {
				latest = c.Leaf
			}
		}
		if latest != nil {
			all = append(all, of(name, latest))
		}
	}
	return all
}
