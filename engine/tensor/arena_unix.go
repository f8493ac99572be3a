//go:build unix

package tensor

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapSlab maps n bytes. A slab of at least a huge page begins at a multiple
// of its size; the address space that this needs in addition costs no memory.
func mapSlab(n int) (whole, usable []byte, err error) {
	align, extra := arenaAlign, 0
	if n >= hugePage {
		align, extra = hugePage, hugePage
	}
	whole, err = unix.Mmap(-1, 0, n+extra, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	usable = alignTo(whole, align, n)
	if n >= hugePage {
		adviseHuge(usable)
	}
	return whole, usable, nil
}

func unmapSlab(whole []byte) {
	// The slice is the one that Mmap returned, so this cannot fail.
	_ = unix.Munmap(whole)
}

func pageSize() int { return os.Getpagesize() }
