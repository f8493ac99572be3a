package store

import (
	"encoding/json"
	"time"
)

// Passkey is one WebAuthn credential. The store does not look into Credential.
type Passkey struct {
	ID         string // of the credential, base64url
	Person     string
	Name       string
	Credential json.RawMessage
	Created    time.Time
	Used       time.Time
}

// Login is one session of the web pages; the cookie's secret is stored as its SHA-256 only.
type Login struct {
	ID      string
	Person  string
	Created time.Time
	Expires time.Time
	Agent   string // what the client said it was
	Address string // where it came from
}

// Invite lets one newcomer in; the code is stored as its SHA-256 only.
type Invite struct {
	ID      string
	Role    Role
	Name    string // suggested name; empty: the newcomer chooses
	By      string // person
	Created time.Time
	Expires time.Time
	Until   time.Time // when the new person expires; zero: never
}

// Newcomer is somebody who makes an account: by an invite, or the first admin by the claim.
type Newcomer struct {
	Name     string
	Password string    // PHC string; empty: none
	Passkey  *Passkey  // nil: none
	Recovery *[32]byte // SHA-256 of the recovery key; nil: none
}

// ClaimRequest is everything that claiming the box sets at once.
type ClaimRequest struct {
	Admin    Newcomer
	Settings map[string]json.RawMessage
}
