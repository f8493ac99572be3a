package store

import (
	"encoding/json"
	"time"
)

// ModelRecord is one model that the box knows.
type ModelRecord struct {
	ID          string // its name
	Path        string
	Digest      string // "sha256:..."
	Size        int64  // bytes
	Source      string // where it came from
	Role        string // "chat", "embedding", ...
	Pinned      bool
	Preload     bool
	TTLSeconds  int64 // 0: the box's default
	ContextSize int   // tokens; 0: the model's own
	Options     json.RawMessage
	Added       time.Time
}
