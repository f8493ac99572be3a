//go:build unix

package program

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock keeps a file for one process until it is closed.
func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}
