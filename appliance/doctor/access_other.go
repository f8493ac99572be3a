//go:build !linux && !darwin && !windows

package doctor

import (
	"errors"
	"os"
)

// Access reports whether the file at path is there.
func Access(path string) error {
	_, err := os.Stat(path)
	return err
}

// Space is not known here.
func Space(string) (uint64, error) { return 0, errors.ErrUnsupported }
