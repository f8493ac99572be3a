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
	return b, nil
}

func unreserve(b []byte) {
	if len(b) > 0 {
		unix.Munmap(b) //nolint:errcheck // it was mapped by reserve, as a whole
	}
}

// content is a sealed file in memory. A guest's pages show it until the guest writes to them; forgetting what was written
// is one system call.
type content struct{ fd int }

func (c *content) fill(b []byte) error {
	fd, err := unix.MemfdCreate("laya", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("making a snapshot: %w", err)
	}
	c.fd = fd
	if err := c.write(b); err != nil {
		unix.Close(fd)
		return fmt.Errorf("making a snapshot: %w", err)
	}
	return nil
}

// write leaves out pages of zeros: the file reads as zeros there.
func (c *content) write(b []byte) error {
	if err := unix.Ftruncate(c.fd, int64(len(b))); err != nil {
		return err
	}
	var zeros [4096]byte
	for at := 0; at < len(b); at += len(zeros) {
		page := b[at : at+len(zeros)]
		if bytes.Equal(page, zeros[:]) {
			continue
		}
		if n, err := unix.Pwrite(c.fd, page, int64(at)); err != nil || n != len(page) {
			return fmt.Errorf("writing %d of %d bytes: %w", n, len(page), err)
		}
	}
	_, err := unix.FcntlInt(uintptr(c.fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return err
}

// attach shows the content at the start of a guest's memory.
func (i *image) attach(b []byte) error {
	if i.size == 0 {
		return nil
	}
	_, err := unix.MmapPtr(i.fd, 0, unsafe.Pointer(&b[0]), uintptr(i.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("mapping a snapshot: %w", err)
	}
	return nil
}

// restore forgets what a guest wrote to b: pages of the content show it again, others are zeros.
func (i *image) restore(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if err := unix.Madvise(b, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("resetting a guest's memory: %w", err)
	}
	return nil
}

func (c *content) close() { unix.Close(c.fd) }
