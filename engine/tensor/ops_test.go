package tensor_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"onebit/engine/tensor"
)

// lengths are those of one vector or a few with every possible rest, and large ones.
func lengths() []int {
	var n []int
	for i := range 68 {
		n = append(n, i)
	}
	return append(n, 127, 128, 129, 255, 1000, 4099)
}

// operation is an element-wise one: dst may hold an input, a and b are others.
type operation struct {
	name string
	run  func(k *tensor.Kernels, dst, a, b []float32)
	want func(dst, a, b float64) float64
	// tolerance is relative to the result plus the given part of the inputs.
	relative, absolute float64
}

var operations = []operation{
	{"Add", func(k *tensor.Kernels, dst, a, _ []float32) { k.Add(dst, a) },
		func(d, a, _ float64) float64 { return d + a }, 1e-7, 0},
	{"Mul", func(k *tensor.Kernels, dst, a, _ []float32) { k.Mul(dst, a) },
		func(d, a, _ float64) float64 { return d * a }, 1e-7, 0},
	{"Scale", func(k *tensor.Kernels, dst, _, _ []float32) { k.Scale(dst, 0.3) },
		func(d, _, _ float64) float64 { return d * float64(float32(0.3)) }, 1e-7, 0},
	{"AddScaled", func(k *tensor.Kernels, dst, a, _ []float32) { k.AddScaled(dst, a, 0.3) },
		func(d, a, _ float64) float64 { return d + a*float64(float32(0.3)) }, 1e-7, 1e-7},
	{"ScaleAdd", func(k *tensor.Kernels, dst, a, _ []float32) { k.ScaleAdd(dst, 0.3, a) },
		func(d, a, _ float64) float64 { return d*float64(float32(0.3)) + a }, 1e-7, 1e-7},
	{"SiLUMul", func(k *tensor.Kernels, dst, a, b []float32) { k.SiLUMul(dst, a, b) },
		func(_, a, b float64) float64 { return a / (1 + math.Exp(-a)) * b }, 1e-6, 0},
	{"GELUMul", func(k *tensor.Kernels, dst, a, b []float32) { k.GELUMul(dst, a, b) },
		func(_, a, b float64) float64 { return geluTanh(a) * b }, 1e-6, 2e-7},
	{"GELU", func(k *tensor.Kernels, dst, a, _ []float32) { k.GELU(dst, a) },
		func(_, a, _ float64) float64 { return geluTanh(a) }, 1e-6, 2e-7},
	{"GELUErf", func(k *tensor.Kernels, dst, a, _ []float32) { k.GELUErf(dst, a) },
		func(_, a, _ float64) float64 { return 0.5 * a * math.Erfc(-a/math.Sqrt2) }, 1e-6, 2e-7},
	{"Softcap", func(k *tensor.Kernels, dst, _, _ []float32) { k.Softcap(dst, 5) },
		func(d, _, _ float64) float64 { return 5 * math.Tanh(d/5) }, 1e-6, 0},
}

func geluTanh(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

// guarded returns a slice of n elements and a check that its neighbours in
// memory are as they were.
func guarded[T comparable](t *testing.T, n int, guard T) (s []T, check func(name string)) {
	const margin = 32
	whole := make([]T, n+2*margin)
	for i := range whole {
		whole[i] = guard
	}
	return whole[margin : margin+n : margin+n], func(name string) {
		t.Helper()
		for i := range margin {
			if whole[i] != guard || whole[margin+n+i] != guard {
				t.Fatalf("%s wrote outside a slice of %d", name, n)
			}
		}
	}
}

func TestElementwise(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, op := range operations {
			t.Run(op.name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(5, 6))
				for _, n := range lengths() {
					op.check(t, k, r, n, 3)
				}
				op.check(t, k, r, 5000, 30)
				op.check(t, k, r, 5000, 0.01)
			})
		}
	})
}

func (op *operation) check(t *testing.T, k *tensor.Kernels, r *rand.Rand, n int, size float32) {
	t.Helper()
	dst, check := guarded[float32](t, n, mark)
	a, b, old := randomFloats(n, r), randomFloats(n, r), randomFloats(n, r)
	for i := range n {
		a[i], old[i] = a[i]*size, old[i]*size
	}
	copy(dst, old)
	op.run(k, dst, a, b)
	check(op.name)
	for i, got := range dst {
		want := op.want(float64(old[i]), float64(a[i]), float64(b[i]))
		limit := op.relative*math.Abs(want) + op.absolute*(math.Abs(float64(old[i]))+math.Abs(float64(a[i]))) + 1e-34
		if !(math.Abs(float64(got)-want) <= limit) {
			t.Fatalf("length %d, element %d: %g for dst=%g a=%g b=%g, want %g", n, i, got, old[i], a[i], b[i], want)
		}
	}
}

