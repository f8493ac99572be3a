package grammar

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxDigits bounds the digits of a number: a model that has begun to repeat one must end, and every whole number of so
// many is exact in floating point.
const maxDigits = 15

var (
	nines    = int64(math.Pow10(maxDigits)) - 1
	fraction = named("fraction", Seq(Text("."), Repeat(digit, 1, maxDigits)))
	// shortFraction is one that beside nine digits is not rounded up to the next whole number; someFraction is not zero.
	shortFraction = named("short", Seq(Text("."), Repeat(digit, 1, 6)))
	someFraction  = named("some", Seq(Text("."), Repeat(digit, 0, 5), class(span{'1', '9'})))
)

var (
	wholeNumber = named("whole", Any(Text("0"), Seq(class(span{'1', '9'}), Repeat(digit, 0, maxDigits-1))))
	exponent    = Seq(class(span{'e', 'e'}, span{'E', 'E'}), Optional(class(span{'+', '+'}, span{'-', '-'})), Repeat(digit, 1, 2))
	// anyNumber is any number of a size that readers take.
	anyNumber = named("number", Seq(Optional(Text("-")), wholeNumber, Optional(fraction), Optional(exponent)))
)

// bounds of a number; open says that the bound itself is out.
type bounds struct {
	low, high         float64
	lowOpen, highOpen bool
}

