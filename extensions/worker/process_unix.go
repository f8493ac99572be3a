//go:build unix

package worker

import (
	"errors"
	"io"
	"os"
	"runtime"
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

// How long a reader looks again and again before it sleeps. Waking up costs more than what a small guest does, in either
// process, and most where a machine has nothing else to do.
const (
	idle = 20 * time.Microsecond  // of a child that has answered: the next call may be there already
	long = 150 * time.Microsecond // of whoever waits for an answer that usually comes by then
	soon = 400 * time.Microsecond // of a child that was told that a call is about to come
)

// spare tells whether a processor may be kept from other work for that long.
var spare = runtime.NumCPU() >= 4

// patience decides how long looking pays: what reads have taken of late says so. The zero value is that of one who looks for
// an answer.
type patience struct {
	late  time.Duration // how long reads took, on average
	child bool          // it waits for calls, which come when they come
	told  bool          // that one is about to come
}

// looks is how long to look; 0 is not at all.
func (p *patience) looks() time.Duration {
	switch {
	case p.told && spare:
		p.told = false
		return soon
	case p.late > long:
		return 0
	case p.child || !spare:
		return idle
	}
	return long
}

// took notes how long a read took.
func (p *patience) took(since time.Time) {
	p.late += (min(time.Since(since), 4*long) - p.late) / 8
}

// look looks for a while. n is -1 when nothing came.
func (p *patience) look(fd int, b []byte, since time.Time) (n int, err error) {
	while := p.looks()
	if while == 0 {
		return -1, nil
	}
	for till := since.Add(while); ; {
		n, err := peek(fd, b)
		switch {
		case err == nil:
			p.took(since)
			return n, nil
		case errors.Is(err, unix.ENOTSOCK): // pipes do as well
			return -1, nil
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return 0, err
		case time.Now().After(till):
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
	since := time.Now()
	if n, err := s.wait.look(s.fd, b, since); n >= 0 {
		return got(n, err)
	}
	n, err := s.file.Read(b)
	s.wait.took(since)
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

func inherited(in, out *os.File) io.ReadWriteCloser {
	return &standard{in: in, out: out, wait: patience{child: true}}
}

func (s *standard) Read(b []byte) (int, error) {
	since := time.Now()
	if n, err := s.wait.look(int(s.in.Fd()), b, since); n >= 0 {
		return got(n, err)
	}
	n, err := s.in.Read(b)
	s.wait.took(since)
	return n, err
}

// expect has the next read look for longer.
func (s *standard) expect() { s.wait.told = true }

func (s *standard) Write(b []byte) (int, error) { return s.out.Write(b) }

func (s *standard) Close() error { return s.in.Close() }
