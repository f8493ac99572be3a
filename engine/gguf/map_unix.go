//go:build linux || darwin || freebsd || netbsd || openbsd

package gguf

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// mapping is one file mapped read-only.
type mapping struct {
	bytes []byte
}

func mapFile(path string) (*mapping, error) {
	if err := statRegular(path); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	if size == 0 {
		return &mapping{}, nil
	}
	if size > math.MaxInt {
		return nil, fmt.Errorf("%s: %d bytes do not fit the address space", path, size)
	}
	b, err := unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	return &mapping{bytes: b}, nil
}

func (m *mapping) close() error {
	if m.bytes == nil {
		return nil
	}
	b := m.bytes
	m.bytes = nil
	return unix.Munmap(b)
}

// pages returns the pages that the range touches.
func (m *mapping) pages(offset, size uint64) []byte {
	page := uint64(os.Getpagesize())
	return m.bytes[offset&^(page-1) : min(offset+size, uint64(len(m.bytes)))]
}

func (m *mapping) advise(offset, size uint64, a Advice) {
	how := map[Advice]int{
		Normal:     unix.MADV_NORMAL,
		Sequential: unix.MADV_SEQUENTIAL,
		Random:     unix.MADV_RANDOM,
		WillNeed:   unix.MADV_WILLNEED,
	}
	m.madvise(offset, size, how[a])
}

// drop may take a neighbour's bytes on the first and last page along: they
// come back from the file like the rest.
func (m *mapping) drop(offset, size uint64) {
	m.madvise(offset, size, unix.MADV_DONTNEED)
}

func (m *mapping) madvise(offset, size uint64, how int) {
	if b := m.pages(offset, size); len(b) > 0 {
		_ = unix.Madvise(b, how) // advice only: nothing depends on it
	}
}
