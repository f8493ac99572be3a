package tensor

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func mapSlab(n int) (whole, usable []byte, err error) {
	addr, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return nil, nil, err
	}
	// The address is not Go memory, so the collector does not mind how it was made.
	whole = unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
	return whole, alignTo(whole, arenaAlign, n), nil
}

func unmapSlab(whole []byte) {
	// The address is the one that VirtualAlloc returned, so this cannot fail.
	_ = windows.VirtualFree(uintptr(unsafe.Pointer(unsafe.SliceData(whole))), 0, windows.MEM_RELEASE)
}

func dropPages([]byte) bool { return false }

func pageSize() int { return os.Getpagesize() }
