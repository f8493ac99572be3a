//go:build unix

package store

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// take takes the lock of an open file, or returns ErrLocked. The lock ends with the process.
func take(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// full tells an error of a disk or quota without room.
func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
