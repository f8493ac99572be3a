package edge

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"onebit/store"
)

// Where the authority keeps what it has. A backup leaves out what is private, unless it is asked for it.
const (
	privatePrefix   = store.PrivateCAPrefix
	rootName        = "ca/root.pem"
	rootKeyName     = privatePrefix + "root.key"
	intermediate    = "ca/intermediate.pem"
	intermediateKey = privatePrefix + "intermediate.key"
)

// readCertificate reads a certificate of the authority.
func (a *authority) readCertificate(ctx context.Context, name string) (*x509.Certificate, error) {
	b, err := a.kept.Load(ctx, name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s holds no certificate", name)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return c, nil
}

// readKey reads a private key of the authority.
func (a *authority) readKey(ctx context.Context, name string) (crypto.Signer, error) {
	b, err := a.kept.Load(ctx, name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s holds no private key", name)
	}
	defer clear(block.Bytes)
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	s, ok := k.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key of another kind", name)
	}
	return s, nil
}

func (a *authority) writeKey(ctx context.Context, name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	defer clear(der)
	return a.kept.Store(ctx, name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
