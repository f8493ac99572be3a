package tensor

import (
	"encoding/binary"
	"math"
)

func genericOpsTable() opsTable {
	return opsTable{
		rmsNorm:   genericRMSNorm,
		layerNorm: genericLayerNorm,
		add:       genericAdd,
		mul:       genericMul,
		scale:     genericScale,
		addScaled: genericAddScaled,
		scaleAdd:  genericScaleAdd,
		siluMul:   genericSiLUMul,
		geluMul:   genericGELUMul,
		gelu:      genericGELU,
		geluErf:   genericGELUErf,
		softcap:   genericSoftcap,
		ropeNeox:  genericRoPENeox,
		ropeNorm:  genericRoPENorm,
		maximum:   genericMax,
		expSum:    genericExpSum,
		dot:       genericDot,
		toF16:     genericToF16,
		fromF16:   genericFromF16,
		toBF16:    genericToBF16,
		fromBF16:  genericFromBF16,
		scatter:   genericScatter,
		readSum:   genericReadSum,
	}
}

func genericRMSNorm(dst, x, w []float32, eps float32) {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	s := float32(1 / math.Sqrt(sum/float64(len(x))+float64(eps)))
	for i, v := range x {
		v *= s
		if w != nil {
			v *= w[i]
		}
		dst[i] = v
	}
}

func genericLayerNorm(dst, x, w, b []float32, eps float32) {
	var sum, square float64
	for _, v := range x {
		sum += float64(v)
	}
	mean := sum / float64(len(x))
	for _, v := range x {
		d := float64(v) - mean
		square += d * d
	}
	s := float32(1 / math.Sqrt(square/float64(len(x))+float64(eps)))
	for i, v := range x {
		v = (v - float32(mean)) * s
		if w != nil {
			v *= w[i]
		}
		if b != nil {
			v += b[i]
		}
		dst[i] = v
	}
}

func genericAdd(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}

func genericMul(dst, x []float32) {
	for i, v := range x {
		dst[i] *= v
	}
}

func genericScale(dst []float32, s float32) {
	for i := range dst {
		dst[i] *= s
	}
}

func genericAddScaled(dst, x []float32, s float32) {
	for i, v := range x {
		dst[i] += s * v
	}
}

func genericScaleAdd(dst []float32, s float32, x []float32) {
	for i, v := range x {
		dst[i] = dst[i]*s + v
	}
}

func genericSiLUMul(dst, gate, up []float32) {
	for i, v := range gate {
		dst[i] = float32(float64(v)/(1+math.Exp(-float64(v)))) * up[i]
	}
}

func gelu(v float32) float32 {
	x := float64(v)
	u := math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
	return float32(x / (1 + math.Exp(-2*u)))
}

func genericGELUMul(dst, gate, up []float32) {
	for i, v := range gate {
		dst[i] = gelu(v) * up[i]
	}
}

func genericGELU(dst, x []float32) {
	for i, v := range x {
		dst[i] = gelu(v)
	}
}

func genericGELUErf(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(0.5 * float64(v) * math.Erfc(-float64(v)/math.Sqrt2))
	}
}

func genericSoftcap(x []float32, limit float32) {
	for i, v := range x {
		x[i] = float32(float64(limit) * math.Tanh(float64(v)/float64(limit)))
	}
}

func genericRoPENeox(x, cos, sin []float32) {
	n := len(cos)
	a, b := x[:n], x[n:2*n]
	for i, c := range cos {
		s := sin[i]
		a[i], b[i] = a[i]*c-b[i]*s, a[i]*s+b[i]*c
	}
}

func genericRoPENorm(x, cos, sin []float32) {
	for i, c := range cos {
		s := sin[i]
		a, b := x[2*i], x[2*i+1]
		x[2*i], x[2*i+1] = a*c-b*s, a*s+b*c
	}
}

func genericMax(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

// expFloor is the smallest argument whose exponential is a normal float32.
const expFloor = -87.33654

func genericExpSum(x []float32, maximum float32) float32 {
	var sum float64
	for i, v := range x {
		d := v - maximum
		if d < expFloor {
			x[i] = 0
			continue
		}
		x[i] = float32(math.Exp(float64(d)))
		sum += float64(x[i])
	}
	return float32(sum)
}

func genericDot(a, b []float32) float32 {
	var s [4]float32
	n := len(a) &^ 3
	for i := 0; i < n; i += 4 {
		x, y := (*[4]float32)(a[i:]), (*[4]float32)(b[i:])
		s[0] += x[0] * y[0]
		s[1] += x[1] * y[1]
		s[2] += x[2] * y[2]
		s[3] += x[3] * y[3]
	}
	for i := n; i < len(a); i++ {
		s[0] += a[i] * b[i]
	}
	return s[0] + s[1] + (s[2] + s[3])
}

// largestHalf is the largest finite half-precision number.
const largestHalf = 65504

func genericToF16(dst []uint16, x []float32) { genericScatter(dst, 1, x) }

func genericScatter(dst []uint16, stride int, x []float32) {
	for i, v := range x {
		if v > largestHalf {
			v = largestHalf
		} else if v < -largestHalf {
			v = -largestHalf
		}
		dst[i*stride] = floatToHalf(v)
	}
}

func genericFromF16(dst []float32, x []uint16) {
	for i, h := range x {
		dst[i] = halfToFloat(h)
	}
}

func genericToBF16(dst []uint16, x []float32) {
	for i, v := range x {
		dst[i] = floatToBrain(v)
	}
}

func genericFromBF16(dst []float32, x []uint16) {
	for i, h := range x {
		dst[i] = brainToFloat(h)
	}
}

func genericReadSum(b []byte) uint64 {
	var sum [4]uint64
	for len(b) >= 32 {
		sum[0] += binary.LittleEndian.Uint64(b)
		sum[1] += binary.LittleEndian.Uint64(b[8:])
		sum[2] += binary.LittleEndian.Uint64(b[16:])
		sum[3] += binary.LittleEndian.Uint64(b[24:])
		b = b[32:]
	}
	return sum[0] + sum[1] + sum[2] + sum[3]
}