// readBounds reads the bounds of a schema, infinite ones where it has none.
func readBounds(v *value, path *place) (bounds, error) {
	b := bounds{low: math.Inf(-1), high: math.Inf(1)}
	read := func(name string, use func(float64)) error {
		x := v.get(name)
		if x == nil {
			return nil
		}
		f, err := strconv.ParseFloat(x.text, 64)
		if err != nil {
			return refuse(below(path, name), "the number is out of range")
		}
		use(f)
		return nil
	}
	for _, err := range []error{
		read("minimum", func(f float64) { b.low = f }),
		read("maximum", func(f float64) { b.high = f }),
		read("exclusiveMinimum", func(f float64) {
			if f >= b.low {
				b.low, b.lowOpen = f, true
			}
		}),
		read("exclusiveMaximum", func(f float64) {
			if f <= b.high {
				b.high, b.highOpen = f, true
			}
		}),
	} {
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

// whole is the least and the greatest whole number within the bounds and the digits.
func (b bounds) whole() (low, high int64) {
	low, high = -nines, nines
	if b.low > float64(low) {
		low = int64(min(math.Ceil(b.low), float64(nines)+1))
		if b.lowOpen && float64(low) == b.low {
			low++
		}
	}
	if b.high < float64(high) {
		high = int64(max(math.Floor(b.high), -float64(nines)-1))
		if b.highOpen && float64(high) == b.high {
			high--
		}
	}
	return low, high
}

// sizes are the bounds of the formats of whole numbers. Those of 64 bits hold all numbers of maxDigits digits.
var sizes = map[string]bounds{
	"int8": {low: math.MinInt8, high: math.MaxInt8}, "uint8": {high: math.MaxUint8},
	"int16": {low: math.MinInt16, high: math.MaxInt16}, "uint16": {high: math.MaxUint16},
	"int32": {low: math.MinInt32, high: math.MaxInt32}, "uint32": {high: math.MaxUint32},
	"uint64": {high: math.Inf(1)}, "uint": {high: math.Inf(1)},
}

// narrow narrows the bounds to others, which are closed.
func (b *bounds) narrow(o bounds) {
	if o.low > b.low {
		b.low, b.lowOpen = o.low, false
	}
	if o.high < b.high {
		b.high, b.highOpen = o.high, false
	}
}

// integer is a whole number within bounds.
func (r *reading) integer(v *value, path *place) (*Expr, error) {
	b, err := readBounds(v, path)
	if err != nil {
		return nil, err
	}
	if f := v.get("format"); f != nil {
		if size, ok := sizes[f.text]; ok {
			b.narrow(size)
		}
	}
	return r.within(numeric{b, true}, path, func() []*Expr { return wholeBetween(b.whole()) },
		fmt.Sprintf("no whole number of at most %d digits is within its bounds", maxDigits))
}

// within is the numbers of a range, made once: many properties have the same, and it is a part of some size.
func (r *reading) within(n numeric, path *place, forms func() []*Expr, none string) (*Expr, error) {
	if r.numbers[n] == nil {
		list := forms()
		if len(list) == 0 {
			return nil, refuse(path, "%s", none)
		}
		r.numbers[n] = named("number", Any(list...))
	}
	return r.numbers[n], nil
}

func wholeBetween(low, high int64) (forms []*Expr) {
	if low < 0 && low <= high {
		forms = append(forms, Seq(Text("-"), digitsBetween(max(1, -high), -low)))
	}
	if high >= 0 && low <= high {
		forms = append(forms, digitsBetween(max(0, low), high))
	}
	return forms
}

// digitsBetween is the decimal numbers of [low, high], both at least 0.
func digitsBetween(low, high int64) *Expr {
	var forms []*Expr
	for n := len(strconv.FormatInt(low, 10)); n <= len(strconv.FormatInt(high, 10)); n++ {
		from, to := int64(math.Pow10(n-1)), int64(math.Pow10(n))-1
		if n == 1 {
			from = 0
		}
		forms = append(forms, sameLength(strconv.FormatInt(max(low, from), 10), strconv.FormatInt(min(high, to), 10)))
	}
	return Any(forms...)
}

// sameLength is the digits between two numbers of as many.
func sameLength(low, high string) *Expr {
	n := len(low)
	switch {
	case n == 0:
		return Text("")
	case low == strings.Repeat("0", n) && high == strings.Repeat("9", n):
		return Repeat(digit, n, n)
	case low[0] == high[0]:
		return Seq(Text(low[:1]), sameLength(low[1:], high[1:]))
	}
	zeros, all := strings.Repeat("0", n-1), strings.Repeat("9", n-1)
	forms := []*Expr{
		Seq(Text(low[:1]), sameLength(low[1:], all)),
		Seq(Text(high[:1]), sameLength(zeros, high[1:])),
	}
	if low[0]+1 < high[0] {
		forms = append(forms, Seq(class(span{rune(low[0] + 1), rune(high[0] - 1)}), Repeat(digit, n-1, n-1)))
	}
	return Any(forms...)
}

// number is a number within bounds.
func (r *reading) number(v *value, path *place) (*Expr, error) {
	b, err := readBounds(v, path)
	switch {
	case err != nil:
		return nil, err
	case v.get("multipleOf") != nil:
		return r.integer(v, path)
	case math.IsInf(b.low, 0) && math.IsInf(b.high, 0):
		return anyNumber, nil
	}
	return r.within(numeric{b, false}, path, b.numbers, "bounds without a whole number between them are not supported")
}

// numbers is the whole numbers within the bounds, and those with a fraction between two whole numbers that are within.
func (b bounds) numbers() []*Expr {
	low, high := b.whole()
	forms := wholeBetween(low, high)
	if b.high > 0 {
		forms = append(forms, fractionsAbove(b)...)
	}
	if b.low < 0 {
		for _, e := range fractionsAbove(bounds{-b.high, -b.low, b.highOpen, b.lowOpen}) {
			forms = append(forms, Seq(Text("-"), e))
		}
	}
	return forms
}

// fractionsAbove is the numbers with a fraction that are at least 0 and within the bounds.
func fractionsAbove(b bounds) (forms []*Expr) {
	if b.low < 0 {
		b.low, b.lowOpen = 0, false
	}
	from, to := math.Ceil(b.low), math.Floor(min(b.high, 1e9))-1 // from.x to to.x
	if from > to {
		return nil
	}
	if b.lowOpen && from == b.low {
		forms = append(forms, Seq(digitsBetween(int64(from), int64(from)), someFraction))
		from++
	}
	if from <= to {
		forms = append(forms, Seq(digitsBetween(int64(from), int64(to)), shortFraction))
	}
	return forms
}
