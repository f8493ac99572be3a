package store

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"time"
)

// Errors that callers branch on.
var (
	ErrNotFound  = errors.New("not found")
	ErrConflict  = errors.New("conflicts with what is there")
	ErrFull      = errors.New("the disk is full")
	ErrForbidden = errors.New("not allowed")
	ErrInvalid   = errors.New("not a valid value")
	ErrTooNew    = errors.New("the database was written by a newer version")
	ErrCorrupt   = errors.New("the data is damaged")
	ErrLocked    = errors.New("another process has the state directory open")
	ErrClosed    = errors.New("the store is closed")
	ErrPassword  = errors.New("the passphrase or key does not open this backup")
)

// Actor is who asks. The zero value is nobody: it sees nothing.
type Actor struct {
	Person string // id
	Admin  bool
	Key    string // id of the API key, empty for a login
}

const systemPerson = "system"

// System is the box itself. It may do what an admin may.
func System() Actor { return Actor{Person: systemPerson, Admin: true} }

// id order is time order, so the digits must ascend
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewID returns a fresh id: 26 lower-case letters and digits, 48 bits of milliseconds and 80 random bits. Later ids sort
// after earlier ones, to the millisecond.
func NewID() string { return newID(time.Now()) }

func newID(now time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16)
	rand.Read(b[6:])
	return idEncoding.EncodeToString(b[:])
}
