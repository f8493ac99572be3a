package tensor_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"onebit/engine/tensor"
)

func TestFromF16(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		got := make([]float32, len(all))
		k.FromF16(got, all)
		for h, v := range got {
			if want := widen(uint16(h)); math.Float32bits(v) != math.Float32bits(want) && !(v != v && want != want) {
				t.Fatalf("%#04x is %g, want %g", h, v, want)
			}
		}
		back := make([]uint16, len(all))
		k.ToF16(back, got)
		for h, b := range back {
			want := uint16(h)
			switch {
			case h&0x7fff == 0x7c00: // infinity
				want = want&0x8000 | 0x7bff
			case h&0x7fff > 0x7c00:
				want |= 0x200
			}
			if b != want && !(h&0x7fff > 0x7c00 && b&0x7fff > 0x7c00) {
				t.Fatalf("%#04x went there and back as %#04x, want %#04x", h, b, want)
			}
		}
		for _, n := range lengths() {
			dst, check := guarded[float32](t, n, mark)
			k.FromF16(dst, all[0x3c00:][:n])
			check("FromF16")
			for i, v := range dst {
				if v != widen(uint16(0x3c00+i)) {
					t.Fatalf("length %d: element %d is %g", n, i, v)
				}
			}
		}
	})
}

// widen is the value of a half-precision number by its definition.
func widen(h uint16) float32 {
	sign := 1 - 2*float64(h>>15)
	e, f := int(h>>10&31), float64(h&1023)
	switch {
	case e == 31 && f == 0:
		return float32(math.Inf(int(sign)))
	case e == 31:
		return float32(math.NaN())
	case e == 0:
		return float32(math.Copysign(math.Ldexp(f, -24), sign))
	}
	return float32(sign * math.Ldexp(1024+f, e-25))
}

// TestToF16 rounds every number that half precision has, its neighbours, and
// what lies midway between two.
func TestToF16(t *testing.T) {
	type rounding struct {
		x    float32
		want uint16
	}
	var cases []rounding
	for h := range uint16(0x7bff) {
		a, b := widen(h), widen(h+1)
		mid := (a + b) / 2 // exact
		even := h + h&1
		inf := float32(math.Inf(1))
		for _, c := range []rounding{
			{a, h}, {math.Nextafter32(a, inf), h}, {math.Nextafter32(mid, 0), h}, {mid, even},
			{math.Nextafter32(mid, inf), h + 1}, {math.Nextafter32(b, 0), h + 1},
		} {
			cases = append(cases, c, rounding{-c.x, c.want | 0x8000})
		}
	}
	for _, x := range []float32{65504, 65505, 65519.99, 65520, 65536, 1e10, math.MaxFloat32, float32(math.Inf(1))} {
		cases = append(cases, rounding{x, 0x7bff}, rounding{-x, 0xfbff})
	}
	x := make([]float32, len(cases))
	for i, c := range cases {
		x[i] = c.x
	}
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		got := make([]uint16, len(x))
		k.ToF16(got, x)
		for i, c := range cases {
			if got[i] != c.want {
				t.Fatalf("%g is %#04x, want %#04x", c.x, got[i], c.want)
			}
		}
		for _, n := range lengths() {
			dst, check := guarded[uint16](t, n, 0x1234)
			k.ToF16(dst, x[70000:][:n])
			check("ToF16")
			for i, h := range dst {
				if h != cases[70000+i].want {
					t.Fatalf("length %d: element %d is %#04x", n, i, h)
				}
			}
		}
		nan := []uint16{0}
		k.ToF16(nan, []float32{float32(math.NaN())})
		if nan[0]&0x7fff <= 0x7c00 {
			t.Errorf("NaN is %#04x", nan[0])
		}
	})
}

func TestBF16(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		all := make([]uint16, 1<<16)
		for i := range all {
			all[i] = uint16(i)
		}
		wide := make([]float32, len(all))
		k.FromBF16(wide, all)
		back := make([]uint16, len(all))
		k.ToBF16(back, wide)
		for h := range all {
			if want := uint32(h) << 16; math.Float32bits(wide[h]) != want {
				t.Fatalf("%#04x is %#08x, want %#08x", h, math.Float32bits(wide[h]), want)
			}
			if nan := h&0x7fff > 0x7f80; back[h] != uint16(h) && !(nan && back[h]&0x7fff > 0x7f80) {
				t.Fatalf("%#04x went there and back as %#04x", h, back[h])
			}
		}
		for _, tt := range []struct {
			bits uint32
			want uint16
		}{{0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82}, {0x3f817fff, 0x3f81}, {0x7f7fffff, 0x7f80}} {
			k.ToBF16(back[:1], []float32{math.Float32frombits(tt.bits)})
			if back[0] != tt.want {
				t.Errorf("%#08x is %#04x, want %#04x", tt.bits, back[0], tt.want)
			}
		}
	})
}

func TestScatterF16(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, n := range []int{0, 1, 5, 7, 8, 9, 16, 31, 128, 300} {
			const stride = 3
			x := randomFloats(n, rand.New(rand.NewPCG(15, 16)))
			want := make([]uint16, n)
			k.ToF16(want, x)
			dst := make([]uint16, max(0, (n-1)*stride+1))
			k.ScatterF16(dst, stride, x)
			for i, h := range dst {
				if i%stride == 0 && h != want[i/stride] || i%stride != 0 && h != 0 {
					t.Fatalf("%d elements: dst[%d] is %#04x", n, i, h)
				}
			}
		}
	})
}

func TestScatterF16ChecksItsSlices(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		x := make([]float32, 9)
		if catch(func() { k.ScatterF16(make([]uint16, 8*5), 5, x) }) == nil {
			t.Error("no panic with dst one short")
		}
		k.ScatterF16(make([]uint16, 8*5+1), 5, x)
	})
}
