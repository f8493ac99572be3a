//go:build unix

package runner_test

import (
	"os"
	"syscall"
)

// umask returns what files are made without.
func umask() os.FileMode {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	return os.FileMode(mask)
}
