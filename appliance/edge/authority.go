package edge

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
)

// How long certificates of the local authority live. The intermediate is renewed while a leaf can still outlive none
// of it; a leaf is renewed by certmagic when a third of its life is left.
const (
	rootYears         = 10
	intermediateLife  = 90 * 24 * time.Hour
	intermediateSpare = 30 * 24 * time.Hour
	leafLife          = 7 * 24 * time.Hour
	backdate          = 5 * time.Minute // clients' clocks differ
)

// built is a time that is certainly past: a clock before it is wrong, as on a board without a battery.
func built() time.Time { return time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC) }

// authority is the box's own certificate authority, for names and addresses that no public one can certify. The root's
// key signs intermediates only, and is read for that and forgotten. Its constraints keep a stolen key from speaking
// for any name of the public internet.
//
// What it has, it keeps in the storage below ca/.
type authority struct {
	kept   TLSStorage
	log    *slog.Logger
	now    func() time.Time
	allow  func(name string) error
	root   *x509.Certificate
	signer atomic.Pointer[signer]
}

// signer is an intermediate with its key.
type signer struct {
	cert *x509.Certificate
	key  crypto.Signer
}

var (
	_ certmagic.Issuer     = (*authority)(nil)
	_ certmagic.PreChecker = (*authority)(nil)
)

// openAuthority takes the authority up that is in the box's storage, or makes one. A root whose private keys are gone, as
// after a restore without them, is given up: nothing could ever be signed under it.
func openAuthority(ctx context.Context, cfg BoxConfig, box string, allow func(name string) error) (*authority, error) {
	a := &authority{kept: cfg.Storage, log: cfg.Log, allow: allow}
	a.now = func() time.Time {
		if t := cfg.Clock(); t.After(built()) {
			return t
		}
		return built()
	}
	root, err := a.readCertificate(ctx, rootName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = a.found(ctx, box)
	case err == nil && !a.kept.Exists(ctx, rootKeyName) && !a.kept.Exists(ctx, intermediateKey):
		a.log.Warn("the private keys of the local authority are gone: it is made anew, and clients must trust it again")
		err = a.found(ctx, box)
	case err == nil:
		a.root = root
		err = a.resume(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the local authority: %w", err)
	}
	return a, nil
}

// found makes a root and its first intermediate.
func (a *authority) found(ctx context.Context, box string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := a.now()
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: box + " local root " + now.UTC().Format(time.DateOnly)},
		NotBefore: now.Add(-backdate), NotAfter: now.AddDate(rootYears, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: 1,
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         localDomains(),
	}
	for _, p := range localPrefixes() {
		bits := p.Addr().BitLen()
		t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), bits)})
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return err
	}
	if a.root, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	if err := a.sign(ctx, key); err != nil {
		return err
	}
	if err := a.writeKey(ctx, rootKeyName, key); err != nil {
		return err
	}
	return a.kept.Store(ctx, rootName, certificatePEM(der)) // last: with it the authority exists
}

// resume takes the intermediate up, and makes another when too little of its life is left. Without the root's key an
// intermediate serves as long as it lives.
func (a *authority) resume(ctx context.Context) error {
	s, err := a.readSigner(ctx)
	if err == nil {
		a.signer.Store(s)
		if !a.due() {
			return nil
		}
	}
	err = a.renew(ctx)
	if s != nil && errors.Is(err, fs.ErrNotExist) && a.now().Before(s.cert.NotAfter) {
		return nil
	}
	return err
}

// due reports whether the intermediate needs a successor.
func (a *authority) due() bool {
	s := a.signer.Load()
	now := a.now()
	return s == nil || now.Before(s.cert.NotBefore) || s.cert.NotAfter.Sub(now) < intermediateSpare
}

// renew makes an intermediate with the root's key, which it reads and forgets.
func (a *authority) renew(ctx context.Context) error {
	key, err := a.readKey(ctx, rootKeyName)
	if err != nil {
		return err
	}
	if err := a.root.CheckSignatureFrom(a.root); err != nil || !samePublic(a.root.PublicKey, key.Public()) {
		return errors.New("the key of the root does not belong to it")
	}
	return a.sign(ctx, key)
}

