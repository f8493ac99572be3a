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
	decode, prefill []share
}

// share is a range of panels of one matrix, or of all for twins.
type share struct{ mat, from, to int }

// newOp returns the op of the matrices, which have equally many columns.
func newOp(mats ...*tensor.Matrix) op {
	o := op{mats: mats}
	for _, m := range mats {
		if m == nil {
			return op{} // the loader has refused the file
		}
		switch m.Type() {
		case tensor.F32, tensor.F16, tensor.BF16:
		default:
			o.packs = true
		}
	}
	return o
}

// newTwins returns an op whose two matrices are worked on in step.
func newTwins(a, b *tensor.Matrix) op {
	o := newOp(a, b)
	o.twins = true
	return o
}

// cols returns the length of the input.
func (o *op) cols() int { return o.mats[0].Cols() }

// share plans the work of both kinds of passes.
func (o *op) share(decode, prefill int) {
	const leastPanels = 2 // per share of a large pass: fewer would read the input too often
	o.decode = o.shares(decode, 1)
	o.prefill = o.shares(prefill, leastPanels)
}

// shares cuts the panels into ranges that become smaller towards the end, so
// that workers which take one after another end at about the same time.
func (o *op) shares(workers, least int) []share {
	left := 0
	mats := o.mats
	if o.twins {
		mats = mats[:1]
	}
	for _, m := range mats {
		left += m.Panels()
	}
	var list []share
	for i, m := range mats {
		for from := 0; from < m.Panels(); {
			n := max(left/(2*workers), least)
			if workers == 1 {
				n = left
			}
			n = min(n, m.Panels()-from)
			list = append(list, share{i, from, from + n})
			from += n
			left -= n
		}
	}
	return list
}
