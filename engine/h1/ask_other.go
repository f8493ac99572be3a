//go:build !unix

package h1

import (
	"errors"
	"net"
	"syscall"
)

// rawConn returns nil: here a connection tells nothing without waiting.
func rawConn(net.Conn) syscall.RawConn { return nil }

func readNow(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

func wouldBlock(error) bool { return false }
