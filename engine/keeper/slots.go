package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"onebit/engine/backend"
	"onebit/engine/sandbox"
)

// The state of slots outlives the process that wrote it, and the next one has another user. So each model has a folder
// below Config.Slots that the keeper makes, and all that is in it belongs to the client's group: the processes that run
// the model have that group, write for it, and by their sandbox reach this folder and nothing else of it. The client may
// look at the files and remove them. Where the kernel cannot keep a process to a folder, none gets the group, and no
// state is kept.

// slotDir makes the folder for the state of slots that a client asks for.
func (k *Keeper) slotDir(o *backend.Options) error {
	dir := o.SlotDir
	switch {
	case dir == "":
		return nil
	case k.cfg.Slots == "":
		o.SlotDir = ""
		return nil
	case filepath.Dir(dir) != filepath.Clean(k.cfg.Slots):
		return fmt.Errorf("slot_dir: %s is not in the folder for the state of slots", dir)
	case sandbox.Supported().Landlock == 0:
		k.cfg.Log.Warn("the state of slots is not kept: this kernel cannot keep a model server to one folder (no Landlock)")
		o.SlotDir = ""
		return nil
	}
	root, err := os.OpenRoot(k.cfg.Slots)
	if err != nil {
		return fmt.Errorf("opening the folder for the state of slots: %w", err)
	}
	defer root.Close()
	name := filepath.Base(dir)
	if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making a folder for the state of slots: %w", err)
	}
	info, err := root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no folder")
	}
	if err == nil && (info.Mode().Perm() != slotMode || ownedBy(info) != k.group) {
		err = errors.Join(root.Lchown(name, -1, int(k.group)), root.Chmod(name, slotMode))
	}
	if err != nil {
		return fmt.Errorf("opening %s to the group %d: %w", dir, k.group, err)
	}
	return nil
}

// slotMode lets whoever has the group add and remove files, and nobody else look.
const slotMode = 0o770

// groupOf returns the group of a folder.
func groupOf(dir string) (uint32, error) {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return 0, err
	case !info.IsDir():
		return 0, fmt.Errorf("%s is no folder", dir)
	}
	return ownedBy(info), nil
}
