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

func TestLetGo(t *testing.T) {
	before := mapped(t)
	if err := main.LetGo(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(t); after > before {
		t.Errorf("%d KiB of the program are in memory, %d were", after, before)
	}
}
