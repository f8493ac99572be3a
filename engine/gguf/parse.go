package gguf

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// Limits on what a file may claim. They are far above what real files need and
// keep the memory that opening takes under some tens of megabytes.
const (
	maxKeys     = 1 << 16
	maxTensors  = 1 << 17
	maxKey      = 1<<16 - 1 // bytes in one key, the format's own limit
	maxName     = 255       // bytes in a tensor's name
	maxNames    = 16 << 20  // bytes in all keys and names together
	maxElements = 1 << 22   // elements of one array
	maxValue    = 64 << 20  // bytes of one value
	maxDims     = 4

	minKeyBytes    = 8 + 1 + 4 + 1         // key of one byte, kind, smallest value
	minTensorBytes = 8 + 1 + 4 + 8 + 4 + 8 // name of one byte, one extent

	defaultAlignment = 32
	alignmentKey     = "general.alignment"
)

// Parse reads a GGUF file that lies in memory. The file refers to b, which must
// not change while it is in use. A shard of a split file is read by itself.
// Every error is a *DamageError.
func Parse(b []byte) (*File, error) {
	r := &reader{b: b}
	f := &File{values: map[string]value{}, byName: map[string]*Tensor{}}
	tensors, keys := r.header(f)
	r.readKeys(f, keys)
	r.readTensors(f, tensors)
	r.place(f)
	if r.err != nil {
		return nil, r.err
	}
	return f, nil
}

// reader walks over the bytes of a file. The first failure is kept; after it
// all reads return zero values.
type reader struct {
	b     []byte
	off   int // always <= len(b)
	names int // bytes in keys and names so far
	err   error
}

func (r *reader) fail(at int, format string, args ...any) {
	if r.err == nil {
		r.err = &DamageError{Offset: int64(at), What: fmt.Sprintf(format, args...)}
	}
}

// take returns the next n bytes, nil when the file has fewer.
func (r *reader) take(n int, what string) []byte {
	if r.err != nil {
		return nil
	}
	if n > len(r.b)-r.off {
		r.fail(r.off, "file ends within %s", what)
		return nil
	}
	r.off += n
	return r.b[r.off-n : r.off : r.off]
}

