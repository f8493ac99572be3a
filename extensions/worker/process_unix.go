//go:build unix

package worker

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
	theirs := os.NewFile(uintptr(fds[1]), "worker")
	own := os.NewFile(uintptr(fds[0]), "box")
	c, err := net.FileConn(own)
	own.Close()
	if err != nil {
		theirs.Close()
		return nil, ends{}, err
	}
	s := &socket{UnixConn: c.(*net.UnixConn)}
	if s.raw, err = s.SyscallConn(); err != nil {
		s.Close()
		theirs.Close()
		return nil, ends{}, err
	}
	s.look = s.lookOnce
	return s, ends{theirs, theirs}, nil
}

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

func (p *patience) missed() { *p = sleeps }

// socket is the box's end.
type socket struct {
	*net.UnixConn
	raw  syscall.RawConn
	wait patience

	// of the one read that runs
	look func(fd uintptr) bool
	into []byte
	n    int
	err  error
	till time.Time
}

// Read reads what is there, or waits for it. One goroutine at a time.
func (s *socket) Read(b []byte) (int, error) {
	s.into, s.till = b, time.Time{}
	if s.wait.looks() {
		s.till = time.Now().Add(spin)
	}
	if err := s.raw.Read(s.look); err != nil {
		return 0, err
	}
	return got(s.n, s.err)
}

// lookOnce is told by the poller that something may be there.
func (s *socket) lookOnce(fd uintptr) bool {
	for {
		s.n, s.err = unix.Read(int(fd), s.into)
		if s.err != unix.EAGAIN && s.err != unix.EINTR {
			return true
		}
		if s.till.IsZero() {
			return false
		}
		if time.Now().After(s.till) {
			s.till = time.Time{}
			s.wait.missed()
			return false
		}
	}
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

// Read looks for a while and then sleeps in the kernel: a thread that sleeps there wakes up sooner than one of the poller.
func (s *standard) Read(b []byte) (int, error) {
	if s.wait.looks() {
		till := time.Now().Add(spin)
		for {
			n, _, err := unix.Recvfrom(int(s.in.Fd()), b, unix.MSG_DONTWAIT)
			if err != unix.EAGAIN && err != unix.EINTR {
				if err == unix.ENOTSOCK {
					break
				}
				return got(n, err)
			}
			if time.Now().After(till) {
				s.wait.missed()
				break
			}
		}
	}
	return s.in.Read(b)
}

func (s *standard) Write(b []byte) (int, error) { return s.out.Write(b) }

func (s *standard) Close() error { return s.in.Close() }
