package template

import (
	"strings"

	"github.com/ardanlabs/jinja"
)

// test is "is" with a test that takes arguments or that the library does otherwise than Jinja2.
func (r *run) test(a args, _ keywords) (jinja.Value, error) {
	ok, err := r.passes(a[0].AsString(), a[1], a[2:])
	return jinja.NewBool(ok), err
}

var comparisons = map[string]string{
	"eq": "==", "equalto": "==", "sameas": "==", "==": "==", "ne": "!=", "!=": "!=", "in": "in",
	"gt": ">", "greaterthan": ">", ">": ">", "ge": ">=", ">=": ">=", "lt": "<", "lessthan": "<", "<": "<", "le": "<=", "<=": "<=",
}

func (r *run) passes(name string, v jinja.Value, a args) (bool, error) {
	if op, ok := comparisons[name]; ok && len(a) > 0 {
		return r.holds(v, op, a[0])
	}
	if err := r.step(shallow(v)); err != nil {
		return false, err
	}
	switch name {
	case "defined":
		return !v.IsUndefined(), nil
	case "undefined":
		return v.IsUndefined(), nil
	case "none":
		return v.IsNone(), nil
	case "boolean":
		return v.IsBool(), nil
	case "true":
		return v.IsBool() && v.AsBool(), nil
	case "false":
		return v.IsBool() && !v.AsBool(), nil
	case "integer":
		return v.IsInt(), nil
	case "float":
		return v.IsFloat(), nil
	case "number":
		return v.IsNumber() || v.IsBool(), nil
	case "string":
		return v.IsString(), nil
	case "mapping":
		return v.IsDict(), nil
	case "sequence", "iterable":
		return v.IsString() || v.IsList() || v.IsDict() || v.IsUndefined(), nil // as Jinja2 has it
	case "callable":
		return v.IsCallable(), nil
	case "odd", "even":
		return v.IsInt() && (v.AsInt()%2 == 0) == (name == "even"), nil
	case "divisibleby":
		return len(a) > 0 && toInt(a[0]) != 0 && toInt(v)%toInt(a[0]) == 0, nil
	case "lower":
		return v.IsString() && v.AsString() == strings.ToLower(v.AsString()), nil
	case "upper":
		return v.IsString() && v.AsString() == strings.ToUpper(v.AsString()), nil
	}
	return false, &EvalError{Reason: "the test \"" + name + "\" is not supported"}
}
