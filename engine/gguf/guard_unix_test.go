//go:build linux || darwin || freebsd || netbsd || openbsd

package gguf_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// guarded returns a copy of b that ends where a page without access begins, so
// that reading past its end faults.
func guarded(t *testing.T, b []byte) []byte {
	t.Helper()
	page := os.Getpagesize()
	size := (len(b) + page - 1) &^ (page - 1)
	m, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mprotect(m[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	end := m[size-len(b) : size : size]
	copy(end, b)
	return end
}
