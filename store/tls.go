package store

import "time"

// PrivateCAPrefix begins the names of the local authority's private keys. A backup leaves them out unless it is asked for them.
const PrivateCAPrefix = "ca/private/"

// KeyInfo describes one stored value, or a folder of them.
type KeyInfo struct {
	Key        string
	Modified   time.Time
	Size       int64
	IsTerminal bool // false: other names have this one as their folder
}

// TLS stores certificates and their keys by name, in the shape that certmagic asks for.
type TLS struct{ s *Store }
