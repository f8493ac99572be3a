//go:build unix

package h1

import (
	"errors"
	"net"
	"syscall"
)

// rawConn returns what lets a connection be asked without waiting; nil when it is not the system's.
func rawConn(n net.Conn) syscall.RawConn {
	c, ok := n.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// readNow reads what has come already.
func readNow(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

// wouldBlock reports whether nothing has come.
func wouldBlock(err error) bool { return errors.Is(err, syscall.EAGAIN) }
