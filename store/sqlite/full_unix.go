//go:build unix

package sqlite

import (
	"errors"

	"golang.org/x/sys/unix"
)

// full tells an error of a disk or quota without room.
func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
