// Package laya is the built-in classifier: it says what kind of answer a request wants, from the user's own words alone.
//
// The model is an embedding bag over hashed words and letters with one hidden layer. CARD.md beside this file says how it was
// trained, how well it does and where it fails.
package laya

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Class is the kind of an answer.
type Class uint8

// The classes. A request is LongDoc by its length alone; the net chooses among the others.
const (
	Code Class = iota
	Short
	Prose
	LongDoc
	Classes int = iota
)

// String is the class's name in the ABI.
func (c Class) String() string {
	switch c {
	case Code:
		return "code"
	case Short:
		return "short"
	case Prose:
		return "prose"
	case LongDoc:
		return "long_doc"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// LongBytes is the length, in bytes of the last user message, from which a request is LongDoc.
const LongBytes = 1024

// The shape of the net.
const (
	Dims   = 8 // numbers in a row of the table
	Bags   = 3 // words, ends, letters
	Hidden = 32
	Inputs = Dims * Bags
	Chosen = 3 // classes that the net chooses among
)

// MaxRows bounds the table, so that the weights stay under a million bytes.
const MaxRows = 122880

// The weights file: a header, the table (Dims bytes a row, 128 is zero), then the layers, all little-endian.
const (
	magic      = "LAYA\x01\x00\x00\x00"
	headerSize = len(magic) + 4 + 4 + 4 // rows, the table's scale, temperature
	layersSize = Hidden*(Inputs+4+4) + Chosen*(Hidden+4+4)
)

// Model is loaded weights. It is immutable, and safe for use by several goroutines.
type Model struct {
	rows   uint32
	table  []uint64 // [rows], each the biased bytes of its dimensions
	scale  float32
	inverT float32 // 1 / temperature
	hidden [Hidden][Inputs]float32
	bias   [Hidden]float32
	out    [Chosen][Hidden]float32
	shift  [Chosen]float32
}

// Answer is what the classifier says: the class, how sure it is, and a probability for each class; Scores add up to 1.
type Answer struct {
	Class      Class
	Confidence float32
	Scores     [Classes]float32
}

// ErrWeights is wrapped by every refusal of Load.
var ErrWeights = errors.New("not the weights of this classifier")

// Load reads weights. It keeps nothing of b.
func Load(b []byte) (*Model, error) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: no header", ErrWeights)
	}
	rows := binary.LittleEndian.Uint32(b[len(magic):])
	if rows == 0 || rows > MaxRows || len(b) != headerSize+int(rows)*Dims+layersSize {
		return nil, fmt.Errorf("%w: %d rows in %d bytes", ErrWeights, rows, len(b))
	}
	m := &Model{rows: rows, scale: float(b[len(magic)+4:]), inverT: 1 / float(b[len(magic)+8:]), table: make([]uint64, rows)}
	b = b[headerSize:]
	for i := range m.table {
		m.table[i] = binary.LittleEndian.Uint64(b[i*8:])
	}
	b = b[rows*Dims:]
	for i := range m.hidden {
		m.bias[i], b = layer(m.hidden[i][:], b)
	}
	for i := range m.out {
		m.shift[i], b = layer(m.out[i][:], b)
	}
	for _, v := range []float32{m.scale, m.inverT} {
		if !(v > 0 && v < 1e6) {
			return nil, fmt.Errorf("%w: a scale is out of range", ErrWeights)
		}
	}
	return m, nil
}

// layer reads one row of a layer: its scale, its bias and a byte for each weight.
func layer(dst []float32, b []byte) (bias float32, rest []byte) {
	scale := float(b)
	for i := range dst {
		dst[i] = scale * float32(int8(b[8+i]))
	}
	return float(b[4:]), b[8+len(dst):]
}

func float(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// Rows is the number of rows in the table, which Features needs.
func (m *Model) Rows() uint32 { return m.rows }

// Classify says which class a request has. Text is the last user message or, when that is long, its beginning; size is the
// message's length in bytes. It allocates nothing; f is room to work in, used by one call at a time.
func (m *Model) Classify(text []byte, size int, f *Features) Answer {
	if size >= LongBytes || len(text) >= LongBytes {
		return Answer{Class: LongDoc, Confidence: 1, Scores: [Classes]float32{LongDoc: 1}}
	}
	f.Read(text, m.rows)
	var in [Inputs]float32
	for bag := range f.bags {
		m.sum((*[Dims]float32)(in[bag*Dims:]), f.Bag(bag))
	}
	logits := m.shift
	for h := range m.hidden {
		v := m.bias[h]
		for i, w := range m.hidden[h] {
			v += float32(w * in[i])
		}
		if v > 0 {
			for i := range logits {
				logits[i] += float32(m.out[i][h] * v)
			}
		}
	}
	return answer(logits, m.inverT)
}

// sum adds up rows of the table, divided by the root of their number. A word holds a row's 8 bytes; it is split into bytes of even and of
// odd place, which are added four at a time in lanes of 16 bits: 256 of them cannot overflow one.
func (m *Model) sum(dst *[Dims]float32, rows []uint32) {
	const lanes = 0x00ff00ff00ff00ff
	var total [Dims]int32
	n := int32(len(rows))
	for len(rows) > 0 {
		part := rows[:min(len(rows), 256)]
		rows = rows[len(part):]
		var even, odd uint64
		for _, r := range part {
			x := m.table[r]
			even += x & lanes
			odd += x >> 8 & lanes
		}
		for i := range 4 {
			total[2*i] += int32(even >> (16 * i) & 0xffff)
			total[2*i+1] += int32(odd >> (16 * i) & 0xffff)
		}
	}
	k := float32(m.scale * Norm(int(n)))
	for i := range dst {
		dst[i] = float32(k * float32(total[i]-128*n))
	}
}

// Norm is the factor that a bag of n rows is multiplied by, between a sum's and a mean's: less than 1/sqrt(n), so that neither a few rows
// nor the many of a long text shout.
func Norm(n int) float32 {
	root := math.Sqrt(float64(n) + 4)
	return float32(2 / (root * math.Sqrt(root)))
}

// answer turns logits into probabilities.
func answer(logits [Chosen]float32, inverse float32) Answer {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	a := Answer{Class: Class(best)}
	total := float32(0)
	for i, v := range logits {
		a.Scores[i] = exp(float32((v - logits[best]) * inverse))
		total += a.Scores[i]
	}
	for i := range logits {
		a.Scores[i] /= total
	}
	a.Confidence = a.Scores[best]
	return a
}

// exp is e to the power of x <= 0, the same to the bit on every machine, to six digits: (1 + x/1024)^1024 refined by a second
// term.
func exp(x float32) float32 {
	if !(x > -40) {
		return 0
	}
	v := float64(x) / 1024
	v = 1 + float64(v*(1+float64(v*(0.5+float64(v*(1.0/6))))))
	for range 10 {
		v = float64(v * v)
	}
	return float32(v)
}
