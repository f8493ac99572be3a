package tensor

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages. A kernel without them refuses, which costs speed alone.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// dropPages reports whether the pages of b were replaced by zero pages.
func dropPages(b []byte) bool { return unix.Madvise(b, unix.MADV_DONTNEED) == nil }
