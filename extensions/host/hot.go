package host

import (
	"bytes"
	"os"
	"slices"
)

// Dropping a page that a guest wrote to is cheap, but the next write to it costs a fault and a copy in the kernel, ten times
// what copying its bytes back costs. So pages that one call after another writes to (stack, buffer, heap top) are kept and
// copied back, and the rest is dropped.
const (
	hotBytes = 256 << 10 // kept in one instance, at most
	hotSpans = 16        // each costs a system call
	hotGap   = 2         // pages between two spans that are kept as well, rather than dropped
	hotImage = 16 << 20  // a larger memory is not looked through: it would take as long as a call
)

// span is a part of memory.
type span struct{ from, to int }

// learns tells whether the pages that call n wrote to are looked up: twice in the beginning, and rarely afterwards.
func learns(n int) bool { return n == 2 || n == 16 || n%4096 == 0 }

// learn compares memory with the image and returns where they differ. Finding too little costs time alone: what is not in
// a span is dropped.
func learn(memory, image []byte) []span {
	page := max(os.Getpagesize(), 4096)
	var all []span
	kept := 0
	for at := 0; at < len(image) && kept < hotBytes; at += page {
		if bytes.Equal(memory[at:at+page], image[at:at+page]) {
			continue
		}
		from := at
		if n := len(all); n > 0 && at-all[n-1].to <= hotGap*page {
			from = all[n-1].from
			kept += at - all[n-1].to
			all = all[:n-1]
		} else if n == hotSpans {
			break
		}
		kept += page
		all = append(all, span{from, at + page})
	}
	return slices.Clip(all)
}

// restore makes the guest's memory what it was, and what lies behind the snapshot zeros.
func (i *Instance) restore() error {
	b := i.memory.b[:max(i.memory.size, i.image.size)]
	if i.image.shared == nil {
		clear(b[copy(b, i.image.bytes):])
		return nil
	}
	if i.calls++; learns(i.calls) && i.image.size <= hotImage {
		i.hot = learn(b, i.image.bytes)
	}
	at := 0
	for _, h := range i.hot {
		if err := i.image.shared.forget(b[at:h.from]); err != nil {
			return err
		}
		copy(b[h.from:h.to], i.image.bytes[h.from:h.to])
		at = h.to
	}
	return i.image.shared.forget(b[at:])
}
