//go:build unix

package keeper

import (
	"os"
	"syscall"
)

// ownedBy returns the group of a file.
func ownedBy(info os.FileInfo) uint32 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Gid
	}
	return 0
}
