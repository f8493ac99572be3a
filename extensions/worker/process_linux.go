package worker

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes put the child into a process group of its own and let the kernel end it when our thread ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// confine bounds a child from outside, so that nothing in it can have a say.
func confine(pid int, b bounds) error {
	set := func(what int, value uint64) error {
		return unix.Prlimit(pid, what, &unix.Rlimit{Cur: value, Max: value}, nil)
	}
	type limit struct {
		what  int
		value uint64
	}
	all := []limit{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, b.file}, {unix.RLIMIT_NOFILE, b.files}, {unix.RLIMIT_MEMLOCK, 0}}
	if !detecting { // the race detector's shadow is as large as all memory
		all = append(all, limit{unix.RLIMIT_DATA, b.memory}, limit{unix.RLIMIT_AS, addressSpace})
	}
	if b.cpu > 0 {
		all = append(all, limit{unix.RLIMIT_CPU, max(uint64(b.cpu.Seconds()), 1)})
	}
	for _, l := range all {
		if err := set(l.what, l.value); err != nil {
			return err
		}
	}
	if b.nice > 0 {
		return unix.Setpriority(unix.PRIO_PGRP, pid, b.nice) // each of its threads
	}
	return nil
}

// closeInherited closes what whoever started the box has left open by mistake, behind so many that are ours. What Go itself opens is marked to be
// closed at the next start of a program.
func closeInherited(ours int) {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // there is no /proc: nothing that we start leaves anything open
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd < 3+ours {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}
