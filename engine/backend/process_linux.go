package backend

import "syscall"

// attributes put the child into a process group of its own and let the kernel end it when our thread ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
