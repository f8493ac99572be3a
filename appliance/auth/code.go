package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Code is 128 random bits that a person reads off a screen or a sheet of paper: the claim code, an invite, the recovery
// key. It is written as six groups of five characters: 26 hold the bits, and the rest is a checksum, by which a slip of the
// pen is told from a wrong code. Formatting a Code shows nothing of it; Text does.
type Code struct{ bits [16]byte }

// symbols are Crockford's: no I, L, O and U, which people mistake for others.
const symbols = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

const codeGroups, codeGroup = 6, 5

// ErrCode says that a text is not a code at all, whichever the right one is.
var ErrCode = invalid("malformed_code", "this is not a code: it has six groups of five letters and digits, and a mistyped one is recognised")

// NewCode returns a new random code.
func NewCode() Code {
	var c Code
	rand.Read(c.bits[:])
	return c
}

// Text returns the code as it is shown: XXXXX-XXXXX-XXXXX-XXXXX-XXXXX-XXXXX.
func (c Code) Text() Secret {
	// 150 bits: the code's 128, then 22 of the checksum
	sum := checksum(c.bits)
	bits := append(c.bits[:], sum[0], sum[1], sum[2])
	out := make([]byte, 0, codeGroups*(codeGroup+1))
	for i := range codeGroups * codeGroup {
		if i > 0 && i%codeGroup == 0 {
			out = append(out, '-')
		}
		out = append(out, symbols[five(bits, i)])
	}
	return Secret{string(out)}
}

// five returns the i-th group of five bits.
func five(bits []byte, i int) byte {
	var v byte
	for b := 5 * i; b < 5*i+5; b++ {
		v <<= 1
		v |= bits[b/8] >> (7 - b%8) & 1
	}
	return v
}

// checksum returns 22 bits in three bytes.
func checksum(bits [16]byte) [3]byte {
	sum := sha256.Sum256(append([]byte("1bit code\x00"), bits[:]...))
	return [3]byte{sum[0], sum[1], sum[2] &^ 3}
}

// ParseCode reads a code as people write it: in any case, with spaces or hyphens anywhere, I or L for 1, and O for 0. Its
// only error is ErrCode.
func ParseCode(text string) (Code, error) {
	if len(text) > longest {
		return Code{}, ErrCode
	}
	bits, n := make([]byte, 19), 0
	for _, r := range strings.ToUpper(text) {
		switch r {
		case ' ', '-', '\t', '\n', '\r', '\u00a0', '\u2010', '\u2011', '\u2013':
			continue
		case 'I', 'L':
			r = '1'
		case 'O':
			r = '0'
		}
		v := strings.IndexRune(symbols, r)
		if v < 0 || n == codeGroups*codeGroup {
			return Code{}, ErrCode
		}
		for k := range 5 {
			b := 5*n + k
			bits[b/8] |= byte(v) >> (4 - k) & 1 << (7 - b%8)
		}
		n++
	}
	c := Code{[16]byte(bits)}
	if n != codeGroups*codeGroup || [3]byte(bits[16:]) != checksum(c.bits) {
		return Code{}, ErrCode
	}
	return c, nil
}

// Hash returns the form in which a code is stored.
func (c Code) Hash() [sha256.Size]byte {
	return sha256.Sum256(append([]byte("1bit code hash\x00"), c.bits[:]...))
}

// String hides the code.
func (c Code) String() string { return hidden }

// GoString hides the code from %#v.
func (c Code) GoString() string { return hidden }

// Format hides the code from every verb.
func (c Code) Format(f fmt.State, _ rune) { fmt.Fprint(f, hidden) }

// MarshalText hides the code from encoders.
func (c Code) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Proof shows that its maker holds the code, without giving the code away, and only to the box whose root certificate has
// this fingerprint: whoever sits between the two and shows a root of his own learns nothing that the real box takes.
// nonce may be empty; with it the proof cannot be from an earlier exchange.
func (c Code) Proof(side Side, root Fingerprint, nonce []byte) []byte {
	mac := hmac.New(sha256.New, c.bits[:])
	mac.Write([]byte("1bit claim\x00"))
	mac.Write([]byte{byte(side)})
	mac.Write(root[:])
	mac.Write(nonce)
	return mac.Sum(nil)
}

// Side tells whose proof it is, so that neither can be sent back as the other's.
type Side byte

// The sides.
const (
	ClientSide Side = 'c'
	BoxSide    Side = 'b'
)

// Fingerprint is the SHA-256 of a certificate.
type Fingerprint [sha256.Size]byte

// String returns the fingerprint in hexadecimal pairs, as certificate tools show it.
func (f Fingerprint) String() string {
	pairs := make([]string, len(f))
	for i, b := range f {
		pairs[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(pairs, ":")
}

// ParseFingerprint reads 64 hexadecimal digits, with or without colons or spaces between them.
func ParseFingerprint(text string) (Fingerprint, error) {
	var f Fingerprint
	digits := strings.NewReplacer(":", "", " ", "", "-", "").Replace(strings.TrimSpace(text))
	if len(digits) != 2*len(f) {
		return f, fmt.Errorf("a fingerprint has %d hexadecimal digits, this has %d characters", 2*len(f), len(digits))
	}
	if _, err := hex.Decode(f[:], []byte(digits)); err != nil {
		return Fingerprint{}, fmt.Errorf("a fingerprint has hexadecimal digits only")
	}
	return f, nil
}
