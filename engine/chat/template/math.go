package template

import (
	"math"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"
)

// compare takes operands with operators between them.
func (r *run) compare(a args, _ keywords) (jinja.Value, error) {
	for i := 0; i+2 < len(a); i += 2 {
		ok, err := r.holds(a[i], a[i+1].AsString(), a[i+2])
		if err != nil || !ok {
			return jinja.NewBool(false), err
		}
	}
	return jinja.NewBool(true), nil
}

func (r *run) holds(x jinja.Value, op string, y jinja.Value) (bool, error) {
	if _, err := r.walk(x, y); err != nil {
		return false, err
	}
	switch op {
	case "==":
		return equal(x, y), nil
	case "!=":
		return !equal(x, y), nil
	case "in":
		return contains(y, x), nil
	case "not in":
		return !contains(y, x), nil
	}
	c, ok := order(x, y)
	return ok && (op == "<" && c < 0 || op == "<=" && c <= 0 || op == ">" && c > 0 || op == ">=" && c >= 0), nil
}

func contains(in, v jinja.Value) bool {
	switch {
	case in.IsList():
		return slices.ContainsFunc(in.AsList().Items, func(item jinja.Value) bool { return equal(item, v) })
	case in.IsDict() && v.IsString():
		return in.AsDict().Has(v.AsString())
	case in.IsString() && v.IsString():
		return strings.Contains(in.AsString(), v.AsString())
	}
	return false
}

// math folds operands with operators between them, left to right.
func (r *run) math(a args, _ keywords) (jinja.Value, error) {
	if a[1].AsString() == "~" {
		return r.concat(a)
	}
	v := a[0]
	for i := 1; i+1 < len(a); i += 2 {
		var err error
		if v, err = r.apply(v, a[i].AsString(), a[i+1]); err != nil {
			return undefined, err
		}
	}
	return v, nil
}

func (r *run) concat(a args) (jinja.Value, error) {
	parts, n := make([]string, 0, len(a)/2+1), 0
	for i := 0; i < len(a); i += 2 {
		s, err := r.str(a[i])
		if err != nil {
			return undefined, err
		}
		parts = append(parts, s)
		n += len(s)
	}
	if err := r.alloc(n); err != nil {
		return undefined, err
	}
	return jinja.NewString(strings.Join(parts, "")), nil
}

func (r *run) apply(x jinja.Value, op string, y jinja.Value) (jinja.Value, error) {
	switch {
	case op == "+" && (x.IsString() || y.IsString()):
		if x.IsNone() || y.IsNone() || x.IsDict() || y.IsDict() || x.IsList() || y.IsList() {
			return fail("+ cannot join text and something else")
		}
		return r.concat(args{x, none, y})
	case op == "+" && x.IsList() && y.IsList():
		err := r.alloc(shallow(x) + shallow(y))
		return jinja.NewList(slices.Concat(x.AsList().Items, y.AsList().Items)), err
	case op == "*" && (x.IsString() || x.IsList()) && (y.IsInt() || y.IsBool()):
		return r.repeat(x, toInt(y))
	case op == "*" && (y.IsString() || y.IsList()) && (x.IsInt() || x.IsBool()):
		return r.repeat(y, toInt(x))
	}
	fx, okx := numeric(x)
	fy, oky := numeric(y)
	if !okx || !oky {
		return fail("%s needs numbers", op)
	}
	if (op == "/" || op == "//" || op == "%") && fy == 0 {
		return fail("division by zero")
	}
	if x.IsFloat() || y.IsFloat() || op == "/" || op == "**" {
		return number2(x, y, op, fx, fy), r.step(0)
	}
	i, j := toInt(x), toInt(y)
	switch op {
	case "+":
		i += j
	case "-":
		i -= j
	case "*":
		i *= j
	case "//", "%":
		q := i / j
		if m := i % j; m != 0 && (m < 0) != (j < 0) {
			q--
		}
		if op == "%" {
			q = i - q*j
		}
		i = q
	}
	return jinja.NewInt(i), r.step(0)
}

// number2 is arithmetic of floats; a whole power of whole numbers stays whole while it fits.
func number2(x, y jinja.Value, op string, fx, fy float64) jinja.Value {
	switch op {
	case "+":
		return jinja.NewFloat(fx + fy)
	case "-":
		return jinja.NewFloat(fx - fy)
	case "*":
		return jinja.NewFloat(fx * fy)
	case "/":
		return jinja.NewFloat(fx / fy)
	case "//":
		return jinja.NewFloat(math.Floor(fx / fy))
	case "%":
		return jinja.NewFloat(fx - fy*math.Floor(fx/fy))
	}
	f := math.Pow(fx, fy)
	if !x.IsFloat() && !y.IsFloat() && fy >= 0 && math.Abs(f) < 1<<53 {
		return jinja.NewInt(int64(f))
	}
	return jinja.NewFloat(f)
}

func (r *run) repeat(v jinja.Value, n int64) (jinja.Value, error) {
	n = max(n, 0)
	size := int64(max(shallow(v), 1))
	if n > math.MaxInt32 || size*n > math.MaxInt32 {
		return undefined, r.alloc(math.MaxInt)
	}
	if err := r.alloc(int(size * n)); err != nil {
		return undefined, err
	}
	if v.IsString() {
		return jinja.NewString(strings.Repeat(v.AsString(), int(n))), nil
	}
	return jinja.NewList(slices.Repeat(v.AsList().Items, int(n))), nil
}
