package tensor

import "math"

// halfToFloat widens an IEEE binary16 number.
func halfToFloat(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 31
	frac := uint32(h) & 1023
	switch exp {
	case 0: // zero and subnormal: frac * 2^-24 is exact
		return math.Float32frombits(math.Float32bits(float32(frac)/(1<<24)) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// floatToHalf rounds to the nearest IEEE binary16 number, ties to even. Too
// large a magnitude becomes infinity.
func floatToHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7e00
	case b >= 0x47800000: // 65536 and more
		return sign | 0x7c00
	case b < 0x38800000: // under 2^-14: the sum's last bits are the subnormal
		v := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(v)-0x3f000000)
	}
	// The carry of rounding may run into the exponent, up to infinity.
	b += 0xfff + b>>13&1
	return sign | uint16((b-112<<23)>>13)
}

// floatToBrain rounds to the nearest bfloat16 number, ties to even.
func floatToBrain(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// brainToFloat widens a bfloat16 number.
func brainToFloat(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
