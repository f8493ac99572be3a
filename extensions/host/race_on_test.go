//go:build race

package host_test

// shadow is the memory that the race detector's own records may take besides.
const shadow = 64 << 20
