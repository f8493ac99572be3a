package vector

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
)

const (
	blockRows  = 4096 // rows of a block; a multiple of 4
	firstRows  = 64   // rows that a block begins with; it doubles
	maxDims    = 8192
	maxRows    = 1 << 31
	lane       = 64  // numbers of one piece of a row
	compactMin = 256 // dead rows that are not worth moving the others for
)

// ErrOrder says that a new id is not greater than all ids before it.
var ErrOrder = errors.New("a new vector's id must be greater than all before it")

// Slab holds the vectors of one collection. Its methods may be called from
// several goroutines; a search holds off a change for as long as it scans.
type Slab struct {
	dims, padded, words int
	level               Level
	kernel              dots
	biased              bool

	mu         sync.RWMutex
	ids        []int64  // ascending; the index is the row
	dead       []uint64 // one bit for each row
	alive      int
	blocks     []*block
	generation uint64
}

// block is up to blockRows rows.
type block struct {
	codes []int8    // [rows][padded]
	scale []float32 // [rows]: code * scale is the number
	sum   []int32   // [rows]: sum of the codes
	signs []uint64  // [rows][words]: bit set for a code below zero
}

// New returns an empty slab for vectors of dims numbers, 1 to 8192.
func New(dims int) (*Slab, error) {
	levels := machineLevels()
	return NewAt(dims, levels[len(levels)-1])
}

// NewAt is New with kernels of a chosen level.
func NewAt(dims int, l Level) (*Slab, error) {
	if dims < 1 || dims > maxDims {
		return nil, fmt.Errorf("vectors of %d dimensions: it must be 1 to %d", dims, maxDims)
	}
	if !slices.Contains(machineLevels(), l) {
		return nil, fmt.Errorf("this machine has no %s", l)
	}
	padded := (dims + lane - 1) / lane * lane
	s := &Slab{dims: dims, padded: padded, words: padded / 64, level: l}
	s.kernel, s.biased = kernel(l)
	return s, nil
}

// Dims returns the numbers of a vector.
func (s *Slab) Dims() int { return s.dims }

// Level returns the level of the kernels.
func (s *Slab) Level() Level { return s.level }

// Len returns how many vectors there are.
func (s *Slab) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.alive
}

// Bytes returns the memory that the vectors take.
func (s *Slab) Bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := int64(cap(s.ids)+cap(s.dead)) * 8
	for _, b := range s.blocks {
		n += int64(len(b.codes)) + int64(len(b.scale))*8 + int64(len(b.signs))*8
	}
	return n
}

// Generation returns what the caller last set: the state of the truth that the
// slab shows.
func (s *Slab) Generation() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.generation
}

// SetGeneration remembers the state of the truth.
func (s *Slab) SetGeneration(g uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation = g
}

// Put adds the vector of an id, or replaces it. The length of v does not
// matter, its direction does. An id that is new must be greater than all that
// were put before (ErrOrder).
func (s *Slab) Put(id int64, v []float32) error {
	codes := make([]int8, s.padded)
	scale, err := encode(codes, v, s.dims)
	if err != nil {
		return fmt.Errorf("vector %d: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(id, codes, scale)
}

// put stores a row that is encoded already.
func (s *Slab) put(id int64, codes []int8, scale float32) error {
	row, found := slices.BinarySearch(s.ids, id)
	switch {
	case found:
		if s.isDead(row) {
			s.dead[row/64] &^= 1 << (row % 64)
			s.alive++
		}
	case row < len(s.ids):
		return fmt.Errorf("vector %d: %w (%d)", id, ErrOrder, s.ids[len(s.ids)-1])
	case row >= maxRows:
		return fmt.Errorf("a slab holds %d vectors at most", maxRows)
	default:
		s.ids = append(s.ids, id)
		if row%64 == 0 {
			s.dead = append(s.dead, 0)
		}
		s.alive++
		s.room(row)
	}
	b, i := s.blocks[row/blockRows], row%blockRows
	copy(b.codes[i*s.padded:][:s.padded], codes)
	b.scale[i] = scale
	b.sum[i] = 0
	signs := b.signs[i*s.words:][:s.words]
	clear(signs)
	for j, c := range codes {
		b.sum[i] += int32(c)
		if c < 0 {
			signs[j/64] |= 1 << (j % 64)
		}
	}
	return nil
}

// room makes the block of a row large enough.
func (s *Slab) room(row int) {
	if row/blockRows == len(s.blocks) {
		rows := firstRows
		if row > 0 {
			rows = blockRows
		}
		s.blocks = append(s.blocks, s.newBlock(rows))
		return
	}
	b := s.blocks[row/blockRows]
	if row%blockRows < len(b.scale) {
		return
	}
	wider := s.newBlock(2 * len(b.scale))
	copy(wider.codes, b.codes)
	copy(wider.scale, b.scale)
	copy(wider.sum, b.sum)
	copy(wider.signs, b.signs)
	s.blocks[row/blockRows] = wider
}

func (s *Slab) newBlock(rows int) *block {
	return &block{
		codes: make([]int8, rows*s.padded),
		scale: make([]float32, rows),
		sum:   make([]int32, rows),
		signs: make([]uint64, rows*s.words),
	}
}

func (s *Slab) isDead(row int) bool { return s.dead[row/64]>>(row%64)&1 == 1 }

// Delete removes the vectors of ids and tells how many there were. Nothing of
// them stays in memory.
func (s *Slab) Delete(ids ...int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, id := range ids {
		row, found := slices.BinarySearch(s.ids, id)
		if !found || s.isDead(row) {
			continue
		}
		s.dead[row/64] |= 1 << (row % 64)
		s.alive--
		n++
		b, i := s.blocks[row/blockRows], row%blockRows
		clear(b.codes[i*s.padded:][:s.padded])
		clear(b.signs[i*s.words:][:s.words])
		b.scale[i], b.sum[i] = 0, 0
	}
	if gone := len(s.ids) - s.alive; gone > compactMin && gone > s.alive/4 {
		s.compact()
	}
	return n
}

// compact moves the rows that are alive together.
func (s *Slab) compact() {
	old := struct {
		ids    []int64
		dead   []uint64
		blocks []*block
	}{s.ids, s.dead, s.blocks}
	s.ids, s.dead, s.blocks, s.alive = nil, nil, nil, 0
	for row, id := range old.ids {
		if row > 0 && row%blockRows == 0 {
			old.blocks[row/blockRows-1] = nil // at most one block twice in memory
		}
		if old.dead[row/64]>>(row%64)&1 == 1 {
			continue
		}
		b, i := old.blocks[row/blockRows], row%blockRows
		if err := s.put(id, b.codes[i*s.padded:][:s.padded], b.scale[i]); err != nil {
			panic(err) // the ids ascended before
		}
	}
}

// encode writes v's direction as int8 numbers and returns their scale. dst is
// longer than v; what is over is zero.
func encode(dst []int8, v []float32, dims int) (scale float32, err error) {
	if len(v) != dims {
		return 0, fmt.Errorf("it has %d dimensions, the others have %d", len(v), dims)
	}
	var square, most float64
	for i, x := range v {
		f := float64(x)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return 0, fmt.Errorf("number %d of it is %v", i, x)
		}
		square += f * f
		most = max(most, math.Abs(f))
	}
	clear(dst[len(v):])
	if most == 0 {
		clear(dst)
		return 0, nil
	}
	for i, x := range v {
		dst[i] = int8(math.RoundToEven(float64(x) / most * 127))
	}
	return float32(most / 127 / math.Sqrt(square)), nil
}
