package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// letGo gives back what only the start needed: the heap's free pages, and the pages of the program's own code and
// constants, which are read from its file again when they are used. A program with many sub-commands touches far more of
// itself while it starts than it needs for serving.
func letGo() error {
	debug.FreeOSMemory()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		var rights string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); err != nil {
			return err
		}
		if !strings.HasSuffix(lines.Text(), " "+self) || strings.Contains(rights, "w") {
			continue // what may be written is the program's state, not its file's
		}
		// addresses that the kernel gave, and that are nobody's memory to Go
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
