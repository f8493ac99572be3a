//go:build !race

package model_test

// raced is for the race detector.
const raced = 0