func TestActivationsAtExtremes(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	x := []float32{0, 1e-30, -1e-30, 50, -50, 87, -87, 100, -100, 1e4, -1e4, 1e30, -1e30}
	one := make([]float32, len(x))
	for i := range one {
		one[i] = 1
	}
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, op := range operations[5:9] {
			dst := make([]float32, len(x))
			op.run(k, dst, x, one)
			for i, v := range x {
				want := float64(max(v, 0))
				if math.Abs(float64(v)) < 1 {
					want = float64(v) / 2
				}
				if math.Abs(float64(dst[i])-want) > 1e-7*math.Abs(want)+1e-7 {
					t.Errorf("%s(%g) is %g, want %g", op.name, v, dst[i], want)
				}
			}
			op.run(k, dst[:2], []float32{nan, inf}, one[:2])
			if dst[0] == dst[0] || dst[1] != inf {
				t.Errorf("%s of NaN and infinity is %g", op.name, dst[:2])
			}
		}
		capped := []float32{inf, -inf, nan, 1e30, 0, 1e-20}
		k.Softcap(capped, 30)
		if capped[0] != 30 || capped[1] != -30 || capped[2] == capped[2] || capped[3] != 30 || capped[4] != 0 || math.Abs(float64(capped[5])/1e-20-1) > 1e-6 {
			t.Errorf("Softcap at the extremes is %g", capped)
		}
	})
}

func TestNorms(t *testing.T) {
	const eps = 1e-5
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		r := rand.New(rand.NewPCG(7, 8))
		for _, n := range lengths()[1:] {
			x, w, b := randomFloats(n, r), randomFloats(n, r), randomFloats(n, r)
			for i := range x {
				x[i] = 3*x[i] + 1
			}
			var sum, square, variance float64
			for _, v := range x {
				sum += float64(v)
				square += float64(v) * float64(v)
			}
			mean := sum / float64(n)
			for _, v := range x {
				variance += (float64(v) - mean) * (float64(v) - mean)
			}
			rms := 1 / math.Sqrt(square/float64(n)+eps)
			dev := 1 / math.Sqrt(variance/float64(n)+eps)

			for _, weighted := range []bool{true, false} {
				ws, bs := w, b
				if !weighted {
					ws, bs = nil, nil
				}
				dst, check := guarded[float32](t, n, mark)
				verify := func(name string, want func(i int) float64) {
					t.Helper()
					check(name)
					for i, got := range dst {
						if math.Abs(float64(got)-want(i)) > 2e-6*(1+math.Abs(want(i))) {
							t.Fatalf("%s of %d, weighted %v: element %d is %g, want %g", name, n, weighted, i, got, want(i))
						}
					}
				}
				factor := func(i int) (float64, float64) {
					if weighted {
						return float64(w[i]), float64(b[i])
					}
					return 1, 0
				}
				k.RMSNorm(dst, x, ws, eps)
				verify("RMSNorm", func(i int) float64 { f, _ := factor(i); return float64(x[i]) * rms * f })
				if n > 2 { // with one or two the deviation is all rounding
					k.LayerNorm(dst, x, ws, bs, eps)
					verify("LayerNorm", func(i int) float64 { f, add := factor(i); return (float64(x[i])-mean)*dev*f + add })
				}
				copy(dst, x)
				k.RMSNorm(dst, dst, ws, eps)
				verify("RMSNorm in place", func(i int) float64 { f, _ := factor(i); return float64(x[i]) * rms * f })
			}
		}
	})
}

func TestRoPE(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		r := rand.New(rand.NewPCG(9, 10))
		for _, n := range lengths() {
			cos, sin := make([]float32, n), make([]float32, n)
			for i := range n {
				s, c := math.Sincos(r.Float64() * 7)
				cos[i], sin[i] = float32(c), float32(s)
			}
			old := randomFloats(2*n+3, r)
			for _, tt := range []struct {
				name string
				run  func(x, cos, sin []float32)
				pair func(i int) (int, int)
			}{
				{"RoPENeox", k.RoPENeox, func(i int) (int, int) { return i, i + n }},
				{"RoPENorm", k.RoPENorm, func(i int) (int, int) { return 2 * i, 2*i + 1 }},
			} {
				x, check := guarded[float32](t, 2*n+3, mark)
				copy(x, old)
				tt.run(x, cos, sin)
				check(tt.name)
				for i := range n {
					a, b := tt.pair(i)
					c, s := float64(cos[i]), float64(sin[i])
					u, v := float64(old[a]), float64(old[b])
					if math.Abs(u*c-v*s-float64(x[a])) > 1e-6 || math.Abs(u*s+v*c-float64(x[b])) > 1e-6 {
						t.Fatalf("%s of %d: pair %d is (%g, %g), want (%g, %g)", tt.name, n, i, x[a], x[b], u*c-v*s, u*s+v*c)
					}
				}
				for i := 2 * n; i < len(x); i++ {
					if x[i] != old[i] {
						t.Fatalf("%s of %d changed element %d", tt.name, n, i)
					}
				}
			}
		}
	})
}

