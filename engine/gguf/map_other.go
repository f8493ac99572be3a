//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package gguf

import "os"

// mapping is one file read into memory, where this package cannot map it.
type mapping struct {
	bytes []byte
}

func mapFile(path string) (*mapping, error) {
	if err := statRegular(path); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return &mapping{bytes: b}, nil
}

func (m *mapping) close() error {
	m.bytes = nil
	return nil
}

func (m *mapping) advise(offset, size uint64, a Advice) {}

func (m *mapping) drop(offset, size uint64) {}
