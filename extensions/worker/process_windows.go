package worker

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// mostInstances bounds the instances of one worker: a child here inherits its standard streams and no more.
const mostInstances = 1

// ends are a child's standard input and output.
type ends struct{ in, out *os.File }

func (e ends) close() { e.in.Close(); e.out.Close() }

// pair makes a connection of two pipes. Ours can be left waiting for a while because a pipe in memory stands between.
func pair() (conn, ends, error) {
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return nil, ends{}, err
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		theirIn.Close()
		ourOut.Close()
		return nil, ends{}, err
	}
	ours, inner := net.Pipe()
	go func() {
		_, _ = io.Copy(inner, ourIn)
		inner.Close()
		ourIn.Close()
	}()
	go func() {
		_, _ = io.Copy(ourOut, inner)
		inner.Close()
		ourOut.Close()
	}()
	return glancing{ours}, ends{theirIn, theirOut}, nil
}

// glancing ends a read or write that takes long.
type glancing struct{ net.Conn }

const glance = 5 * time.Millisecond

// spare tells whether a process may stay awake until a call comes: there is no way to look without sleeping.
const spare = false

func (g glancing) Read(b []byte) (int, error) {
	_ = g.SetReadDeadline(time.Now().Add(glance))
	return g.Conn.Read(b)
}

func (g glancing) Write(b []byte) (int, error) {
	_ = g.SetWriteDeadline(time.Now().Add(glance))
	return g.Conn.Write(b)
}

func attributes() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) { _ = p.Kill() }

// standard is the child's end.
type standard struct{ in, out *os.File }

func inherited(in, out *os.File) io.ReadWriteCloser { return standard{in, out} }

func (s standard) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s standard) Write(b []byte) (int, error) { return s.out.Write(b) }
func (s standard) Close() error                { return errors.Join(s.in.Close(), s.out.Close()) }
