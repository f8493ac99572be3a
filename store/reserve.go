package store

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// reserveName is a file that only takes room. Even a database that is only read needs some to be opened, for the two
// files beside it: without a reserve a box whose disk is full would not come up again after a restart, and nobody could
// make room with its help.
const (
	reserveName = "1bit.reserve"
	reserveSize = 512 << 10
)

// keepReserve makes the reserve where it is missing. On a full disk that fails, and is tried again at the next start.
func keepReserve(dir string) {
	path := filepath.Join(dir, reserveName)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	room := make([]byte, reserveSize)
	_, _ = rand.Read(room) // zeros would take no room on a file system that compresses; it never fails
	if err := os.WriteFile(path, room, 0o600); err != nil {
		_ = os.Remove(path) // half of it is of no use
	}
}

// giveReserve gives the room back, and reports whether there was any.
func giveReserve(dir string) bool { return os.Remove(filepath.Join(dir, reserveName)) == nil }
