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
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer maps.Close()
	var from, to uintptr // of the mapping whose lines follow; both 0 for one that stays
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		line := lines.Text()
		name, rest, _ := strings.Cut(line, ":")
		switch {
		case strings.Contains(name, "-"): // the head of a mapping; names have none
			var rights string
			if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err != nil {
				return err
			}
			if !strings.HasSuffix(line, " "+self) || strings.Contains(rights, "w") {
				from, to = 0, 0 // what may be written is the program's state, not its file's
			}
		case name == "Anonymous" && strings.TrimSpace(rest) == "0 kB" && to > from:
			// addresses that the kernel gave, and that are nobody's memory to Go. What was written before it became
			// read-only, such as a dynamic linker's tables, is anonymous and stays.
			if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
				return errno
			}
			from, to = 0, 0
		}
	}
	return nil
}
