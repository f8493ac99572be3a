//go:build unix

package store

import (
	"errors"
	"log/slog"
	"os"
	"syscall"

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

// tighten closes a state directory to others that was made before with more rights than it needs, and says so. One that
// they may only go through is left: they may have to reach models in it. What belongs to somebody else is theirs to close.
func tighten(dir string, log *slog.Logger) {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o066 == 0 {
		return
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int64(owner.Uid) != int64(os.Geteuid()) {
		return
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		log.Warn("others of this machine can look into the state directory, and it cannot be closed to them", "dir", dir, "why", err)
		return
	}
	log.Warn("the state directory was open to others of this machine; it is closed now", "dir", dir, "before", info.Mode().Perm().String())
}
