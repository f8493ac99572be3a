package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"log/slog"
)

// hidden is what is shown in place of a secret.
const hidden = "(secret)"

// Secret is a text that no log, message or JSON shows: a key, a code, a password, the value of a cookie. Only Expose
// gives it away. The zero value is the empty secret.
type Secret struct{ text string }

// NewSecret returns text as a secret.
func NewSecret(text string) Secret { return Secret{text} }

// Expose returns the text itself. Whoever calls it answers for where the text goes.
func (s Secret) Expose() string { return s.text }

// Empty reports whether there is no text.
func (s Secret) Empty() bool { return s.text == "" }

// String hides the secret.
func (s Secret) String() string { return hidden }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return hidden }

// Format hides the secret from every verb, %x and %d among them.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, hidden) }

// MarshalText hides the secret from encoders of text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON hides the secret.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// LogValue hides the secret from logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// UnmarshalJSON takes a JSON string: secrets come in as JSON, they never go out so.
func (s *Secret) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("reading a secret: a string is needed") // the decoder's own words could quote what it read
	}
	s.text = text
	return nil
}

// hash returns the form in which a random secret is stored. A password has its own: see Password.
func (s Secret) hash() [sha256.Size]byte { return sha256.Sum256([]byte(s.text)) }

// alphabet writes random bytes in lower-case letters and digits.
var alphabet = base32.StdEncoding.WithPadding(base32.NoPadding)

// random returns 256 random bits as 52 characters after a prefix.
func random(prefix string) Secret {
	var b [32]byte
	rand.Read(b[:]) // never fails: the program ends where there is no randomness
	return Secret{prefix + lower(alphabet.EncodeToString(b[:]))}
}

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