func TestReductions(t *testing.T) {
	inf := float32(math.Inf(1))
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		r := rand.New(rand.NewPCG(11, 12))
		for _, n := range lengths() {
			a, b := randomFloats(n, r), randomFloats(n, r)
			var dot, size float64
			largest := -inf
			for i := range n {
				v := float64(a[i]) * float64(b[i])
				dot += v
				size += math.Abs(v)
				largest = max(largest, a[i])
			}
			if got := k.Dot(a, b); math.Abs(float64(got)-dot) > 1e-6*size {
				t.Errorf("Dot of %d is %g, want %g", n, got, dot)
			}
			if got := k.Max(a); got != largest {
				t.Errorf("Max of %d is %g, want %g", n, got, largest)
			}
			for i := range a {
				a[i] -= 100 // a wrong zero in the rest would show
			}
			if got := k.Max(a); n > 0 && got != largest-100 {
				t.Errorf("Max of %d negative is %g, want %g", n, got, largest-100)
			}
			if n > 1 {
				a[r.IntN(n)] = float32(math.NaN())
				if got := k.Max(a); got != got {
					t.Errorf("Max of %d is NaN", n)
				}
			}
		}
	})
}

func TestExpSum(t *testing.T) {
	inf := float32(math.Inf(1))
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		r := rand.New(rand.NewPCG(13, 14))
		worst := 0.0
		for _, n := range append(lengths(), 100000) {
			x, check := guarded[float32](t, n, mark)
			old := make([]float32, n)
			for i := range x {
				x[i] = float32(r.NormFloat64()) * 20
				if r.IntN(10) == 0 {
					x[i] = -inf
				}
			}
			copy(old, x)
			most := k.Max(x)
			if n == 0 || most == -inf {
				most = 0
			}
			got := k.ExpSum(x, most)
			check("ExpSum")
			sum := 0.0
			for i, v := range old {
				d := float64(v - most)
				want := math.Exp(d)
				if x[i] == 0 && d < -87.3365 {
					continue
				}
				worst = max(worst, math.Abs(float64(x[i])-want)/want)
				sum += want
			}
			if math.Abs(float64(got)-sum) > 1e-5*sum {
				t.Errorf("ExpSum of %d returned %g, want %g", n, got, sum)
			}
		}
		if worst > 2e-7 {
			t.Errorf("the worst relative error of an exponential is %g", worst)
		}
		nan := []float32{0, float32(math.NaN()), -1}
		if sum := k.ExpSum(nan, 0); sum == sum || nan[1] == nan[1] || nan[0] != 1 {
			t.Errorf("ExpSum hides a NaN: %g, sum %g", nan, sum)
		}
	})
}

func TestArgMax(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	long := make([]float32, 5000)
	long[3111], long[4000] = 2, 2
	late := make([]float32, 3000)
	for i := range late {
		late[i] = float32(i)
	}
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, tt := range []struct {
			name string
			x    []float32
			want int
		}{
			{"nothing", nil, 0},
			{"one", []float32{-3}, 0},
			{"the first of equals", []float32{1, 5, 5}, 1},
			{"negative", []float32{-3, -2, -4}, 1},
			{"minus infinity", []float32{-inf, -inf}, 0},
			{"infinity", []float32{1, inf, 2}, 1},
			{"NaN first", []float32{nan, 1, 2}, 2},
			{"all NaN", []float32{nan, nan}, 0},
			{"long", long, 3111},
			{"last", late, 2999},
		} {
			if got := k.ArgMax(tt.x); got != tt.want {
				t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
			}
		}
	})
}

func TestReadSum(t *testing.T) {
	team := tensor.NewTeam(2)
	defer team.Close()
	eachLevel(t, func(t *testing.T, k *tensor.Kernels) {
		for _, n := range []int{0, 8, 511, 512, 1024, 3<<20 + 512 + 8} {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(i * 7 / 3)
			}
			want := uint64(0)
			for i := 0; i+8 <= n&^511; i += 8 {
				for j := range 8 {
					want += uint64(b[i+j]) << (8 * j)
				}
			}
			if got := k.ReadSum(team, b); got != want {
				t.Errorf("%d bytes: %#x, want %#x", n, got, want)
			}
		}
	})
}
