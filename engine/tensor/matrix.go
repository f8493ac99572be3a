package tensor

import "fmt"

// Matrix is a packed weight matrix. Its memory belongs to the Arena it was made
// in. It is immutable once every row is packed, and then safe for concurrent use.
type Matrix struct {
	typ        Type
	level      Level
	rows, cols int
	r          int    // rows per panel
	panel      int    // bytes per panel
	data       []byte // panels, one after another
}

// Rows returns the number of output values.
func (m *Matrix) Rows() int { return m.rows }

// Cols returns the length of the input vector.
func (m *Matrix) Cols() int { return m.cols }

// Type returns the type of the weights.
func (m *Matrix) Type() Type { return m.typ }

// Panels returns the number of panels: the unit by which work is shared out.
func (m *Matrix) Panels() int { return (m.rows + m.r - 1) / m.r }

// Together returns how many panels a product with many tokens takes at once.
// Ranges of other multiples cost more.
func (m *Matrix) Together() int {
	if m.level == AVX2 && m.typ == Q8_0 {
		return widePanels
	}
	return 1
}

// PaddedRows returns Rows rounded up to whole panels: the output values that a
// product writes for each token.
func (m *Matrix) PaddedRows() int { return m.Panels() * m.r }

// Bytes returns the size of the packed weights.
func (m *Matrix) Bytes() int { return len(m.data) }

// packedFormat is the packed size of a quantised type per row: head bytes
// before every 256 columns, and block bytes for every 32.
type packedFormat struct{ head, block int }

func (t Type) packedFormat() packedFormat {
	switch t {
	case Q4_0:
		return packedFormat{0, 2 + 16}
	case Q4_1:
		return packedFormat{0, 4 + 16}
	case Q5_0:
		return packedFormat{0, 2 + 16 + 4}
	case Q5_1:
		return packedFormat{0, 4 + 16 + 4}
	case Q8_0:
		return packedFormat{0, 2 + 32}
	case Q4_K:
		return packedFormat{4, 2 + 16}
	case Q5_K:
		return packedFormat{4, 2 + 16 + 4}
	case Q6_K:
		return packedFormat{2, 2 + 16 + 8}
	}
	panic("tensor: no packed format for " + t.String())
}

// packedRow returns the packed bytes of one row of a matrix.
func packedRow(t Type, cols int) int {
	if t.isFloat() {
		_, size, _ := t.Block()
		return cols * size
	}
	f := t.packedFormat()
	n := cols / 32 * f.block
	if f.head != 0 {
		n += cols / 256 * f.head
	}
	return n
}

// NewMatrix makes room in a for a matrix of rows x cols weights of type t.
// Every row must then be packed by PackRows before the matrix is used.
func (k *Kernels) NewMatrix(a *Arena, t Type, rows, cols int) (*Matrix, error) {
	elems, _, ok := t.Block()
	switch {
	case !ok:
		return nil, fmt.Errorf("tensor: cannot compute with %v", t)
	case rows <= 0 || cols <= 0 || cols%elems != 0 || rows > maxDim || cols > maxDim:
		return nil, fmt.Errorf("tensor: cannot pack %d rows of %d columns of %v", rows, cols, t)
	}
	m := &Matrix{typ: t, level: k.Level, rows: rows, cols: cols, r: k.R}
	m.panel = packedRow(t, cols) * m.r
	m.data = a.Bytes(m.Panels() * m.panel)
	return m, nil
}

// maxDim bounds rows and columns, so that no size overflows.
const maxDim = 1 << 26

// PackRows packs the rows from..to-1. raw holds all rows of the matrix as they
// lie in a model file. from must be a multiple of R, and so must to, unless it
// is the number of rows. Calls with different rows may run at the same time.
func (k *Kernels) PackRows(m *Matrix, raw []byte, from, to int) error {
	elems, size, _ := m.typ.Block()
	rowBytes := m.cols / elems * size
	switch {
	case m.level != k.Level:
		return fmt.Errorf("tensor: the matrix is of level %v, not %v", m.level, k.Level)
	case len(raw) != m.rows*rowBytes:
		return fmt.Errorf("tensor: %d bytes are not %d rows of %d columns of %v", len(raw), m.rows, m.cols, m.typ)
	case from < 0 || from%m.r != 0 || to > m.rows || to%m.r != 0 && to != m.rows:
		return fmt.Errorf("tensor: rows %d to %d are not whole panels", from, to)
	}
	for r := from; r < to; r += m.r {
		dst := m.data[r/m.r*m.panel:][:m.panel]
		src := raw[r*rowBytes : min(r+m.r, m.rows)*rowBytes]
		packPanel(m, dst, src, rowBytes)
	}
	return nil
}

// Pack packs a whole matrix.
func (k *Kernels) Pack(a *Arena, t Type, rows, cols int, raw []byte) (*Matrix, error) {
	m, err := k.NewMatrix(a, t, rows, cols)
	if err != nil {
		return nil, err
	}
	return m, k.PackRows(m, raw, 0, rows)
}
