// Package gguf reads and writes GGUF model files.
//
// A file is mapped into memory and proved sound before anything of it is used:
// every count, length, offset and shape is checked against the bytes that are
// there, and what cannot be proved is refused with a [DamageError] that names
// the reason. Opening takes memory in proportion to the names in the file and
// never more than some tens of megabytes, whatever the file claims.
package gguf

import (
	"fmt"
	"slices"
)

// DamageError says why a file was refused. Every refusal of content (as
// opposed to an error of the operating system) is or wraps one.
type DamageError struct {
	Offset int64  // where in the file the trouble is, in bytes from its start
	What   string // the reason
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("damaged GGUF at byte %d: %s", e.Offset, e.What)
}

// Tensor describes one tensor of a file.
type Tensor struct {
	Name string
	Type Type
	// Shape lists the extents, the contiguous one first: a matrix of r rows
	// and c columns has the shape [c, r].
	Shape []uint64

	size   uint64 // bytes, 0 when the type is unknown
	offset uint64 // from the start of the shard's file
	data   []byte
	home   *mapping // nil when the file was parsed from memory
}

// Elements returns the product of the extents.
func (t *Tensor) Elements() uint64 {
	n := uint64(1)
	for _, e := range t.Shape {
		n *= e
	}
	return n
}

// Size returns the number of bytes that the tensor's data take, 0 when its
// type is unknown.
func (t *Tensor) Size() uint64 { return t.size }

// Data returns the tensor's bytes, Size of them: a read-only view of the file
// that is valid until the file is closed. Writing to it faults. It is nil when
// the type is unknown or the file is closed.
func (t *Tensor) Data() []byte { return t.data }

// File is an open GGUF file, or all shards of a split one seen as one.
//
// All methods but Close may be called from several goroutines at once.
//
// Tensor data and metadata are read from the mapped file when they are asked
// for. Opening checks that the file has all the bytes it should, but a file
// that is cut short by somebody else while it is open makes later reads fault
// (SIGBUS on Unix). A model loader that must survive this runs in a process of
// its own, or turns the fault into a panic with debug.SetPanicOnFault.
type File struct {
	version uint32
	keys    []string
	values  map[string]value
	tensors []*Tensor
	byName  map[string]*Tensor
	maps    []*mapping
}

// Version returns the version of the format that the file is written in, 2 or 3.
func (f *File) Version() uint32 { return f.version }

// Architecture returns the value of general.architecture, or "" when the file
// has none.
func (f *File) Architecture() string {
	s, _ := f.String("general.architecture")
	return s
}

// Tensors returns all tensors in the order of the file.
func (f *File) Tensors() []*Tensor { return slices.Clone(f.tensors) }

// Tensor returns the tensor of that name, nil when there is none.
func (f *File) Tensor(name string) *Tensor { return f.byName[name] }

// Unknown returns the tensors whose type this package does not know. They have
// a name and a shape, but no size and no data.
func (f *File) Unknown() []*Tensor {
	var list []*Tensor
	for _, t := range f.tensors {
		if !t.Type.Known() {
			list = append(list, t)
		}
	}
	return list
}

// Keys returns the metadata keys in the order of the file.
func (f *File) Keys() []string { return slices.Clone(f.keys) }

// Value returns the value of a metadata key: one of uint8, int8, uint16, int16,
// uint32, int32, uint64, int64, float32, float64, bool, string, or a slice of
// one of these. Arrays and strings are copied out of the file anew at each call.
func (f *File) Value(key string) (any, bool) {
	v, ok := f.values[key]
	if !ok {
		return nil, false
	}
	return v.decode(), true
}

// String returns the value of a key that holds a string.
func (f *File) String(key string) (string, bool) {
	v, ok := f.values[key]
	if !ok || v.array || v.kind != kindString {
		return "", false
	}
	return string(v.raw), true
}

// Bool returns the value of a key that holds a bool.
func (f *File) Bool(key string) (value, ok bool) {
	v, found := f.values[key]
	if !found || v.array || v.kind != kindBool {
		return false, false
	}
	return v.raw[0] != 0, true
}

// Uint returns the value of a key that holds an integer of any width, unless
// it is negative.
func (f *File) Uint(key string) (uint64, bool) {
	switch n := f.scalar(key).(type) {
	case uint64:
		return n, true
	case int64:
		return uint64(n), n >= 0
	}
	return 0, false
}

// Int returns the value of a key that holds an integer of any width, unless it
// is too large for an int64.
func (f *File) Int(key string) (int64, bool) {
	switch n := f.scalar(key).(type) {
	case uint64:
		return int64(n), int64(n) >= 0
	case int64:
		return n, true
	}
	return 0, false
}

// Float returns the value of a key that holds a number of any kind.
func (f *File) Float(key string) (float64, bool) {
	switch n := f.scalar(key).(type) {
	case uint64:
		return float64(n), true
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// scalar returns a number widened to uint64, int64 or float64; nil for
// anything else.
func (f *File) scalar(key string) any {
	v, ok := f.values[key]
	if !ok || v.array {
		return nil
	}
	return v.number(0)
}

// Strings returns the value of a key that holds an array of strings.
func (f *File) Strings(key string) ([]string, bool) {
	v, ok := f.values[key]
	if !ok || !v.array || v.kind != kindString {
		return nil, false
	}
	return v.strings(), true
}

// Floats returns the value of a key that holds an array of float32 or float64.
func (f *File) Floats(key string) ([]float32, bool) {
	v, ok := f.values[key]
	if !ok || !v.array || v.kind != kindFloat32 && v.kind != kindFloat64 {
		return nil, false
	}
	list := make([]float32, v.count)
	for i := range list {
		list[i] = float32(v.number(i).(float64))
	}
	return list, true
}

// Ints returns the value of a key that holds an array of integers of any
// width. Values over the largest int64 are not representable: then ok is false.
func (f *File) Ints(key string) ([]int64, bool) {
	v, ok := f.values[key]
	if !ok || !v.array || !v.kind.integer() {
		return nil, false
	}
	list := make([]int64, v.count)
	for i := range list {
		switch n := v.number(i).(type) {
		case uint64:
			if int64(n) < 0 {
				return nil, false
			}
			list[i] = int64(n)
		case int64:
			list[i] = n
		}
	}
	return list, true
}

// Bools returns the value of a key that holds an array of bools.
func (f *File) Bools(key string) ([]bool, bool) {
	v, ok := f.values[key]
	if !ok || !v.array || v.kind != kindBool {
		return nil, false
	}
	return v.decode().([]bool), true
}
