//go:build !race

package worker

// detecting says that the race detector is built in.
const detecting = false
