package vector

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
)

// The form of a saved slab, numbers little-endian:
//
//	magic "1bitvec1", dims u32, zero u32, rows u64, generation u64
//	for each row: id i64, scale f32, dims codes i8
//	CRC-32C of all before u32
const (
	fileMagic  = "1bitvec1"
	fileHeader = 32
)

// ErrDamaged says that bytes are no saved slab, or not a whole one.
var ErrDamaged = errors.New("damaged vector file")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// WriteTo saves the slab. Changes wait until it is written.
func (s *Slab) WriteTo(w io.Writer) (int64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	b := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<18)
	head := append(make([]byte, 0, fileHeader), fileMagic...)
	head = binary.LittleEndian.AppendUint64(head, uint64(s.dims))
	head = binary.LittleEndian.AppendUint64(head, uint64(s.alive))
	head = binary.LittleEndian.AppendUint64(head, s.generation)
	_, _ = b.Write(head) // a bufio.Writer keeps its first error
	row := make([]byte, 12+s.dims)
	for n, id := range s.ids {
		if s.isDead(n) {
			continue
		}
		k, i := s.blocks[n/blockRows], n%blockRows
		binary.LittleEndian.PutUint64(row, uint64(id))
		binary.LittleEndian.PutUint32(row[8:], math.Float32bits(k.scale[i]))
		for j, c := range k.codes[i*s.padded:][:s.dims] {
			row[12+j] = byte(c)
		}
		_, _ = b.Write(row)
	}
	if err := b.Flush(); err != nil {
		return 0, err
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32())); err != nil {
		return 0, err
	}
	return fileHeader + int64(s.alive)*int64(len(row)) + 4, nil
}

// Read returns a slab that was saved. Errors of the content are ErrDamaged. It
// allocates no more than a small multiple of what it has read.
func Read(r io.Reader) (*Slab, error) {
	f := &fileReader{b: bufio.NewReaderSize(r, 1<<18), sum: crc32.New(crc32.MakeTable(crc32.Castagnoli))}
	head := make([]byte, fileHeader)
	if err := f.read(head); err != nil {
		return nil, err
	}
	if string(head[:8]) != fileMagic {
		return nil, damaged("it does not begin with %q", fileMagic)
	}
	dims, rows := binary.LittleEndian.Uint64(head[8:]), binary.LittleEndian.Uint64(head[16:])
	if dims < 1 || dims > maxDims || rows > maxRows {
		return nil, damaged("%d vectors of %d dimensions", rows, dims)
	}
	s, err := New(int(dims))
	if err != nil {
		return nil, err
	}
	s.generation = binary.LittleEndian.Uint64(head[24:])
	if err := f.rows(s, rows); err != nil {
		return nil, err
	}
	var tail [4]byte
	if _, err := io.ReadFull(f.b, tail[:]); err != nil {
		return nil, f.cut(err)
	}
	if binary.LittleEndian.Uint32(tail[:]) != f.sum.Sum32() {
		return nil, damaged("its checksum is wrong")
	}
	if _, err := f.b.ReadByte(); err != io.EOF {
		return nil, damaged("something follows its end")
	}
	return s, nil
}

type fileReader struct {
	b   *bufio.Reader
	sum hash.Hash32
}

func (f *fileReader) read(p []byte) error {
	if _, err := io.ReadFull(f.b, p); err != nil {
		return f.cut(err)
	}
	f.sum.Write(p)
	return nil
}

func (f *fileReader) cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("it ends early")
	}
	return err
}

func (f *fileReader) rows(s *Slab, n uint64) error {
	row, codes := make([]byte, 12+s.dims), make([]int8, s.padded)
	for range n {
		if err := f.read(row); err != nil {
			return err
		}
		id := int64(binary.LittleEndian.Uint64(row))
		scale := math.Float32frombits(binary.LittleEndian.Uint32(row[8:]))
		if !(scale >= 0 && scale <= 1) {
			return damaged("vector %d has the scale %v", id, scale)
		}
		for i, c := range row[12:] {
			if codes[i] = int8(c); codes[i] == -128 {
				return damaged("vector %d has the number -128", id)
			}
		}
		if len(s.ids) > 0 && id <= s.ids[len(s.ids)-1] {
			return damaged("vector %d follows vector %d", id, s.ids[len(s.ids)-1])
		}
		if err := s.put(id, codes, scale); err != nil {
			return err
		}
	}
	return nil
}