func (r *reader) uint32(what string) uint32 {
	if b := r.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64(what string) uint64 {
	if b := r.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// bytes returns a string with its length in front, as it lies in the file.
func (r *reader) bytes(what string) []byte {
	at := r.off
	n := r.uint64(what)
	if r.err == nil && n > uint64(len(r.b)-r.off) {
		r.fail(at, "%s of %d bytes is longer than the rest of the file", what, n)
	}
	return r.take(int(n), what)
}

// name returns a key or a tensor's name of 1 to limit bytes.
func (r *reader) name(what string, limit int) string {
	at := r.off
	b := r.bytes(what)
	r.names += len(b)
	switch {
	case r.err != nil:
	case len(b) == 0:
		r.fail(at, "%s is empty", what)
	case len(b) > limit:
		r.fail(at, "%s of %d bytes is longer than %d", what, len(b), limit)
	case r.names > maxNames:
		r.fail(at, "keys and names take more than %d bytes", maxNames)
	}
	if r.err != nil {
		return ""
	}
	return string(b)
}

// header checks magic, version and counts.
func (r *reader) header(f *File) (tensors, keys int) {
	if magic := r.take(4, "the magic number"); magic != nil && string(magic) != "GGUF" {
		r.fail(0, "not a GGUF file: it begins with %q", magic)
	}
	f.version = r.uint32("the version")
	if r.err == nil {
		switch v := f.version; {
		case v == 2 || v == 3:
		case v == 1:
			r.fail(4, "version 1 is not supported: convert the file to version 3")
		case v != 0 && v&0xffff == 0:
			r.fail(4, "big-endian file (version %d): only little-endian files are supported", bits.ReverseBytes32(v))
		default:
			r.fail(4, "unknown version %d", v)
		}
	}
	tensors = r.count("tensor count", maxTensors, minTensorBytes)
	keys = r.count("key count", maxKeys, minKeyBytes)
	return tensors, keys
}

// count reads a number of records of at least size bytes each.
func (r *reader) count(what string, limit uint64, size int) int {
	at := r.off
	n := r.uint64("the " + what)
	switch {
	case r.err != nil:
		return 0
	case n > limit:
		r.fail(at, "%s %d is over the limit of %d", what, n, limit)
	case n > uint64((len(r.b)-r.off)/size):
		r.fail(at, "%s %d is more than the rest of the file can hold", what, n)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) readKeys(f *File, n int) {
	for i := 0; i < n && r.err == nil; i++ {
		at := r.off
		key := r.name("key", maxKey)
		if _, twice := f.values[key]; twice {
			r.fail(at, "duplicate key %.80q", key)
		}
		v := r.value(key)
		if r.err != nil {
			return
		}
		f.keys = append(f.keys, key)
		f.values[key] = v
	}
}

// value checks the value of a key and leaves it in the file's bytes.
func (r *reader) value(key string) value {
	at := r.off
	v := value{kind: kind(r.uint32("the kind of a value")), count: 1}
	if r.err == nil && v.kind == kindArray {
		v.array = true
		v.kind = kind(r.uint32("the kind of an array"))
		if r.err == nil && v.kind == kindArray {
			r.fail(at, "key %.80q holds an array of arrays", key)
		}
	}
	if r.err == nil && v.kind.width() == 0 && v.kind != kindString {
		r.fail(at, "key %.80q has a value of unknown kind %d", key, v.kind)
	}
	if r.err != nil {
		return v
	}
	if v.array {
		width := v.kind.width()
		if v.kind == kindString {
			width = 8 // its length
		}
		n := r.uint64("the length of an array")
		switch {
		case r.err != nil:
		case n > uint64((len(r.b)-r.off)/width):
			r.fail(at, "array of %d elements in key %.80q is longer than the rest of the file", n, key)
		case n > maxElements:
			r.fail(at, "array of %d elements in key %.80q is over the limit of %d", n, key, maxElements)
		}
		v.count = int(n)
	}
	r.elements(&v, key)
	return v
}

// elements sets v.raw.
func (r *reader) elements(v *value, key string) {
	at := r.off
	switch {
	case r.err != nil:
	case v.kind == kindString && v.array:
		for i := 0; i < v.count && r.err == nil; i++ {
			r.bytes("string in an array")
		}
		if r.err == nil {
			v.raw = r.b[at:r.off:r.off]
		}
	case v.kind == kindString:
		v.raw = r.bytes("string")
	default:
		v.raw = r.take(v.count*v.kind.width(), "a value")
	}
	if r.err == nil && len(v.raw) > maxValue {
		r.fail(at, "value of %d bytes in key %.80q is over the limit of %d", len(v.raw), key, maxValue)
	}
	if r.err == nil && v.kind == kindBool {
		if i := slices.IndexFunc(v.raw, func(b byte) bool { return b > 1 }); i >= 0 {
			r.fail(at+i, "key %.80q has a bool of value %d", key, v.raw[i])
		}
	}
}

func (r *reader) readTensors(f *File, n int) {
	for i := 0; i < n && r.err == nil; i++ {
		at := r.off
		t := &Tensor{Name: r.name("tensor name", maxName)}
		if f.byName[t.Name] != nil {
			r.fail(at, "duplicate tensor %q", t.Name)
		}
		r.shape(t)
		at = r.off
		t.Type = Type(r.uint32("the type of a tensor"))
		t.offset = r.uint64("the offset of a tensor")
		if r.err != nil {
			return
		}
		size, why := tensorSize(t.Type, t.Shape)
		if why != "" {
			r.fail(at, "tensor %q: %s", t.Name, why)
			return
		}
		t.size = size
		f.tensors = append(f.tensors, t)
		f.byName[t.Name] = t
	}
}

func (r *reader) shape(t *Tensor) {
	at := r.off
	dims := r.uint32("the dimensions of a tensor")
	if r.err == nil && (dims < 1 || dims > maxDims) {
		r.fail(at, "tensor %q has %d dimensions, not 1 to %d", t.Name, dims, maxDims)
	}
	if r.err != nil {
		return
	}
	t.Shape = make([]uint64, dims)
	for i := range t.Shape {
		t.Shape[i] = r.uint64("the shape of a tensor")
	}
}

// tensorSize returns the bytes that a tensor takes, 0 for an unknown type, or
// the reason why there can be no such tensor.
func tensorSize(t Type, shape []uint64) (size uint64, why string) {
	if len(shape) < 1 || len(shape) > maxDims {
		return 0, fmt.Sprintf("%d dimensions, not 1 to %d", len(shape), maxDims)
	}
	n := uint64(1)
	for _, e := range shape {
		if e == 0 {
			return 0, fmt.Sprintf("shape %v has no elements", shape)
		}
		hi, lo := bits.Mul64(n, e)
		if hi != 0 || lo > 1<<62 {
			return 0, fmt.Sprintf("shape %v has too many elements", shape)
		}
		n = lo
	}
	elems, bytes, ok := t.Block()
	if !ok {
		return 0, ""
	}
	if shape[0]%uint64(elems) != 0 {
		return 0, fmt.Sprintf("row of %d elements is no multiple of the block of %d of %v", shape[0], elems, t)
	}
	hi, lo := bits.Mul64(n/uint64(elems), uint64(bytes))
	if hi != 0 || lo > 1<<62 {
		return 0, fmt.Sprintf("shape %v has too many elements", shape)
	}
	return lo, ""
}

// place checks where the tensors' data lie and gives each its view of them.
func (r *reader) place(f *File) {
	if r.err != nil {
		return
	}
	align := r.alignment(f)
	if r.err != nil || len(f.tensors) == 0 {
		return
	}
	start := (uint64(r.off) + align - 1) &^ (align - 1)
	end := uint64(len(r.b))
	if start > end {
		r.fail(r.off, "file ends before the tensor data at byte %d", start)
		return
	}
	for _, t := range f.tensors {
		need := max(t.size, 1) // of an unknown type at least something
		switch {
		case t.offset%align != 0:
			r.fail(r.off, "tensor %q at offset %d is not aligned to %d", t.Name, t.offset, align)
		case t.offset > end-start || need > end-start-t.offset:
			r.fail(r.off, "tensor %q of %d bytes at offset %d lies beyond the end of the file", t.Name, t.size, t.offset)
		}
		if r.err != nil {
			return
		}
		t.offset += start
		if t.size > 0 {
			t.data = r.b[t.offset : t.offset+t.size : t.offset+t.size]
		}
	}
	r.overlaps(f)
}

func (r *reader) alignment(f *File) uint64 {
	v, ok := f.values[alignmentKey]
	if !ok {
		return defaultAlignment
	}
	if v.array || v.kind != kindUint32 {
		r.fail(r.off, "%s is not a uint32", alignmentKey)
		return 0
	}
	n := v.number(0).(uint64)
	if bits.OnesCount64(n) != 1 {
		r.fail(r.off, "alignment %d is not a power of two", n)
	}
	return n
}

func (r *reader) overlaps(f *File) {
	byOffset := slices.Clone(f.tensors)
	slices.SortStableFunc(byOffset, func(a, b *Tensor) int {
		if a.offset < b.offset {
			return -1
		} else if a.offset > b.offset {
			return 1
		}
		return 0
	})
	for i := 1; i < len(byOffset); i++ {
		a, b := byOffset[i-1], byOffset[i]
		if a.offset+max(a.size, 1) > b.offset {
			r.fail(int(b.offset), "tensors %q and %q overlap", a.Name, b.Name)
			return
		}
	}
}
