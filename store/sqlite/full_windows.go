package sqlite

import (
	"errors"

	"golang.org/x/sys/windows"
)

// full tells an error of a disk without room.
func full(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
