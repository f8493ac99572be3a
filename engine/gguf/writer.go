package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
)

// Writer gathers metadata and tensors and writes them as a GGUF file of
// version 3. It is for one goroutine.
type Writer struct {
	keys    []string
	values  map[string]any
	tensors []pending
	names   map[string]bool
}

// pending is a tensor that waits to be written.
type pending struct {
	Tensor
	write func(io.Writer) error
}

// NewWriter returns an empty Writer with the alignment of 32 bytes.
func NewWriter() *Writer {
	return &Writer{values: map[string]any{}, names: map[string]bool{}}
}

// Set sets a metadata key to a value of one of the types that [File.Value]
// returns. Keys are written in the order in which they were first set. The key
// general.alignment, a uint32 and a power of two, sets the alignment of tensor
// data. The value is kept, not copied.
func (w *Writer) Set(key string, value any) error {
	if key == "" || len(key) > maxKey {
		return fmt.Errorf("key of %d bytes, not 1 to %d", len(key), maxKey)
	}
	k, array, ok := kindOf(value)
	if !ok {
		return fmt.Errorf("key %q: a value of type %T cannot be written", key, value)
	}
	if array && lenOf(k, value) > maxElements {
		return fmt.Errorf("key %q: array of %d elements is over the limit of %d", key, lenOf(k, value), maxElements)
	}
	if key == alignmentKey {
		n, ok := value.(uint32)
		if !ok || n == 0 || n&(n-1) != 0 {
			return fmt.Errorf("%s %v is not a uint32 that is a power of two", key, value)
		}
	}
	if _, ok := w.values[key]; !ok {
		if len(w.keys) == maxKeys {
			return fmt.Errorf("key %q is over the limit of %d keys", key, maxKeys)
		}
		w.keys = append(w.keys, key)
	}
	w.values[key] = value
	return nil
}

// Add adds a tensor; shape has the contiguous extent first. data are kept, not
// copied, and must have the size that type and shape ask for.
func (w *Writer) Add(name string, t Type, shape []uint64, data []byte) error {
	if size, why := tensorSize(t, shape); why == "" && t.Known() && size != uint64(len(data)) {
		return fmt.Errorf("tensor %q: %v of shape %v takes %d bytes, not %d", name, t, shape, size, len(data))
	}
	return w.AddFunc(name, t, shape, func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	})
}

// AddFunc adds a tensor whose data are made while the file is written: write is
// called once for each writing and must write just the bytes that type and
// shape ask for.
func (w *Writer) AddFunc(name string, t Type, shape []uint64, write func(io.Writer) error) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("tensor name of %d bytes, not 1 to %d", len(name), maxName)
	}
	if len(w.tensors) == maxTensors {
		return fmt.Errorf("tensor %q is over the limit of %d tensors", name, maxTensors)
	}
	if w.names[name] {
		return fmt.Errorf("tensor %q was added before", name)
	}
	if !t.Known() {
		return fmt.Errorf("tensor %q: unknown %v", name, t)
	}
	size, why := tensorSize(t, shape)
	if why != "" {
		return fmt.Errorf("tensor %q: %s", name, why)
	}
	w.names[name] = true
	w.tensors = append(w.tensors, pending{
		Tensor: Tensor{Name: name, Type: t, Shape: slices.Clone(shape), size: size},
		write:  write,
	})
	return nil
}

// WriteTo writes the file. It implements io.WriterTo.
func (w *Writer) WriteTo(dst io.Writer) (int64, error) {
	align := uint64(defaultAlignment)
	if n, ok := w.values[alignmentKey].(uint32); ok {
		align = uint64(n)
	}
	out := &counter{w: bufio.NewWriterSize(dst, 1<<16)}
	_, _ = out.Write(w.head(align)) // out keeps the error
	for i := range w.tensors {
		t := &w.tensors[i]
		out.pad(align)
		from := out.n
		if err := t.write(out); err != nil && out.err == nil {
			out.err = fmt.Errorf("writing tensor %q: %w", t.Name, err)
		}
		if n := out.n - from; out.err == nil && n != t.size {
			out.err = fmt.Errorf("writing tensor %q: %d bytes instead of %d", t.Name, n, t.size)
		}
	}
	out.pad(align)
	if out.err == nil {
		out.err = out.w.Flush()
	}
	return int64(out.n), out.err
}

// head returns all that comes before the tensor data, without padding.
func (w *Writer) head(align uint64) []byte {
	le := binary.LittleEndian
	b := []byte("GGUF")
	b = le.AppendUint32(b, 3)
	b = le.AppendUint64(b, uint64(len(w.tensors)))
	b = le.AppendUint64(b, uint64(len(w.keys)))
	for _, key := range w.keys {
		b = appendString(b, key)
		b = appendValue(b, w.values[key])
	}
	offset := uint64(0)
	for _, t := range w.tensors {
		b = appendString(b, t.Name)
		b = le.AppendUint32(b, uint32(len(t.Shape)))
		for _, e := range t.Shape {
			b = le.AppendUint64(b, e)
		}
		b = le.AppendUint32(b, uint32(t.Type))
		b = le.AppendUint64(b, offset)
		offset += (t.size + align - 1) &^ (align - 1)
	}
	return b
}

// WriteFile writes the file to a PATH.partial and renames that, so that path holds either all of it or what it held before.
func (w *Writer) WriteFile(path string) (err error) {
	tmp, err := os.OpenFile(path+".partial", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if _, err := w.WriteTo(tmp); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// counter counts what passes through and keeps the first error.
type counter struct {
	w   *bufio.Writer
	n   uint64
	err error
}

func (c *counter) Write(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.w.Write(b)
	c.n += uint64(n)
	c.err = err
	return n, err
}

func (c *counter) pad(align uint64) {
	var zeros [4096]byte
	for left := -c.n & (align - 1); left > 0 && c.err == nil; {
		n, _ := c.Write(zeros[:min(left, uint64(len(zeros)))])
		left -= uint64(n)
	}
}
