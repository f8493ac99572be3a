package keeper

import (
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// send writes b, and a file with it when there is one.
func send(to net.Conn, b []byte, file *os.File) error {
	conn, ok := to.(*net.UnixConn)
	if file == nil || !ok {
		_, err := to.Write(b)
		return err
	}
	n, _, err := conn.WriteMsgUnix(b, unix.UnixRights(int(file.Fd())), nil)
	if err == nil && n < len(b) {
		_, err = conn.Write(b[n:])
	}
	return err
}

// receiver reads a connection and takes the one file that may come with what is read.
type receiver struct {
	conn   *net.UnixConn
	end    *os.File
	closed bool
}

// mostFiles is how many files are looked at of one message; the kernel closes the rest.
const mostFiles = 4

// Read implements io.Reader. One goroutine calls it, and close is not called at the same time.
func (r *receiver) Read(b []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4*mostFiles))
	n, m, _, _, err := r.conn.ReadMsgUnix(b, oob)
	if m > 0 {
		r.take(oob[:m])
	}
	if n <= 0 && err == nil && len(b) > 0 {
		err = io.EOF
	}
	return max(n, 0), err
}

func (r *receiver) take(oob []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if f := os.NewFile(uintptr(fd), "conduit"); r.end == nil && !r.closed {
				r.end = f
			} else {
				_ = f.Close() // nobody wants it
			}
		}
	}
}

// close closes the file. What comes later is closed at once.
func (r *receiver) close() {
	r.closed = true
	if r.end != nil {
		_ = r.end.Close() // a second time does nothing
	}
}
