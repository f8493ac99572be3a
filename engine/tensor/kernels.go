package tensor

import (
	"fmt"
	"sync"
)

// Kernels is the function table of one level. It is immutable and safe for
// concurrent use; every matrix remembers nothing of it, so a matrix must be
// used with Kernels of the level that packed it.
type Kernels struct {
	Level Level // the instruction set the functions use
	R     int   // rows per panel of a packed matrix: 16 at AVX512, else 8

	quant quantTable // kernels on block-quantised weights
	float floatTable // kernels on F32, F16 and BF16 weights
	ops   opsTable   // element-wise operations

	parts   int        // into which activations are quantised: 1, or 2 after Split
	plain   bool       // see Plain
	scratch *sync.Pool // of *scratch
}

// For returns the kernels of a level. The error says that the processor or the
// build lacks the level.
func For(level Level) (*Kernels, error) {
	if have := Detect(); level > have {
		return nil, fmt.Errorf("tensor: level %v is not available here, the highest is %v", level, have)
	}
	k := &Kernels{
		Level: level,
		R:     level.PanelRows(),
		parts: 1,
		quant: quantTableFor(level),
		float: floatTableFor(level),
		ops:   opsTableFor(level),

		scratch: &sync.Pool{New: func() any { return new(scratch) }},
	}
	return k, nil
}

// Plain returns kernels that leave out of packed activations what only products
// with a matrix of Together above 1 read. They are for the other products.
func (k *Kernels) Plain() *Kernels {
	c := *k
	c.plain = true
	return &c
}
