package host

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"onebit/extensions/wasm"
)

// memory is the linear memory of one guest. Its place is reserved for all that it can grow to, so growing moves nothing.
type memory struct {
	b      []byte // all that is reserved
	size   uint64 // in use
	shrink uint64 // what the next Reallocate answers; 0 for what it is asked
}

func newMemory(most uint64) (*memory, error) {
	b, err := reserve(most)
	return &memory{b: b}, err
}

// Reallocate answers size bytes of the memory; nil when they are not reserved.
func (m *memory) Reallocate(size uint64) []byte {
	if m.shrink > 0 {
		size, m.shrink = m.shrink, 0
	}
	if size > uint64(len(m.b)) {
		return nil
	}
	m.size = size
	return m.b[:size:len(m.b)]
}

// Free gives the memory back. It is idempotent.
func (m *memory) Free() {
	unreserve(m.b)
	m.b, m.size = nil, 0
}

// image is the content of a memory at the snapshot: shared by the instances that start from it where the system can do
// that, copied otherwise.
type image struct {
	size   uint64
	shared *shared // nil where the system has none
	bytes  []byte  // to read
	refs   atomic.Int32
}

func newImage(b []byte, copied bool) *image {
	i := &image{size: uint64(len(b))}
	i.refs.Store(1)
	if !copied {
		if s, view, err := share(b); err == nil {
			i.shared, i.bytes = s, view
			return i
		}
	}
	i.bytes = slices.Clone(b)
	return i
}

func (i *image) take() { i.refs.Add(1) }

func (i *image) release() {
	if i.refs.Add(-1) == 0 && i.shared != nil {
		i.shared.close(i.bytes)
	}
}

// attach makes the image the beginning of a memory that is new, or that it was taken from.
func (i *image) attach(b []byte) error {
	if i.shared != nil {
		return i.shared.attach(b[:i.size])
	}
	copy(b, i.bytes)
	return nil
}

// snapshot keeps the state that calls start from. A guest that can change what is not in it gets none.
func (i *Instance) snapshot() error {
	if i.m.volatile {
		return nil
	}
	i.saved = i.saved[:0]
	for _, g := range i.globals {
		i.saved = append(i.saved, g.Get())
	}
	i.image = newImage(i.memory.b[:i.memory.size], i.m.copies)
	if err := i.image.attach(i.memory.b); err != nil {
		return &SetupError{Step: "snapshot", Err: &CallError{Cause: CauseHost, Detail: err.Error()}}
	}
	return nil
}

// reset puts the guest back into the state of the snapshot.
func (i *Instance) reset(ctx context.Context, failed bool) error {
	if i.image == nil {
		return i.rebuild(ctx)
	}
	if err := i.restore(); err != nil {
		return errors.Join(err, i.rebuild(ctx))
	}
	if i.memory.size > i.image.size {
		// The only way to give back pages of a guest's memory: growing asks the allocator, which may answer with less.
		i.memory.shrink = i.image.size
		_, ok := i.guest.Memory().Grow(1)
		i.memory.shrink = 0
		if !ok || uint64(i.guest.Memory().Size()) != i.image.size { // it has all that it may have
			return i.rebuild(ctx)
		}
	}
	for n, g := range i.globals {
		g.Set(i.saved[n])
	}
	if failed {
		i.look()
	}
	return nil
}

// rebuild makes the guest anew: from the snapshot, or by the whole set-up when there is none.
func (i *Instance) rebuild(ctx context.Context) error {
	i.drop(ctx) //nolint:errcheck // there is nobody to tell, and nothing is left
	if i.image == nil {
		return i.build(ctx)
	}
	report := i.report
	if err := i.instantiate(ctx); err != nil {
		return err
	}
	i.report = report
	if delta := (i.image.size - i.memory.size) / wasm.PageSize; delta > 0 {
		if _, ok := i.guest.Memory().Grow(uint32(delta)); !ok {
			return errors.New("growing the guest's memory to its snapshot")
		}
	}
	for n, g := range i.globals {
		g.Set(i.saved[n])
	}
	i.hot = nil // their pages are not written to yet
	return i.image.attach(i.memory.b)
}
