package main_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	main "onebit/appliance"
)

// mapped is how much of files is in this process's memory, in KiB.
func mapped(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLetGo also runs with cgo, under the race detector: then the dynamic linker's tables must stay, through which the
// environment is set.
func TestLetGo(t *testing.T) {
	defer t.Setenv("ONEBIT_LET_GO", "1")
	before := mapped(t)
	if err := main.LetGo(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(t); after > before {
		t.Errorf("%d KiB of the program are in memory, %d were", after, before)
	}
}
