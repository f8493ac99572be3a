package store

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"time"

	"onebit/store/archive"
	"onebit/store/sqlite"
)

// Errors that callers branch on.
var (
	ErrNotFound  = sqlite.ErrNotFound
	ErrConflict  = sqlite.ErrConflict
	ErrFull      = sqlite.ErrFull
	ErrForbidden = errors.New("not allowed")
	ErrInvalid   = archive.ErrInvalid
	ErrTooNew    = archive.ErrTooNew
	ErrCorrupt   = archive.ErrCorrupt
	ErrPassword  = archive.ErrPassword // of a backup
	ErrLocked    = errors.New("another process has the state directory open")
	ErrClosed    = errors.New("the store is closed")
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

// who is the person whose records an actor sees; nobody's records are nobody's.
func (a Actor) who() string {
	if a.Person == "" || a.Person == systemPerson && !a.Admin {
		return "\x00"
	}
	return a.Person
}

// about returns nil where the actor may act on a person's records.
func (a Actor) about(person string) error {
	if a.Admin || a.who() == person {
		return nil
	}
	return ErrNotFound
}

// admin returns nil for admins, and for others what they may know: of their own records that it is not allowed, of
// somebody else's nothing.
func (a Actor) admin(person string) error {
	if a.Admin {
		return nil
	}
	if a.who() == person {
		return ErrForbidden
	}
	return ErrNotFound
}

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
