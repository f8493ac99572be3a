//go:build unix && !linux

package tensor

func adviseHuge([]byte) {}

// dropPages does nothing: MADV_DONTNEED keeps the contents on these systems.
func dropPages([]byte) bool { return false }
