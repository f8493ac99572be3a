//go:build unix

package main

import (
	"os"
	"syscall"
)

// hangupSignals are those that make a box read its configuration again.
func hangupSignals() []os.Signal { return []os.Signal{syscall.SIGHUP} }
