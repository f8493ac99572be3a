//go:build !linux

package keeper

import (
	"net"
	"os"
)

// send writes b. There is nothing that could come with it.
func send(to net.Conn, b []byte, _ *os.File) error {
	_, err := to.Write(b)
	return err
}

// receiver reads a connection.
type receiver struct {
	conn *net.UnixConn
	end  *os.File
}

func (r *receiver) Read(b []byte) (int, error) { return r.conn.Read(b) }

func (r *receiver) close() {}
