package backend

import (
	"errors"
	"syscall"
)

// attributes put the child into a console group of its own, out of reach of Ctrl-C.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// Terminate ends the process: there is no way to ask.
func (c *command) Terminate() { c.Kill() }

// Kill ends the process.
func (c *command) Kill() {
	_ = c.cmd.Process.Kill() // an error says that it has ended
}

// apply is for systems whose users are numbers.
func (id *Identity) apply(*syscall.SysProcAttr) error {
	if id != nil {
		return errors.ErrUnsupported
	}
	return nil
}

// groupsOf is for systems whose groups are numbers.
func groupsOf([]string) []uint32 { return nil }
