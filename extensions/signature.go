package extensions

import (
	"fmt"
	"strings"

	"aead.dev/minisign"

	"onebit/extensions/abi"
)

// The policies about signatures.
const (
	SignaturesOff      = "off"      // nobody needs to sign; a signature that is there must be right
	SignaturesRequired = "required" // one of the trusted keys has signed
	SignaturesPinned   = "pinned"   // the key that is trusted for this name has
)

// TrustedComment is what a signature's trusted comment must say: what is signed is the file and its name.
func TrustedComment(m abi.Manifest) string {
	return fmt.Sprintf("%s %s %s", m.Name, m.Version, abi.HostModule)
}

// CheckPolicy says what is wrong with an operator's word about signatures.
func CheckPolicy(p Policy) error {
	switch p.Signatures {
	case "", SignaturesOff, SignaturesRequired, SignaturesPinned:
	default:
		return fmt.Errorf("%q is not off, required or pinned", p.Signatures)
	}
	for _, t := range p.Trusted {
		if _, _, err := trusted(t); err != nil {
			return err
		}
	}
	return nil
}

// trusted reads KEY or NAME=KEY. A key ends in the base64 of 42 bytes, which needs no padding, so = only parts.
func trusted(text string) (name string, key minisign.PublicKey, err error) {
	at := strings.LastIndexByte(text, '=')
	if at >= 0 {
		name, text = text[:at], text[at+1:]
	}
	if err := key.UnmarshalText([]byte(text)); err != nil {
		return "", key, fmt.Errorf("%q is no minisign public key", text)
	}
	return name, key, nil
}

// verify checks a signature under a policy and returns the id of the key that made it; empty for none.
func verify(p Policy, m abi.Manifest, module []byte, signature string) (signer string, err error) {
	if signature == "" {
		if p.Signatures == SignaturesRequired || p.Signatures == SignaturesPinned {
			return "", refused("unsigned", "the module is not signed, and this box takes signed ones alone: sign it with minisign and send the signature along")
		}
		return "", nil
	}
	var s minisign.Signature
	if err := s.UnmarshalText([]byte(signature)); err != nil {
		return "", refused("signature_unreadable", "the signature is not one of minisign: %v", err)
	}
	known := false
	for _, t := range p.Trusted {
		name, key, err := trusted(t)
		if err != nil || key.ID() != s.KeyID || p.Signatures == SignaturesPinned && name != m.Name {
			continue
		}
		known = true
		if !minisign.Verify(key, module, []byte(signature)) {
			return "", refused("signature_wrong", "the signature does not belong to these bytes")
		}
	}
	switch {
	case !known && p.Signatures == SignaturesPinned:
		return "", refused("signer_unknown", "the key %X is not the one that is trusted for the name %q", s.KeyID, m.Name)
	case !known && p.Signatures == SignaturesRequired:
		return "", refused("signer_unknown", "nobody here trusts the key %X", s.KeyID)
	case !known:
		return "", nil // nothing can be said about it, and nobody asks
	case s.TrustedComment != TrustedComment(m):
		return "", refused("signature_comment", "the signature's trusted comment is %q, it must be %q: it is for another name or version", s.TrustedComment, TrustedComment(m))
	}
	return fmt.Sprintf("%X", s.KeyID), nil
}
