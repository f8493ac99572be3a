//go:build unix

package backend

import (
	"os"
	"slices"
	"syscall"
)

// Terminate asks the whole group to end.
func (c *command) Terminate() { c.signal(syscall.SIGTERM) }

// Kill ends the whole group.
func (c *command) Kill() { c.signal(syscall.SIGKILL) }

func (c *command) signal(s syscall.Signal) {
	_ = syscall.Kill(-c.Pid(), s) // an error says that nobody is left
}

// apply makes a child run as this user.
func (id *Identity) apply(a *syscall.SysProcAttr) error {
	if id != nil {
		a.Credential = &syscall.Credential{Uid: id.UID, Gid: id.GID, Groups: id.Groups}
	}
	return nil
}

// groupsOf returns the groups that device nodes belong to, but for the system's own.
func groupsOf(nodes []string) []uint32 {
	var all []uint32
	for _, path := range nodes {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Gid != 0 && !slices.Contains(all, stat.Gid) {
			all = append(all, stat.Gid)
		}
	}
	return all
}
