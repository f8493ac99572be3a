//go:build unix

package bench

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// take takes the lock of an open file, or returns errBusy.
func take(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errBusy
	}
	return err
}
