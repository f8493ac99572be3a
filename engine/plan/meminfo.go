package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Memory is what the kernel says about the machine's memory, in bytes.
type Memory struct {
	Total     uint64
	Available uint64 // what new programs can have without swapping
}

// ReadMemory asks for /proc/meminfo through read, such as os.ReadFile. Where there is no such file, as on other systems
// than Linux, the error says what to do instead.
func ReadMemory(read func(name string) ([]byte, error)) (Memory, error) {
	b, err := read("/proc/meminfo")
	if errors.Is(err, fs.ErrNotExist) {
		return Memory{}, errors.New("free memory cannot be told on this system, which has no /proc/meminfo; give a number")
	}
	if err != nil {
		return Memory{}, err
	}
	return ParseMemory(b)
}

// ParseMemory reads the text of /proc/meminfo.
func ParseMemory(b []byte) (Memory, error) {
	var m Memory
	var err error
	if m.Total, err = field(b, "MemTotal"); err != nil {
		return Memory{}, err
	}
	if m.Available, err = field(b, "MemAvailable"); err != nil {
		return Memory{}, err
	}
	return m, nil
}

// field returns one value, which stands there in KiB.
func field(b []byte, name string) (uint64, error) {
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		words := strings.Fields(rest)
		if len(words) != 2 || words[1] != "kB" {
			return 0, fmt.Errorf("/proc/meminfo: %s is %q, not a number of kB", name, strings.TrimSpace(rest))
		}
		n, err := strconv.ParseUint(words[0], 10, 54) // in bytes it is within 64 bits
		if err != nil {
			return 0, fmt.Errorf("/proc/meminfo: %s is %q, not a number of kB", name, strings.TrimSpace(rest))
		}
		return n << 10, nil
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", name)
}
