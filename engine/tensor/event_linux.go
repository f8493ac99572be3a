package tensor

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The operations of the futex system call on memory of this process alone.
const (
	futexWait = 0 | 128
	futexWake = 1 | 128
)

// parking lets threads sleep until a number changes. The futex wakes a thread
// that keeps its place in Go's scheduler, which is faster than waking a goroutine.
type parking struct{}

// sleep returns some time after seq is no longer old, or sooner.
func (parking) sleep(seq *atomic.Uint32, old uint32) {
	// The result does not matter: the caller looks at the number again.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(seq)), futexWait, uintptr(old), 0, 0, 0)
}

// wake wakes all sleepers; seq has changed.
func (parking) wake(seq *atomic.Uint32) {
	const all = 1<<31 - 1
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(seq)), futexWake, all, 0, 0, 0)
}

// yield lets another thread that waits for this core have it.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
