package store

import "time"

// Privacy says what the request log keeps.
type Privacy string

// The levels of privacy.
const (
	PrivacyNone     Privacy = "none"     // no row at all
	PrivacyMetadata Privacy = "metadata" // a row without prompt and answer
	PrivacyFull     Privacy = "full"     // a row with both, until it expires
)

// Key is an API key. The secret is stored as its SHA-256 only.
type Key struct {
	ID                string
	Owner             string // person
	Name              string
	Prefix            string   // the first 8 characters, to recognise it by
	Models            []string // empty: all
	Endpoints         []string // empty: all
	Collections       []string // empty: all
	Admin             bool     // may call the admin API; only an admin may give it
	RequestsPerMinute int      // 0: no limit
	TokensPerDay      int64    // prompt and completion; 0: no limit
	Concurrency       int      // 0: no limit
	Privacy           Privacy
	Created           time.Time
	Expires           time.Time // zero: never
	Revoked           time.Time // zero: it is not
	LastUsed          time.Time // to the minute or so
}

// Active tells whether the key opens anything at a moment.
func (k Key) Active(now time.Time) bool {
	return k.Revoked.IsZero() && (k.Expires.IsZero() || now.Before(k.Expires))
}
