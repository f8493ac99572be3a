package conversion

import (
	"fmt"
	"math"

	"onebit/engine/gguf"
)

// imatrix holds, by tensor, the mean square of each input that the tensor was multiplied with, one row for each expert.
//
// A rotated input is a sum over its block with signs of equal size, so the mean square of each is the mean over the
// block. Within a block of a rotated Q4_0 tensor all inputs weigh the same, and the best scale is the one that an
// unweighted search finds: importance tells blocks apart, in what is reported, and changes no bit of the file.
type imatrix map[string]importance

// importance is that of one tensor, by block.
type importance struct {
	means     []float64
	perRow    int // blocks of a row of weights
	rows      int // of weights to an expert
	perExpert int // blocks of means to an expert; 0 when there is one for all
}

// readImatrix reads an importance matrix in GGUF form; nil for an empty path.
func readImatrix(path string) (imatrix, error) {
	if path == "" {
		return nil, nil
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening importance matrix %q: %w (a .dat file must be converted with llama-imatrix first)", path, err)
	}
	defer leave(f)
	m := imatrix{}
	for _, t := range f.Tensors() {
		const suffix = ".in_sum2"
		if len(t.Name) <= len(suffix) || t.Name[len(t.Name)-len(suffix):] != suffix {
			continue
		}
		name := t.Name[:len(t.Name)-len(suffix)]
		counts := f.Tensor(name + ".counts")
		if t.Type != gguf.F32 || counts == nil || counts.Type != gguf.F32 || t.Elements()%rotation != 0 ||
			t.Shape[0]%rotation != 0 || counts.Elements() != t.Elements()/t.Shape[0] {
			return nil, fmt.Errorf("importance matrix %q: the entry of %q is not sound", path, name)
		}
		means, err := blockMeans(t, counts)
		if err != nil {
			return nil, fmt.Errorf("importance matrix %q: %w", path, err)
		}
		m[name] = importance{means: means, perExpert: int(t.Shape[0] / rotation)}
	}
	if len(m) == 0 {
		return nil, fmt.Errorf("importance matrix %q: it holds no entries", path)
	}
	return m, nil
}

// blockMeans returns the mean square of the inputs of each block.
func blockMeans(sums, counts *gguf.Tensor) ([]float64, error) {
	v, err := weightsOf(sums, 0, int(sums.Elements()))
	if err != nil {
		return nil, err
	}
	n, err := weightsOf(counts, 0, int(counts.Elements()))
	if err != nil {
		return nil, err
	}
	means := make([]float64, len(v)/rotation)
	for i, x := range v {
		if count := n[i/int(sums.Shape[0])]; count > 0 {
			means[i/rotation] += math.Abs(float64(x)) / float64(count) / rotation
		} else {
			means[i/rotation] += 1.0 / rotation // an expert that was never asked counts like any
		}
	}
	return means, nil
}

// blocks returns the importance that fits a tensor, nil when there is none.
func (m imatrix) blocks(t *gguf.Tensor) *importance {
	i, ok := m[t.Name]
	if !ok || uint64(i.perExpert) != t.Shape[0]/rotation {
		return nil
	}
	i.perRow, i.rows = i.perExpert, int(t.Shape[1])
	switch experts := int(t.Elements()/t.Shape[0]) / i.rows; len(i.means) / i.perExpert {
	case experts:
	case 1:
		i.perExpert = 0
	default:
		return nil
	}
	return &i
}

// at returns the importance of a block of the tensor's weights.
func (i *importance) at(block int) float64 {
	row, column := block/i.perRow, block%i.perRow
	return i.means[row/i.rows*i.perExpert+column]
}
