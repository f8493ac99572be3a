//go:build !linux

package conduit

import (
	"net"
	"os"
)

// New returns ErrUnsupported.
func New() (*Caller, *os.File, error) { return nil, nil, ErrUnsupported }

// Check returns ErrUnsupported.
func Check(*os.File) error { return ErrUnsupported }

func control(*os.File) (*net.UnixConn, error) { return nil, ErrUnsupported }

func (c *Caller) dial() (net.Conn, error) { return nil, ErrUnsupported }

// Accept returns ErrUnsupported.
func (l *Listener) Accept() (net.Conn, error) { return nil, ErrUnsupported }
