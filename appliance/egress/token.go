package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// Token is a secret that opens somebody else's server. However it is printed, encoded or logged, it shows nothing of
// itself.
type Token struct{ text string }

// NewToken returns a token of that text, without the blanks around it.
func NewToken(text string) Token { return Token{strings.TrimSpace(text)} }

// maxToken bounds a token's file, in bytes.
const maxToken = 16 << 10

// ReadToken reads a token from a file.
func ReadToken(path string) (Token, error) {
	f, err := os.Open(path)
	if err != nil {
		return Token{}, fmt.Errorf("reading a token: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return Token{}, fmt.Errorf("reading a token: %w", err)
	}
	t := NewToken(string(b))
	if t.Empty() || len(b) > maxToken || strings.ContainsFunc(t.text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Token{}, fmt.Errorf("reading a token: %s holds none: one line of letters, digits and signs", path)
	}
	return t, nil
}

// Empty reports whether there is no token.
func (t Token) Empty() bool { return t.text == "" }

const redacted = "[redacted]"

// String returns no part of the token.
func (t Token) String() string { return redacted }

// Format writes no part of the token, whatever the verb.
func (t Token) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, redacted) }

// LogValue returns no part of the token.
func (t Token) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON returns no part of the token.
func (t Token) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// MarshalText returns no part of the token.
func (t Token) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText refuses: a token comes from a file or the environment alone.
func (t *Token) UnmarshalText([]byte) error {
	return errors.New("a token is not read from here; name a file that holds it")
}
