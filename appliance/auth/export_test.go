package auth

import "context"

// What the tests look at from outside.
var (
	Canonical     = Endpoint
	CheckPassword = checkPassword
)

// CheckScope checks a use against the scope of a key.
func CheckScope(endpoints, models, collections []string, u Use) error {
	return scope{endpoints, models, collections}.check(u)
}

// Hasher is the password hasher alone.
type Hasher struct{ h *hasher }

// NewHasher returns one.
func NewHasher(c Cost) (Hasher, error) {
	h, err := newHasher(c)
	return Hasher{h}, err
}

// Hash makes a record.
func (h Hasher) Hash(ctx context.Context, password Secret) (string, error) {
	return h.h.hash(ctx, password)
}

// Verify checks one.
func (h Hasher) Verify(ctx context.Context, record string, password Secret) (fits, stale bool, err error) {
	return h.h.verify(ctx, record, password)
}

// Acquire takes one of the hasher's slots.
func (h Hasher) Acquire(ctx context.Context) (func(), error) { return h.h.acquire(ctx) }

// HashesAtOnce and HashesQueued are the hasher's bounds.
const (
	HashesAtOnce = hashesAtOnce
	HashesQueued = hashesQueued
)

// ParsePHC reads a record and writes it again.
func ParsePHC(record string) (string, error) {
	c, salt, key, err := parsePHC(record)
	if err != nil {
		return "", err
	}
	return encodePHC(c, salt, key), nil
}

// Flip returns the code with one bit changed.
func (c Code) Flip(bit int) Code {
	c.bits[bit/8] ^= 1 << (bit % 8)
	return c
}
