//go:build !race

package gateway_test

// raced is for the race detector.
const raced = 0
