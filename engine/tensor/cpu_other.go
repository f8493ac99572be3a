//go:build !amd64

package tensor

func machineLevels() []Level { return []Level{Generic} }

// pause does nothing: the spin loops read an atomic between two calls.
func pause() {}
