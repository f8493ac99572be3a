package model

import "onebit/engine/tensor"

// op is one step of a pass: the product of one input with one or more
// matrices, shared out among the workers by panels.
type op struct {
	mats  []*tensor.Matrix
	bias  []float32 // of the first matrix; nil = none
	packs bool      // some matrix reads packed activations
	// twins says that a share is the same panels of all matrices, so that the
	// worker can go on with their results at once.
	twins           bool
	unit            int // shares begin at multiples of so many panels
	together        int // and those of large passes at multiples of so many
	decode, prefill []share
}

// share is a range of panels of one matrix, or of all for twins.
type share struct{ mat, from, to int }

// newOp returns the op of the matrices, which have equally many columns.
func newOp(mats ...*tensor.Matrix) op {
	o := op{mats: mats, unit: 1, together: 1}
	for _, m := range mats {
		if m == nil {
			return op{} // the loader has refused the file
		}
		o.together = max(o.together, m.Together())
		switch m.Type() {
		case tensor.F32, tensor.F16, tensor.BF16:
		default:
			o.packs = true
		}
	}
	return o
}

// blockRows is the number of results that a block of packed activations holds.
const blockRows = 32

// newTwins returns an op whose two matrices are worked on in step. Shares of it
// are whole blocks of packed activations, r rows to a panel.
func newTwins(a, b *tensor.Matrix, r int) op {
	o := newOp(a, b)
	o.twins = true
	o.unit = max(1, blockRows/r)
	return o
}

// packer returns the kernels that pack the input of an op.
func (m *Model) packer(o *op) *tensor.Kernels {
	if o.together > 1 {
		return m.k
	}
	return m.plain
}

// cols returns the length of the input.
func (o *op) cols() int { return o.mats[0].Cols() }

// share plans the work of both kinds of passes.
func (o *op) share(decode, prefill int) {
	// Shares of one panel would read the input of a large pass too often, but
	// when there are few panels it is more important to keep all workers busy.
	const panelsPerWorker = 16
	least := 2
	if o.panels() < panelsPerWorker*prefill {
		least = 1
	}
	o.decode = o.shares(decode, 1, o.unit)
	o.prefill = o.shares(prefill, least, max(o.unit, o.together))
}

// panels returns the number of panels that are shared out.
func (o *op) panels() int {
	n := 0
	for _, m := range o.shared() {
		n += m.Panels()
	}
	return n
}

// shared returns the matrices whose panels are counted: one of twins.
func (o *op) shared() []*tensor.Matrix {
	if o.twins {
		return o.mats[:1]
	}
	return o.mats
}

// shares cuts the panels into ranges that become smaller towards the end, so
// that workers which take one after another end at about the same time. They
// have at least so many panels, and but for the last a multiple of unit.
func (o *op) shares(workers, least, unit int) []share {
	left := o.panels()
	var list []share
	for i, m := range o.shared() {
		for from := 0; from < m.Panels(); {
			n := max(left/(2*workers), least)
			if workers == 1 {
				n = left
			}
			n = (n + unit - 1) / unit * unit
			n = min(n, m.Panels()-from)
			list = append(list, share{i, from, from + n})
			from += n
			left -= n
		}
	}
	return list
}
