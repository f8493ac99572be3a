package host

import (
	"bytes"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reserve takes address space; pages cost nothing before they are touched.
func reserve(n uint64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserving %d bytes for a guest: %w", n, err)
	}
	unix.Madvise(b, unix.MADV_NOHUGEPAGE) //nolint:errcheck // a kernel without huge pages gives none
	return b, nil
}

func unreserve(b []byte) {
	if len(b) > 0 {
		unix.Munmap(b) //nolint:errcheck // it was mapped by reserve, as a whole
	}
}

// shared is a sealed file in memory. The pages of a guest show it until the guest writes to them; to forget what was
// written is one system call.
type shared struct{ fd int }

// share keeps b, and returns a view of what it keeps.
func share(b []byte) (s *shared, view []byte, err error) {
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, err
	}
	s = &shared{fd}
	if err = s.fill(b); err == nil && len(b) > 0 {
		view, err = unix.Mmap(fd, 0, len(b), unix.PROT_READ, unix.MAP_PRIVATE)
	}
	if err != nil {
		s.close(nil)
		return nil, nil, err
	}
	return s, view, nil
}

// fill leaves out blocks of zeros: the file reads as zeros there.
func (s *shared) fill(b []byte) error {
	if err := unix.Ftruncate(s.fd, int64(len(b))); err != nil {
		return err
	}
	var zeros [4096]byte
	for at := 0; at < len(b); at += len(zeros) {
		page := b[at : at+len(zeros)]
		if bytes.Equal(page, zeros[:]) {
			continue
		}
		if n, err := unix.Pwrite(s.fd, page, int64(at)); err != nil || n != len(page) {
			return fmt.Errorf("writing %d of %d bytes: %w", n, len(page), err)
		}
	}
	_, err := unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return err
}

// attach shows the file in place of b.
func (s *shared) attach(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := unix.MmapPtr(s.fd, 0, unsafe.Pointer(&b[0]), uintptr(len(b)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED)
	return err
}

// forget drops what was written to b: attached pages show the file again, others are zeros.
func (s *shared) forget(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return unix.Madvise(b, unix.MADV_DONTNEED)
}

func (s *shared) close(view []byte) {
	unreserve(view)
	unix.Close(s.fd) //nolint:errcheck // nothing was written that a close could lose
}
