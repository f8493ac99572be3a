package model

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"unsafe"

	"onebit/engine/gguf"
)

// What a session holds can be written down and taken back. All numbers are little-endian:
//
//	head    stateHead bytes: magic, version, level, sizes, number of tokens, identity of the model, checksum
//	tokens  4 bytes each, then the checksum
//	pages   each its keys and values as they lie in memory, then the checksum; of the last page the used part
//
// A checksum is the CRC-32C of all that comes before it, other checksums left out. The number of tokens gives the size of
// the whole to the byte.
//
// Keys and values are those of one level of kernels. Other levels round differently: a session that went on from theirs
// would not be the one that was saved, bit for bit, nor the one that its tokens make here. So they are refused, and
// whoever has the tokens evaluates them again.
const (
	stateMagic   = "\x891bitKV\n"
	stateVersion = 1
	stateHead    = 128
	stateChunk   = 1 << 20 // bytes that are written or read together, but for whole pages
)

// places in the head
const (
	atVersion  = 8
	atLevel    = 12 // 12 bytes, padded with zeros
	atSizes    = 24 // lanes, layers, key heads, values of a head, tokens of a page
	atTokens   = 44
	atIdentity = 48
	atSum      = stateHead - 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// StateError says why what is read is not the state of a session of this model.
type StateError struct{ What string }

// Error implements error.
func (e *StateError) Error() string { return e.What }

func badState(format string, args ...any) error { return &StateError{fmt.Sprintf(format, args...)} }

// identify hashes what decides about keys and values: the parameters, how vectors are rounded, and of each tensor what
// it is and some of its weights. Any training moves all weights of the tensors that it moves.
func (m *Model) identify(f *gguf.File) (id [sha256.Size]byte) {
	const sample = 4096 // bytes in a place
	h := sha256.New()
	fmt.Fprintf(h, "%+v %v\n", *m.p, m.cfg.Rounding.twice(m.parameters))
	for _, t := range f.Tensors() {
		b := t.Data()
		fmt.Fprintf(h, "%q %v %v %d\n", t.Name, t.Type, t.Shape, len(b))
		for i := range 4 {
			at := max(0, len(b)-sample) / 3 * i
			h.Write(b[at:min(at+sample, len(b))])
		}
	}
	h.Sum(id[:0])
	return id
}

// head returns the head of the state of n tokens.
func (m *Model) stateHeadOf(n int) []byte {
	b := make([]byte, stateHead)
	copy(b, stateMagic)
	put := func(at, v int) { binary.LittleEndian.PutUint32(b[at:], uint32(v)) }
	put(atVersion, stateVersion)
	copy(b[atLevel:atSizes], m.k.Level.String())
	for i, v := range m.sizes() {
		put(atSizes+4*i, v)
	}
	put(atTokens, n)
	copy(b[atIdentity:], m.identity[:])
	put(atSum, int(crc32.Checksum(b[:atSum], castagnoli)))
	return b
}

// sizes are what the layout of a page follows from.
func (m *Model) sizes() [5]int {
	return [...]int{m.k.R, m.p.layers, m.p.kvHeads, m.p.headDim, pageTokens}
}

// readHead checks a head and returns the number of tokens.
func (m *Model) readHead(b []byte) (int, error) {
	get := func(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }
	switch {
	case string(b[:len(stateMagic)]) != stateMagic:
		return 0, badState("it is no state of a session")
	case get(atVersion) != stateVersion:
		return 0, badState("it has version %d of the format, and this program reads %d", get(atVersion), stateVersion)
	case uint32(get(atSum)) != crc32.Checksum(b[:atSum], castagnoli):
		return 0, badState("its head is damaged")
	case string(b[atIdentity:atIdentity+sha256.Size]) != string(m.identity[:]):
		return 0, badState("it is of another model, or of one that is computed otherwise")
	}
	want := m.stateHeadOf(get(atTokens))
	if string(b[atLevel:atSizes]) != string(want[atLevel:atSizes]) {
		return 0, badState("it was made with the kernels for %s, and these are for %s", trimZeros(b[atLevel:atSizes]), m.k.Level)
	}
	if string(b) != string(want) {
		return 0, badState("its pages have another layout")
	}
	if n := get(atTokens); n > m.Capacity() {
		return 0, &ContextError{Tokens: n, Capacity: m.Capacity()}
	}
	return get(atTokens), nil
}

func trimZeros(b []byte) string {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return fmt.Sprintf("%q", b)
}

// StateBytes returns the size of the state of a session of n tokens.
func (m *Model) StateBytes(n int) int64 {
	l := &m.pages
	total := int64(stateHead) + 4*int64(n) + 4
	total += int64(n/pageTokens) * (2*int64(l.size) + 4)
	if used := n % pageTokens; used > 0 {
		total += 2*int64(l.usedNumbers(used))*int64(m.p.layers*m.p.kvHeads) + 4
	}
	return total
}

// usedNumbers returns how many numbers of a part hold the first n positions of a page.
func (l *layout) usedNumbers(n int) int {
	return (n+l.r-1)/l.r*l.r*l.headDim + l.panels*n*l.r
}

// Save writes the state of the session and returns the number of bytes. The session may not change meanwhile; passes over
// other sessions go on. A cancelled Save returns the context's error.
func (s *Session) Save(ctx context.Context, w io.Writer) (int64, error) {
	if s.closed {
		return 0, ErrClosed
	}
	if !littleEndian() {
		return 0, fmt.Errorf("keeping the state of a session: %w on this processor", errors.ErrUnsupported)
	}
	m := s.m
	out := &stateWriter{w: w}
	out.direct(m.stateHeadOf(len(s.ids)))
	tokens := make([]byte, 0, min(stateChunk, 4*len(s.ids)))
	for _, id := range s.ids {
		tokens = binary.LittleEndian.AppendUint32(tokens, uint32(id))
		if len(tokens) == stateChunk {
			out.put(tokens)
			tokens = tokens[:0]
		}
	}
	out.put(tokens)
	out.sum()
	for i := range (len(s.ids) + pageTokens - 1) / pageTokens {
		if err := ctx.Err(); err != nil {
			return out.n, err
		}
		if used := len(s.ids) - i*pageTokens; used >= pageTokens {
			out.put(raw(s.pages[i]))
		} else {
			out.partial(m, s.pages[i], used)
		}
		out.sum()
	}
	out.flush()
	return out.n, out.err
}

// stateWriter collects small pieces and keeps the checksum. The first error stays.
type stateWriter struct {
	w   io.Writer
	buf []byte
	crc uint32
	n   int64
	err error
}

func (o *stateWriter) direct(b []byte) {
	if o.err != nil {
		return
	}
	n, err := o.w.Write(b)
	o.n, o.err = o.n+int64(n), err
}

func (o *stateWriter) flush() {
	if len(o.buf) > 0 {
		o.direct(o.buf)
		o.buf = o.buf[:0]
	}
}

// plain writes what no checksum is of.
func (o *stateWriter) plain(b []byte) {
	if len(o.buf)+len(b) > stateChunk {
		o.flush()
	}
	if len(b) >= stateChunk {
		o.direct(b)
		return
	}
	o.buf = append(o.buf, b...)
}

func (o *stateWriter) put(b []byte) {
	o.crc = crc32.Update(o.crc, castagnoli, b)
	o.plain(b)
}

func (o *stateWriter) sum() { o.plain(binary.LittleEndian.AppendUint32(nil, o.crc)) }

// partial writes the first n positions of a page. What the page holds behind them is somebody else's, or was.
func (o *stateWriter) partial(m *Model, pg page, n int) {
	l := &m.pages
	last := make([]uint16, l.headDim*l.r) // the block that is not full
	whole, rest := n/l.r*l.r, n%l.r
	for layer := range m.p.layers {
		for head := range m.p.kvHeads {
			keys, values := l.parts(pg, layer, head)
			o.put(raw(keys[:whole*l.headDim]))
			if rest > 0 {
				for d := range l.headDim {
					copy(last[d*l.r:][:rest], keys[whole*l.headDim+d*l.r:])
				}
				o.put(raw(last))
			}
			for p := range l.panels {
				o.put(raw(values[p*pageTokens*l.r:][:n*l.r]))
			}
		}
	}
}

// Restore returns a session with the state that Save has written: a session that goes on from it gets the same bits as
// the one that was saved. size is the number of bytes that r has; when that does not fit what the head says, nothing is
// taken. What is no state of this model, or is damaged, is a *StateError; what does not fit into a session is a
// *ContextError.
func (m *Model) Restore(ctx context.Context, r io.Reader, size int64) (*Session, error) {
	in := &stateReader{r: bufio.NewReaderSize(r, 64<<10)}
	n, err := m.stateTokens(in, size)
	if err != nil {
		return nil, err
	}
	s := m.NewSession()
	if err := s.restore(ctx, in, n); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// StateTokens returns how many tokens a state holds of which r is the beginning, as far as the head tells. Its errors are
// Restore's.
func (m *Model) StateTokens(r io.Reader, size int64) (int, error) {
	return m.stateTokens(&stateReader{r: r}, size)
}

func (m *Model) stateTokens(in *stateReader, size int64) (int, error) {
	if !littleEndian() {
		return 0, fmt.Errorf("taking back the state of a session: %w on this processor", errors.ErrUnsupported)
	}
	head := make([]byte, stateHead)
	if err := in.plain(head); err != nil {
		return 0, err
	}
	n, err := m.readHead(head)
	if err != nil {
		return 0, err
	}
	if want := m.StateBytes(n); size != want {
		return 0, badState("it is torn: it has %d bytes, and should have %d", size, want)
	}
	return n, nil
}

// restore reads n tokens and their keys and values into an empty session.
func (s *Session) restore(ctx context.Context, in *stateReader, n int) error {
	m := s.m
	chunk := make([]byte, min(stateChunk, 4*n))
	for len(s.ids) < n {
		b := chunk[:min(len(chunk), 4*(n-len(s.ids)))]
		if err := in.get(b); err != nil {
			return err
		}
		for ; len(b) > 0; b = b[4:] {
			id := binary.LittleEndian.Uint32(b)
			if id >= uint32(m.p.vocab) {
				return badState("it has the token %d, and the vocabulary has %d", id, m.p.vocab)
			}
			s.ids = append(s.ids, int32(id))
		}
	}
	if err := in.sum(); err != nil {
		return err
	}
	for at := 0; at < n; at += pageTokens {
		if err := ctx.Err(); err != nil {
			return err
		}
		pg, err := m.newPage()
		if err != nil {
			return err
		}
		s.pages = append(s.pages, pg)
		if used := n - at; used >= pageTokens {
			err = in.get(raw(pg))
		} else {
			err = in.partial(m, pg, used)
		}
		if err == nil {
			err = in.sum()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stateReader reads and keeps the checksum.
type stateReader struct {
	r   io.Reader
	crc uint32
}

func (in *stateReader) plain(b []byte) error {
	_, err := io.ReadFull(in.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badState("it is torn: it ends too early")
	}
	return err
}

func (in *stateReader) get(b []byte) error {
	if err := in.plain(b); err != nil {
		return err
	}
	in.crc = crc32.Update(in.crc, castagnoli, b)
	return nil
}

func (in *stateReader) sum() error {
	var b [4]byte
	if err := in.plain(b[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(b[:]) != in.crc {
		return badState("it is damaged: a checksum is wrong")
	}
	return nil
}

// partial reads the first n positions of a page.
func (in *stateReader) partial(m *Model, pg page, n int) error {
	l := &m.pages
	blocks := (n + l.r - 1) / l.r * l.r
	for layer := range m.p.layers {
		for head := range m.p.kvHeads {
			keys, values := l.parts(pg, layer, head)
			if err := in.get(raw(keys[:blocks*l.headDim])); err != nil {
				return err
			}
			for p := range l.panels {
				if err := in.get(raw(values[p*pageTokens*l.r:][:n*l.r])); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// raw returns the bytes of numbers, in the order of the processor.
func raw(numbers []uint16) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(numbers))), 2*len(numbers))
}

func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }
