//go:build unix && !linux

package worker

import "golang.org/x/sys/unix"

// peek reads from a socket what is there, without waiting.
func peek(fd int, b []byte) (int, error) {
	n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
	return n, err
}
