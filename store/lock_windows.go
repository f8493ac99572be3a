package store

import (
	"errors"
	"log/slog"
	"os"

	"golang.org/x/sys/windows"
)

// take takes the lock of an open file, or returns ErrLocked. The lock ends with the process.
func take(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// tighten does nothing: what others may do here is inherited from the folder above, which is the user's own.
func tighten(string, *slog.Logger) {}
