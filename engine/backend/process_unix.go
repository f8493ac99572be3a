//go:build unix

package backend

import "syscall"

// Terminate asks the whole group to end.
func (c *command) Terminate() { c.signal(syscall.SIGTERM) }

// Kill ends the whole group.
func (c *command) Kill() { c.signal(syscall.SIGKILL) }

func (c *command) signal(s syscall.Signal) {
	_ = syscall.Kill(-c.Pid(), s) // an error says that nobody is left
}
