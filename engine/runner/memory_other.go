//go:build !linux

package runner

// availableMemory returns the bytes that the system can give, which this system
// is not asked for.
func availableMemory() int64 { return unknownMemory }