// sign makes an intermediate and stores it.
func (a *authority) sign(ctx context.Context, rootKey crypto.Signer) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := a.now()
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: a.root.Subject.CommonName + ", intermediate"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(intermediateLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.root, key.Public(), rootKey)
	if err != nil {
		return err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	if err := a.writeKey(ctx, intermediateKey, key); err != nil {
		return err
	}
	if err := a.kept.Store(ctx, intermediate, certificatePEM(der)); err != nil {
		return err
	}
	a.signer.Store(&signer{cert: cert, key: key})
	return nil
}

// readSigner reads the intermediate and checks that it is the root's and that its key belongs to it.
func (a *authority) readSigner(ctx context.Context) (*signer, error) {
	cert, err := a.readCertificate(ctx, intermediate)
	if err != nil {
		return nil, err
	}
	key, err := a.readKey(ctx, intermediateKey)
	if err != nil {
		return nil, err
	}
	if err := cert.CheckSignatureFrom(a.root); err != nil {
		return nil, err
	}
	if !samePublic(cert.PublicKey, key.Public()) {
		return nil, errors.New("the key of the intermediate does not belong to it")
	}
	return &signer{cert: cert, key: key}, nil
}

func samePublic(a, b crypto.PublicKey) bool {
	k, ok := a.(*ecdsa.PublicKey)
	return ok && k.Equal(b)
}

// fingerprint returns the SHA-256 of the root.
func (a *authority) fingerprint() [sha256.Size]byte { return sha256.Sum256(a.root.Raw) }

// IssuerKey names the authority in the storage. Another root has another name, so that chains are never mixed.
func (a *authority) IssuerKey() string {
	f := a.fingerprint()
	return "local-" + hex.EncodeToString(f[:8])
}

// PreCheck refuses names that the authority may not speak for, and those that are not the box's.
func (a *authority) PreCheck(_ context.Context, list []string, _ bool) error {
	for _, n := range list {
		if !private(n) {
			return certmagic.ErrNoRetry{Err: fmt.Errorf("the local authority does not speak for %q", n)}
		}
		if err := a.allow(n); err != nil {
			return certmagic.ErrNoRetry{Err: err} // the box has been renamed meanwhile: trying on would hold up who asks next
		}
	}
	return nil
}

// Issue signs a leaf for the names of the request, and for nothing else in it.
func (a *authority) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if err := csr.CheckSignature(); err != nil {
		return nil, certmagic.ErrNoRetry{Err: fmt.Errorf("checking a certificate request: %w", err)}
	}
	if len(csr.DNSNames)+len(csr.IPAddresses) == 0 || len(csr.URIs)+len(csr.EmailAddresses) > 0 {
		return nil, certmagic.ErrNoRetry{Err: errors.New("a certificate request must have names or addresses, and nothing else")}
	}
	list := append([]string(nil), csr.DNSNames...)
	for _, ip := range csr.IPAddresses {
		addr, _ := netip.AddrFromSlice(ip)
		list = append(list, addr.Unmap().String())
	}
	if err := a.PreCheck(ctx, list, false); err != nil {
		return nil, certmagic.ErrNoRetry{Err: err}
	}
	s, now := a.signer.Load(), a.now()
	end := now.Add(leafLife)
	if end.After(s.cert.NotAfter) {
		end = s.cert.NotAfter
	}
	t := &x509.Certificate{
		SerialNumber: serial(), NotBefore: now.Add(-backdate), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, s.cert, csr.PublicKey, s.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: append(certificatePEM(der), certificatePEM(s.cert.Raw)...)}, nil
}

// rootPEM returns the root for clients.
func (a *authority) rootPEM() []byte { return certificatePEM(a.root.Raw) }

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// serial returns a random serial number of 127 bits.
func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}
