package conduit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// New makes a conduit. The end is for the process that is called: once that has it, it is to be closed here, or the
// process's end would not be noticed.
func New() (*Caller, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a conduit: %w", err)
	}
	conn, err := control(os.NewFile(uintptr(fds[0]), "conduit"))
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, nil, err
	}
	return &Caller{conn}, os.NewFile(uintptr(fds[1]), "conduit"), nil
}

var errNone = errors.New("what was handed over is no conduit")

// control makes a connection of an end, which must be one.
func control(end *os.File) (*net.UnixConn, error) {
	defer end.Close()
	if err := Check(end); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(end)
	if err != nil {
		return nil, fmt.Errorf("opening a conduit: %w", err)
	}
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errNone, conn.Close())
	}
	return c, nil
}

// Check returns an error for a file that is no end of a conduit.
func Check(end *os.File) error {
	raw, err := end.SyscallConn()
	if err != nil {
		return err
	}
	var domain, kind int
	var failed [2]error
	if err := raw.Control(func(fd uintptr) {
		domain, failed[0] = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		kind, failed[1] = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE)
	}); err != nil {
		return err
	}
	if failed[0] != nil || failed[1] != nil || domain != unix.AF_UNIX || kind != unix.SOCK_SEQPACKET {
		return errNone
	}
	return nil
}

func (c *Caller) dial() (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), network), os.NewFile(uintptr(fds[1]), network)
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	// a message is small: the limit is for a process that takes none any more
	if err := c.conn.SetWriteDeadline(time.Now().Add(handLimit)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if _, _, err := c.conn.WriteMsgUnix([]byte{1}, unix.UnixRights(fds[1]), nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// handLimit is the longest time that handing a connection over may take.
const handLimit = 5 * time.Second

// Accept waits for a connection; see net.Listener. It is io.EOF when the caller is gone.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		var one [1]byte
		oob := make([]byte, unix.CmsgSpace(4))
		n, m, _, _, err := l.conn.ReadMsgUnix(one[:], oob)
		if err != nil {
			return nil, err
		}
		if n == 0 && m == 0 {
			return nil, io.EOF
		}
		if conn := received(oob[:m]); conn != nil {
			return conn, nil
		}
		// it did not come through, as when too many descriptors are open: the kernel has closed it, and its caller sees that
	}
}

// received makes a connection of what a message carries; nil when it carries none.
func received(oob []byte) (conn net.Conn) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // it carries something else
		}
		for _, fd := range fds {
			f := os.NewFile(uintptr(fd), network)
			if conn == nil {
				if c, err := net.FileConn(f); err == nil {
					conn = c
				}
			}
			f.Close()
		}
	}
	return conn
}
