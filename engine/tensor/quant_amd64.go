package tensor

//go:generate go run ./gen/quant

func quantTableFor(level Level) quantTable {
	switch level {
	case AVX512:
		return quantTable{mul: quantKernelsAVX512(), activation: genericActivation(level)}
	case AVX2:
		return quantTable{mul: quantKernelsAVX2(), activation: genericActivation(level)}
	}
	return genericQuantTable(level)
}
