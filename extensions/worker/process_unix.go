//go:build unix

package worker

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// mostInstances bounds the instances of one worker.
const mostInstances = 64

// ends are a child's standard input and output.
type ends struct{ in, out *os.File }

func (e ends) close() { e.in.Close() }

// pair makes a connection: our end, and a child's, which is one socket for both directions.
func pair() (conn, ends, error) {
	syscall.ForkLock.RLock() // no other child gets them
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, ends{}, err
	}
	theirs, ours := os.NewFile(uintptr(fds[1]), "worker"), os.NewFile(uintptr(fds[0]), "box")
	nap := unix.NsecToTimeval(glance.Nanoseconds())
	for _, way := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, way, &nap); err != nil {
			theirs.Close()
			ours.Close()
			return nil, ends{}, err
		}
	}
	return &socket{file: ours, fd: fds[0]}, ends{theirs, theirs}, nil
}

// glance is how often somebody who sleeps in a read or write looks whether it still wants that.
const glance = 5 * time.Millisecond

// killGroup kills a process and all of its group.
func killGroup(p *os.Process) {
	_ = unix.Kill(-p.Pid, unix.SIGKILL)
	_ = p.Kill() // before it has a group of its own
}

// spin is how long a reader looks again and again before it sleeps: about what a small guest takes. Waking up costs as
// much, in either process.
const spin = 20 * time.Microsecond

// patience decides whether looking pays: after it did not, some reads sleep at once.
type patience int

const sleeps = 16

func (p *patience) looks() bool {
	if *p > 0 {
		*p--
		return false
	}
	return true
}

// look looks for a while. n is -1 when nothing came.
func (p *patience) look(fd int, b []byte) (n int, err error) {
	if !p.looks() {
		return -1, nil
	}
	for till := time.Now().Add(spin); ; {
		n, err := peek(fd, b)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, unix.ENOTSOCK): // pipes do as well
			return -1, nil
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return 0, err
		case time.Now().After(till):
			*p = sleeps
			return -1, nil
		}
	}
}

// socket is the box's end. Its readers sleep in the kernel: a thread wakes up sooner there than one of Go's poller does.
// Instead of deadlines it has glances: a read or write that takes longer ends with os.ErrDeadlineExceeded.
type socket struct {
	file *os.File
	fd   int
	wait patience
}

func (s *socket) Read(b []byte) (int, error) {
	if n, err := s.wait.look(s.fd, b); n >= 0 {
		return got(n, err)
	}
	n, err := s.file.Read(b)
	if errors.Is(err, unix.EAGAIN) {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// Write writes what it can before a glance is over.
func (s *socket) Write(b []byte) (int, error) {
	n, err := s.file.Write(b)
	if errors.Is(err, unix.EAGAIN) {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

func (s *socket) Close() error {
	_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // wakes those who sleep in it
	return s.file.Close()
}

// got turns what the system answers into what readers expect.
func got(n int, err error) (int, error) {
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// standard is the child's end: its standard streams.
type standard struct {
	in, out *os.File
	wait    patience
}

func inherited(in, out *os.File) io.ReadWriteCloser { return &standard{in: in, out: out} }

func (s *standard) Read(b []byte) (int, error) {
	if n, err := s.wait.look(int(s.in.Fd()), b); n >= 0 {
		return got(n, err)
	}
	return s.in.Read(b)
}

func (s *standard) Write(b []byte) (int, error) { return s.out.Write(b) }

func (s *standard) Close() error { return s.in.Close() }
