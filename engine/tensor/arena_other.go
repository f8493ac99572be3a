//go:build !unix && !windows

package tensor

import "os"

func mapSlab(n int) (whole, usable []byte, err error) {
	whole = make([]byte, n+arenaAlign)
	return whole, alignTo(whole, arenaAlign, n), nil
}

func unmapSlab([]byte) {}

func dropPages([]byte) bool { return false }

func pageSize() int { return os.Getpagesize() }
