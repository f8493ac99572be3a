//go:build unix

package record

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Lock keeps a file for one process until it is closed. Where another has it the error is busy.
func Lock(f *os.File, busy error) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return busy
	}
	return err
}
