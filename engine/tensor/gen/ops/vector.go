package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"onebit/engine/tensor/gen/asm"
)

// vector emits functions on slices of float32: a loop over several vectors
// at once, one over single vectors, and a masked one for the rest. AX is the
// offset in bytes into every slice.
type vector struct {
	isa
	f      *asm.File
	consts map[string]string // operand of each constant of this function
	used   []string          // constants that need data, in order of use
}

// function describes one function to emit.
type function struct {
	name      string
	signature string
	bytes     int // of parameters and results
	doc       string
	length    string   // frame slot of the number of elements
	slices    []string // frame slots of the slices, in the order of pointers
	consts    []string // constants that the body uses
	unroll    int      // vectors in one round of the main loop
	start     func()
	body      func(u int, masked bool)
	end       func()
}

// pointers hold the slices of a function.
var pointers = []string{"DI", "SI", "DX", "R8"}

// constants are the numbers that the bodies refer to by name.
var constants = map[string]float64{
	"one":    1,
	"two":    2,
	"half":   0.5,
	"neginf": math.Inf(-1),

	// exp: clamps that leave normal numbers, log2(e), ln(2) in two parts of
	// which the first has few bits, and a polynomial for exp(r)-1-r over r*r
	// fitted to |r| <= ln(2)/2.
	"expLow":  -87.33654,
	"expHigh": 88.37626,
	"log2e":   math.Log2E,
	"ln2High": 0.693145751953125,
	"ln2Low":  math.Ln2 - 0.693145751953125,
	"exp2":    0.5,
	"exp3":    0.166665769897,
	"exp4":    0.0416665546172,
	"exp5":    0.00836317905272,
	"exp6":    0.00139261835877,

	// GELU: -2*sqrt(2/pi)*(x+0.044715*x^3) is x*(gelu1+gelu3*x*x).
	"gelu1": -2 * math.Sqrt2 / math.SqrtPi,
	"gelu3": -2 * math.Sqrt2 / math.SqrtPi * 0.044715,

	// erfc(z)*exp(z*z) as t times a polynomial in t = 1/(1+erfP*z), fitted to
	// 0 <= z <= 10. The argument is x, so erfP holds the 1/sqrt(2).
	"erfP": 0.4 / math.Sqrt2,
	"erf0": 0.225621706936,
	"erf1": 0.226673265194,
	"erf2": 0.200125254967,
	"erf3": 0.200742548398,
	"erf4": 0.0614656868668,
	"erf5": 0.115858613432,
	"erf6": 0.0584508879864,
	"erf7": -0.127446434881,
	"erf8": 0.0385085090009,

	// tanh: a polynomial in y*y for (tanh(y)/y-1)/(y*y), fitted to |y| <= tanhSmall.
	"tanhSmall": 0.625,
	"tanh3":     -0.333333289441,
	"tanh5":     0.13332769737,
	"tanh7":     -0.0538509095785,
	"tanh9":     0.0209971789991,
	"tanh11":    -0.00609671416591,
}

// masks are the constants that are bits and not numbers.
var masks = map[string]uint32{"magnitude": 0x7fffffff}

// bits returns the float32 that a constant is.
func bits(name string) uint32 {
	if m, ok := masks[name]; ok {
		return m
	}
	v, ok := constants[name]
	if !ok {
		panic("no constant " + name)
	}
	return math.Float32bits(float32(v))
}

// p appends instructions in which {name} stands for a constant's operand.
func (v *vector) p(layout string, args ...any) {
	text := fmt.Sprintf(layout, args...)
	for name, operand := range v.consts {
		text = strings.ReplaceAll(text, "{"+name+"}", operand)
	}
	v.f.P("%s", text)
}

