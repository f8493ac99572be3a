package tensor

// ReferenceActivations is PackActivations by the portable quantiser.
func (k *Kernels) ReferenceActivations(dst []byte, x []float32, stride, tokens, cols, index int) {
	slow := *k
	slow.quant.activation = genericQuantTable(k.Level).activation
	slow.PackActivations(dst, x, stride, tokens, cols, index)
}

// PackedBytes returns the packed weights.
func (m *Matrix) PackedBytes() []byte { return m.data }
