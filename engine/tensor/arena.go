package tensor

import (
	"fmt"
	"sync"
	"unsafe"
)

const (
	arenaAlign  = 64
	hugePage    = 2 << 20
	firstSlab   = 256 << 10
	largestSlab = 64 << 20 // that small requests share
)

// Arena hands out zeroed memory outside the Go heap, in huge pages where the
// system has them. The garbage collector neither scans nor moves it. Nothing
// is freed before Close; Release gives back the physical memory of a range.
// All methods may be called at the same time, but no memory of an arena may
// be used after Close.
type Arena struct {
	mu     sync.Mutex
	slabs  []slab
	free   []byte // rest of the newest shared slab
	next   int    // size of the next shared slab
	used   int64
	mapped int64
	closed bool
}

// slab is one mapping: whole is what the system gave, and what it takes back.
type slab struct{ whole []byte }

// NewArena returns an empty arena.
func NewArena() *Arena { return &Arena{next: firstSlab} }

// Bytes returns n zeroed bytes aligned to 64; nil for n = 0. As make does,
// it panics when the system has no memory left, and for a negative n.
func (a *Arena) Bytes(n int) []byte {
	if n < 0 {
		panic(fmt.Sprintf("tensor: %d bytes asked from an arena", n))
	}
	if n == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		panic("tensor: use of a closed arena")
	}
	b := a.take((n + arenaAlign - 1) &^ (arenaAlign - 1))
	a.used += int64(len(b))
	return b[:n]
}

// take cuts size bytes off the rest of the last slab, or off a new slab. Of two
// rests the larger is kept.
func (a *Arena) take(size int) []byte {
	if size <= len(a.free) {
		b := a.free[:size:size]
		a.free = a.free[size:]
		return b
	}
	whole := a.mapMore(size)
	if rest := whole[size:]; len(rest) > len(a.free) {
		a.free = rest
	}
	return whole[:size:size]
}

// mapMore maps a slab of at least size bytes.
func (a *Arena) mapMore(size int) []byte {
	n := max(a.next, size)
	if n >= hugePage {
		n = (n + hugePage - 1) &^ (hugePage - 1)
	}
	whole, usable, err := mapSlab(n)
	if err != nil {
		panic(fmt.Errorf("tensor: mapping %d bytes: %w", n, err))
	}
	a.slabs = append(a.slabs, slab{whole})
	a.mapped += int64(n)
	a.next = min(max(a.next*2, hugePage), largestSlab)
	return usable
}

// Floats returns n zeroed float32s aligned to 64 bytes; see Bytes.
func (a *Arena) Floats(n int) []float32 {
	b := a.Bytes(4 * n)
	if b == nil {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// Halves returns n zeroed 16-bit values aligned to 64 bytes; see Bytes.
func (a *Arena) Halves(n int) []uint16 {
	b := a.Bytes(2 * n)
	if b == nil {
		return nil
	}
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// Used returns the number of bytes handed out.
func (a *Arena) Used() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// Mapped returns the number of bytes of address space behind the arena. A page
// takes physical memory once something is written to it.
func (a *Arena) Mapped() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mapped
}

// Release gives the physical memory of b, which must come from this arena,
// back to the system. The bytes of b read as zero afterwards and may be used
// again. Nobody else may use b during the call.
func (a *Arena) Release(b []byte) {
	if len(b) == 0 {
		return
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	page := uintptr(pageSize())
	from := (page - start%page) % page
	to := uintptr(len(b)) - (start+uintptr(len(b)))%page
	if from >= uintptr(len(b)) || to <= from || !dropPages(b[from:to]) {
		clear(b)
		return
	}
	clear(b[:from])
	clear(b[to:])
}

// Close unmaps all memory of the arena. Further calls do nothing.
func (a *Arena) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.slabs {
		unmapSlab(s.whole)
	}
	a.slabs, a.free = nil, nil
	a.used, a.mapped = 0, 0
	a.closed = true
}

// alignTo returns the n bytes of b that begin at the first multiple of align.
func alignTo(b []byte, align, n int) []byte {
	over := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(align-1))
	from := 0
	if over != 0 {
		from = align - over
	}
	return b[from : from+n : from+n]
}
