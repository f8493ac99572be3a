package main_test

import (
	"io"
	"syscall"
	"testing"
)

// TestServeKilledLeavesNobody relies on the kernel's signal to the children of a dead parent.
func TestServeKilledLeavesNobody(t *testing.T) {
	p := start(t, "standin")
	p.until("ready after")
	p.signal(syscall.SIGKILL)
	if _, err := io.Copy(io.Discard, p.lines); err != nil {
		t.Errorf("somebody holds the output: %v", err)
	}
}
