package gguf_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"onebit/engine/gguf"
)

// mappedPages returns how many pages of files this process has in memory.
func mappedPages(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	must(t, err)
	var size, resident, shared int
	if _, err := fmt.Sscan(string(b), &size, &resident, &shared); err != nil {
		t.Fatal(err)
	}
	return shared
}

func TestDropGivesMemoryBack(t *testing.T) {
	const size = 32 << 20
	pages := size / os.Getpagesize()
	w := gguf.NewWriter()
	must(t, w.Add("a", gguf.I8, []uint64{size}, make([]byte, size)))
	path := filepath.Join(t.TempDir(), "m.gguf")
	must(t, w.WriteFile(path))
	f, err := gguf.Open(path)
	must(t, err)
	defer f.Close()
	a := f.Tensor("a")
	start := mappedPages(t)
	sum := 0
	for i := 0; i < size; i += 512 {
		sum += int(a.Data()[i])
	}
	read := mappedPages(t)
	f.Drop(a)
	dropped := mappedPages(t)
	if sum != 0 || read-start < pages/2 || read-dropped < pages/2 {
		t.Errorf("mapped pages: %d at first, %d after reading %d of them, %d after dropping them", start, read, pages, dropped)
	}
}

// A pipe must be refused without waiting for somebody to write to it.
func TestOpenRefusesPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe.gguf")
	must(t, unix.Mkfifo(path, 0o600))
	_, err := gguf.Open(path)
	if err == nil {
		t.Fatal("a pipe was opened")
	}
	wantDamage(t, err, "not a regular file")
}
