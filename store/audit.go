package store

import "time"

// AuditEntry is one line of the audit log. Each carries the hash of all lines up to it.
type AuditEntry struct {
	ID     int64 // 1, 2, 3 ...
	Time   time.Time
	Person string // id, or "system"
	Key    string // id of the API key it came with
	Action string // "key.create"
	Target string
	Detail string
	Hash   [32]byte
}
