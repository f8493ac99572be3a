package synth

import (
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"sync"

	"onebit/engine/tensor"
)

// deviation is the standard deviation of the sum of eight random bytes.
const deviation = 209.0210515713

// random is an endless row of numbers about mean that are near a normal
// distribution. Number i follows from seed and i alone: it is the sum of the
// eight bytes of a hash, less its mean, times scale. Only one rounding is
// involved, so it is the same on every machine.
type random struct {
	seed  uint64
	scale float32
	mean  float32
}

// fill sets dst to the numbers from index on.
func (r random) fill(dst []float32, index int) []float32 {
	x := r.seed + uint64(index)*step
	for i := range dst {
		x += step
		// The conversion keeps the compiler from fusing the operations.
		dst[i] = r.mean + float32(float32(byteSum(mix(x))-1020)*r.scale)
	}
	return dst
}

// step and mix are those of the generator called SplitMix64.
const step = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// byteSum returns the sum of the eight bytes of x.
func byteSum(x uint64) int {
	const low = 0x00ff00ff00ff00ff
	x = x&low + x>>8&low
	return int(x * 0x0001000100010001 >> 48)
}

// seedOf mixes the seed of a model with the name of a tensor (FNV-1a).
func seedOf(seed uint64, name string) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return mix(seed*step + h)
}

func squareRoot(n int) float64 { return math.Sqrt(float64(n)) }

// matrix makes the bytes of a matrix row by row.
type matrix struct {
	random
	kind       tensor.Type
	cols, rows int
	distinct   int // rows that differ
	rowBytes   int
}

// writeTo writes the rows, made in chunks by all processors.
func (m *matrix) writeTo(out io.Writer) error {
	chunk := max(1, (256<<10)/m.rowBytes)
	workers := runtime.GOMAXPROCS(0)
	kept := make([]byte, m.distinct*m.rowBytes)
	if m.distinct == m.rows { // written as they are made
		kept = make([]byte, min(m.rows, workers*chunk)*m.rowBytes)
	}
	batch := len(kept) / m.rowBytes
	for from := 0; from < m.distinct; from += batch {
		n := min(batch, m.distinct-from)
		if err := m.quantize(kept[:n*m.rowBytes], from, chunk); err != nil {
			return err
		}
		if _, err := out.Write(kept[:n*m.rowBytes]); err != nil {
			return err
		}
	}
	for left := m.rows - m.distinct; left > 0; left -= min(left, m.distinct) {
		if _, err := out.Write(kept[:min(left, m.distinct)*m.rowBytes]); err != nil {
			return err
		}
	}
	return nil
}

// quantize fills dst with the rows from the given one on, chunk rows at a time.
func (m *matrix) quantize(dst []byte, from, chunk int) error {
	rows := len(dst) / m.rowBytes
	errs := make([]error, (rows+chunk-1)/chunk)
	var group sync.WaitGroup
	for k := range errs {
		group.Go(func() {
			first, last := k*chunk, min((k+1)*chunk, rows)
			values := m.fill(make([]float32, (last-first)*m.cols), (from+first)*m.cols)
			errs[k] = tensor.Quantize(m.kind, values, dst[first*m.rowBytes:last*m.rowBytes])
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func writeFloats(out io.Writer, values []float32) error {
	b := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	_, err := out.Write(b)
	return err
}
