//go:build race

package model_test

// raced is how many allocations a token may cost more here: the race detector keeps functions from being inlined, and
// what they are given then escapes.
const raced = 32
