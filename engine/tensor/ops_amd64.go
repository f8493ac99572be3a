package tensor

import "math"

// rmsNormBy puts an RMSNorm together.
func rmsNormBy(
	sumSquares func(x []float32) float32,
	shiftScale func(dst, x []float32, shift, s float32),
	mulScale func(dst, x, w []float32, s float32),
) func(dst, x, w []float32, eps float32) {
	return func(dst, x, w []float32, eps float32) {
		s := inverseRoot(sumSquares(x), len(x), eps)
		if w == nil {
			shiftScale(dst, x, 0, s)
			return
		}
		mulScale(dst, x, w, s)
	}
}

// layerNormBy puts a LayerNorm together.
func layerNormBy(
	sum, sumSquares func(x []float32) float32,
	shiftScale func(dst, x []float32, shift, s float32),
	mul, add func(dst, x []float32),
) func(dst, x, w, b []float32, eps float32) {
	return func(dst, x, w, b []float32, eps float32) {
		shiftScale(dst, x, sum(x)/float32(len(x)), 1)
		shiftScale(dst, dst, 0, inverseRoot(sumSquares(dst), len(x), eps))
		if w != nil {
			mul(dst, w)
		}
		if b != nil {
			add(dst, b)
		}
	}
}

// inverseRoot returns 1/sqrt(sum/n+eps).
func inverseRoot(sum float32, n int, eps float32) float32 {
	return float32(1 / math.Sqrt(float64(sum)/float64(n)+float64(eps)))
}

// ropeNormBy completes a rotation of whole vectors of the given number of pairs.
func ropeNormBy(whole func(x, cos, sin []float32), pairs int) func(x, cos, sin []float32) {
	return func(x, cos, sin []float32) {
		whole(x, cos, sin)
		if done := len(cos) &^ (pairs - 1); done < len(cos) {
			genericRoPENorm(x[2*done:], cos[done:], sin[done:])
		}
	}
}

// toF16By completes a conversion of whole vectors.
func toF16By(whole func(dst []uint16, x []float32), lanes int) func(dst []uint16, x []float32) {
	return func(dst []uint16, x []float32) {
		whole(dst, x)
		if done := len(x) &^ (lanes - 1); done < len(x) {
			genericToF16(dst[done:], x[done:])
		}
	}
}

// fromF16By completes a conversion of whole vectors.
func fromF16By(whole func(dst []float32, x []uint16), lanes int) func(dst []float32, x []uint16) {
	return func(dst []float32, x []uint16) {
		whole(dst, x)
		if done := len(x) &^ (lanes - 1); done < len(x) {
			genericFromF16(dst[done:], x[done:])
		}
	}
}

// scatterBy completes a conversion of a multiple of 8.
func scatterBy(whole func(dst []uint16, stride int, x []float32)) func(dst []uint16, stride int, x []float32) {
	return func(dst []uint16, stride int, x []float32) {
		whole(dst, stride, x)
		if done := len(x) &^ 7; done < len(x) {
			genericScatter(dst[done*stride:], stride, x[done:])
		}
	}
}
