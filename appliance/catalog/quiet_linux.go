package catalog

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Values of ioprio_set: the thread's own disk requests wait for everybody else's.
const (
	ioprioWhoProcess = 1
	ioprioIdle       = 3 << 13
)

// quietly runs work that nobody waits for on a thread of its own, with the lowest claim on disk and processor: it runs
// when nobody else does, and gives way at once. The thread ends with the work: its priority cannot be raised again.
func quietly(work func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		// without these it only disturbs more
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19)
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: 19}, 0)
		_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, uintptr(unix.Gettid()), ioprioIdle)
		done <- work()
	}()
	return <-done
}

// readAhead says that a file is read once from front to end.
func readAhead(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_SEQUENTIAL) }

// forget lets the system drop what it keeps of a part of a file: models that are served need the memory.
func forget(f *os.File, from, length int64) {
	_ = unix.Fadvise(int(f.Fd()), from, length, unix.FADV_DONTNEED)
}

// flush writes a file's bytes to disk.
func flush(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
