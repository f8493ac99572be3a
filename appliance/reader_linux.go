package main

import "golang.org/x/sys/unix"

// Limits of the process that reads one document. What is mapped is more than what is used: code and memory of
// WebAssembly are reserved before they are touched.
const (
	readerMemory  = 4 << 30
	readerSeconds = 60
)

func limitReader() {
	for what, most := range map[int]uint64{unix.RLIMIT_AS: readerMemory, unix.RLIMIT_CPU: readerSeconds, unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 256 << 20} {
		_ = unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most}) // lowering one's own limits cannot fail
	}
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}
