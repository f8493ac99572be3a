package edge

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// ParseRoot reads what a box gives as its root: one certificate in PEM and nothing else. It refuses one that is no
// root, and one that could stand for more than names and addresses of local networks.
func ParseRoot(b []byte) (*x509.Certificate, error) {
	block, rest := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 || !bytes.HasPrefix(bytes.TrimSpace(b), []byte("-----BEGIN")) {
		return nil, errors.New("this is not one certificate in PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading a root certificate: %w", err)
	}
	if !c.BasicConstraintsValid || !c.IsCA || c.KeyUsage&x509.KeyUsageCertSign == 0 || c.CheckSignatureFrom(c) != nil {
		return nil, errors.New("the certificate is no root")
	}
	if !limited(c) {
		return nil, errors.New("the root is not limited to names and addresses of local networks: a box's root is")
	}
	return c, nil
}

// limited reports whether a root can only stand for what is local. A kind of name without a limit is without limit.
func limited(c *x509.Certificate) bool {
	if !c.PermittedDNSDomainsCritical || len(c.PermittedDNSDomains) == 0 || len(c.PermittedIPRanges) == 0 {
		return false
	}
	for _, d := range c.PermittedDNSDomains {
		if !slices.Contains(localDomains(), d) {
			return false
		}
	}
	return !slices.ContainsFunc(c.PermittedIPRanges, func(n *net.IPNet) bool { return !localRange(n) })
}

// localRange reports whether a range of addresses lies within the local ones.
func localRange(n *net.IPNet) bool {
	a, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	return ok && bits == a.BitLen() && slices.ContainsFunc(localPrefixes(), func(p netip.Prefix) bool {
		return p.Addr().BitLen() == bits && ones >= p.Bits() && p.Contains(a)
	})
}
