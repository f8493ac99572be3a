//go:build !linux

package worker_test

import (
	"os"
	"syscall"
)

func signalled(p *os.Process) error { return p.Signal(syscall.Signal(0)) }
