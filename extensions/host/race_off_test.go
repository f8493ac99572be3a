//go:build !race

package host_test

// shadow is memory that a test may take besides; see race_on_test.go.
const shadow = 0