// emit writes a function.
func (v *vector) emit(fn function) {
	v.f.Func(fn.name+v.name, fn.signature, fn.bytes, fn.doc)
	v.load(fn)
	v.f.P("XORL AX, AX\nMOVQ %s(FP), CX\nMOVQ CX, BX\nANDQ $%d, BX\nSHLQ $2, CX", fn.length, v.lanes-1)
	if fn.start != nil {
		fn.start()
	}
	if fn.unroll > 1 {
		round := fn.unroll * v.bytes()
		v.f.P("MOVQ CX, R9\nANDQ $%d, R9\nJEQ single", -round)
		v.f.Label("many")
		for u := range fn.unroll {
			fn.body(u, false)
		}
		v.f.P("ADDQ $%d, AX\nCMPQ AX, R9\nJLT many", round)
		v.f.Label("single")
	}
	v.f.P("ANDQ $%d, CX\nCMPQ AX, CX\nJEQ rest", -v.bytes())
	v.f.Label("loop")
	fn.body(0, false)
	v.f.P("ADDQ $%d, AX\nCMPQ AX, CX\nJLT loop", v.bytes())
	v.f.Label("rest")
	v.f.P("TESTQ BX, BX\nJEQ done")
	v.mask()
	fn.body(0, true)
	v.f.Label("done")
	if fn.end != nil {
		fn.end()
	}
	v.f.P("VZEROUPPER\nRET")
}

// load emits the loads of pointers and constants.
func (v *vector) load(fn function) {
	for i, slot := range fn.slices {
		v.f.P("MOVQ %s(FP), %s", slot, pointers[i])
	}
	v.consts = map[string]string{}
	for i, name := range fn.consts {
		if !slices.Contains(v.used, name) {
			v.used = append(v.used, name)
		}
		if v.wide {
			r := v.v(v.regs - 1 - i)
			v.consts[name] = r
			v.f.P("VBROADCASTSS %s<>(SB), %s", name, r)
		} else {
			v.consts[name] = name + "<>(SB)"
		}
	}
}

// mask emits the mask of the BX last elements: K1, or the last register.
func (v *vector) mask() {
	if v.wide {
		v.f.P("MOVQ BX, CX\nMOVL $1, BX\nSHLL CX, BX\nDECL BX\nKMOVW BX, K1")
		return
	}
	v.f.P("LEAQ lanes<>+%d(SB), CX\nSHLQ $2, BX\nSUBQ BX, CX\nVMOVDQU (CX), %s", v.bytes(), v.maskReg())
}

func (v *vector) maskReg() string { return v.v(v.regs - 1) }

// at returns where vector u of a slice is.
func (v *vector) at(slice, u int) string {
	return fmt.Sprintf("%d(%s)(AX*1)", u*v.bytes(), pointers[slice])
}

// get emits the load of a vector; the lanes past the end read as zero.
func (v *vector) get(slice, u int, r string, masked bool) {
	switch {
	case !masked:
		v.f.P("VMOVUPS %s, %s", v.at(slice, u), r)
	case v.wide:
		v.f.P("VMOVUPS.Z %s, K1, %s", v.at(slice, u), r)
	default:
		v.f.P("VMASKMOVPS %s, %s, %s", v.at(slice, u), v.maskReg(), r)
	}
}

// put emits the store of a vector but for the lanes past the end.
func (v *vector) put(slice, u int, r string, masked bool) {
	switch {
	case !masked:
		v.f.P("VMOVUPS %s, %s", r, v.at(slice, u))
	case v.wide:
		v.f.P("VMOVUPS %s, K1, %s", r, v.at(slice, u))
	default:
		v.f.P("VMASKMOVPS %s, %s, %s", r, v.maskReg(), v.at(slice, u))
	}
}

// fold emits the reduction of the vectors 0 to n-1 to one number in X0.
func (v *vector) fold(op string, n int) {
	for ; n > 1; n /= 2 {
		for i := range n / 2 {
			v.f.P("%s %s, %s, %s", op, v.v(i+n/2), v.v(i), v.v(i))
		}
	}
	if v.wide {
		v.f.P("VEXTRACTF64X4 $1, Z0, Y1\n%s Y1, Y0, Y0", op)
	}
	v.f.P("VEXTRACTF128 $1, Y0, X1\n%s X1, X0, X0", op)
	v.f.P("VPSHUFD $0x4e, X0, X1\n%s X1, X0, X0", op)
	v.f.P("VPSHUFD $0xb1, X0, X1\n%s X1, X0, X0", op)
}

// data emits the constants of all functions.
func (v *vector) data() {
	for _, name := range v.used {
		b := uint64(bits(name))
		words := []uint64{b<<32 | b}
		for !v.wide && len(words) < v.bytes()/8 {
			words = append(words, words[0])
		}
		v.f.Data(name, words...)
	}
	if !v.wide {
		v.f.Data("lanes", math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64, 0, 0, 0, 0)
	}
}
