package runner

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// availableMemory returns the bytes that the system can give without taking them
// from others, within the limit of the control group.
func availableMemory() int64 {
	memory := int64(unknownMemory)
	if f, err := os.Open("/proc/meminfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			words := strings.Fields(lines.Text())
			if len(words) < 2 || words[0] != "MemAvailable:" {
				continue
			}
			if kib, err := strconv.ParseInt(words[1], 10, 53); err == nil {
				memory = kib << 10
			}
		}
	}
	if limit, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64); err == nil {
			memory = min(memory, n)
		}
	}
	return memory
}
