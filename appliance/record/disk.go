package record

import (
	"errors"
	"fmt"
	"os"
)

// SyncDir makes a folder's names safe. Systems that cannot do that to a folder do it by themselves.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, os.ErrInvalid) && !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("writing the folder %s to disk: %w", dir, err)
	}
	return nil
}
