package template

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// run is the state of one rendering: the host functions that a translated template calls.
type run struct {
	*budget
	now    time.Time
	spaces map[*jinja.Dict]bool // made by namespace(): their attributes are all data
}

type (
	args     = []jinja.Value
	keywords = map[string]jinja.Value
)

func call(fn func(args, keywords) (jinja.Value, error)) jinja.Value {
	return jinja.NewCallable("function", fn)
}

// vars adds the functions that a translated template and its author may call to the variables in vars.
func (r *run) addFunctions(vars map[string]jinja.Value) {
	for name, fn := range map[string]func(args, keywords) (jinja.Value, error){
		// What the translator writes.
		"__write": r.write, "__text": r.text, "__seen": r.see, "__shallow": r.shallowly, "__deep": r.deeply,
		"__list": r.list, "__dict": r.dict, "__math": r.math, "__negative": r.negative, "__compare": r.compare,
		"__float": r.float, "__item": r.item, "__slice": r.slice, "__unpack": r.unpack,
		"__attribute": r.attribute, "__method": r.method, "__callable": r.callable, "__printer": r.printer,
		"__filter": r.filter, "__test": r.test, "__each": r.each, "__round": r.round,
		"__enter": r.enterCall, "__leave": r.leaveCall,
		// What a template's author writes.
		"range": r.rangeOf, "namespace": r.namespace, "dict": r.namespaceless, "joiner": r.joiner, "cycler": r.cycler,
		"raise_exception": r.raise, "strftime_now": r.strftime,
	} {
		vars[name] = call(fn)
	}
}

var (
	undefined = jinja.Undefined()
	none      = jinja.None()
	nothing   = jinja.NewString("")
)

func fail(format string, a ...any) (jinja.Value, error) {
	return undefined, &EvalError{Reason: fmt.Sprintf(format, a...)}
}

// arg is argument i, or the keyword, or the default.
func arg(a args, i int, kw keywords, name string, otherwise jinja.Value) jinja.Value {
	if i < len(a) {
		return a[i]
	}
	if v, ok := kw[name]; ok {
		return v
	}
	return otherwise
}

// write is what a text or an output tag prints: the value as Python's str writes it.
func (r *run) write(a args, _ keywords) (jinja.Value, error) {
	if a[0].IsString() {
		return a[0], r.alloc(len(a[0].AsString()))
	}
	s, err := r.str(a[0])
	return jinja.NewString(s), err
}

func (r *run) str(v jinja.Value) (string, error) {
	if v.IsString() {
		return v.AsString(), r.step(0)
	}
	n, err := r.walk(v)
	if err == nil {
		err = r.alloc(4*n + valueSize)
	}
	if err != nil {
		return "", err
	}
	return text(v), nil
}

// text, see, shallowly and deeply let a value through to a filter of the library that makes something of its size.
func (r *run) text(a args, _ keywords) (jinja.Value, error) {
	s, err := r.str(a[0])
	if err == nil {
		err = r.alloc(6 * len(s))
	}
	return jinja.NewString(s), err
}

func (r *run) see(a args, _ keywords) (jinja.Value, error) {
	n := 0
	if a[0].IsString() {
		n = 4 * len(a[0].AsString())
	}
	return a[0], r.step(n)
}

func (r *run) shallowly(a args, _ keywords) (jinja.Value, error) {
	return a[0], r.alloc(4 * shallow(a[0]))
}

func (r *run) deeply(a args, _ keywords) (jinja.Value, error) {
	n, err := r.walk(a[0])
	if err == nil {
		err = r.alloc(2 * n)
	}
	return a[0], err
}

func (r *run) list(a args, _ keywords) (jinja.Value, error) {
	return jinja.NewList(slices.Clone(a)), r.alloc(valueSize * (len(a) + 2))
}

// dict takes keys and values in turn.
func (r *run) dict(a args, _ keywords) (jinja.Value, error) {
	if err := r.alloc(pairSize * (len(a)/2 + 1)); err != nil {
		return undefined, err
	}
	d := jinja.NewDict()
	for i := 0; i+1 < len(a); i += 2 {
		key, err := r.str(a[i])
		if err != nil {
			return undefined, err
		}
		d.AsDict().Set(key, a[i+1])
	}
	return d, nil
}

func (r *run) float(a args, _ keywords) (jinja.Value, error) {
	f, err := strconv.ParseFloat(a[0].AsString(), 64)
	return jinja.NewFloat(f), err
}

func (r *run) negative(a args, _ keywords) (jinja.Value, error) {
	switch v := a[0]; {
	case v.IsFloat():
		return jinja.NewFloat(-v.AsFloat()), nil
	case v.IsInt(), v.IsBool():
		return jinja.NewInt(-toInt(v)), nil
	}
	return fail("- needs a number")
}

// item is a[k] as Python and Jinja2 have it: an element, a character, a key; undefined when there is none.
func (r *run) item(a args, _ keywords) (jinja.Value, error) {
	v, key := a[0], a[1]
	switch {
	case v.IsDict():
		k, err := r.str(key)
		item, _ := v.AsDict().Get(k)
		return item, err
	case v.IsList() && key.IsInt():
		if i, ok := index(key.AsInt(), v.AsList().Len()); ok {
			return v.AsList().Items[i], r.step(0)
		}
	case v.IsString() && key.IsInt():
		if err := r.alloc(4 * len(v.AsString())); err != nil {
			return undefined, err
		}
		s := []rune(v.AsString())
		if i, ok := index(key.AsInt(), len(s)); ok {
			return jinja.NewString(string(s[i])), nil
		}
	}
	return undefined, r.step(0)
}

// index resolves a possibly negative index into n items.
func index(i int64, n int) (int, bool) {
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

// unpack checks that a list has the wanted number of items.
func (r *run) unpack(a args, _ keywords) (jinja.Value, error) {
	if !a[0].IsList() || int64(a[0].AsList().Len()) != a[1].AsInt() {
		return fail("expected %d values to unpack", a[1].AsInt())
	}
	return a[0], nil
}

// slice is a[start:stop:step].
func (r *run) slice(a args, _ keywords) (jinja.Value, error) {
	v := a[0]
	if !v.IsList() && !v.IsString() {
		return undefined, r.step(0)
	}
	if err := r.alloc(5 * shallow(v)); err != nil {
		return undefined, err
	}
	if v.IsList() {
		items, err := cut(v.AsList().Items, a[1:])
		return jinja.NewList(items), err
	}
	runes, err := cut([]rune(v.AsString()), a[1:])
	return jinja.NewString(string(runes)), err
}

// cut copies the items that bounds, Python's start, stop and step, select.
func cut[T any](items []T, bounds args) ([]T, error) {
	n, step := int64(len(items)), int64(1)
	if !bounds[2].IsNone() {
		step = toInt(bounds[2])
	}
	if step == 0 {
		return nil, &EvalError{Reason: "slice step is zero"}
	}
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	bound := func(v jinja.Value, otherwise int64) int64 {
		if v.IsNone() || v.IsUndefined() {
			return otherwise
		}
		i := toInt(v)
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	start, stop := bound(bounds[0], low), bound(bounds[1], high)
	if step < 0 {
		start, stop = bound(bounds[0], high), bound(bounds[1], low)
	}
	step = min(max(step, -n-1), n+1)
	var out []T
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		out = append(out, items[i])
	}
	return out, nil
}

// each is what a loop goes over.
func (r *run) each(a args, _ keywords) (jinja.Value, error) {
	switch v := a[0]; {
	case v.IsList():
		return v, r.step(0)
	case v.IsDict():
		err := r.alloc(valueSize * v.AsDict().Len())
		return strings_(v.AsDict().Keys), err
	case v.IsString():
		if err := r.alloc(2 * valueSize * len(v.AsString())); err != nil {
			return undefined, err
		}
		return strings_(strings.Split(v.AsString(), "")), nil
	case v.IsUndefined():
		return jinja.NewList(nil), nil
	}
	return fail("cannot loop over %s", typeName(a[0]))
}

func strings_(list []string) jinja.Value {
	items := make([]jinja.Value, len(list))
	for i, s := range list {
		items[i] = jinja.NewString(s)
	}
	return jinja.NewList(items)
}

func typeName(v jinja.Value) string {
	switch {
	case v.IsUndefined():
		return "an undefined value"
	case v.IsNone():
		return "none"
	case v.IsBool():
		return "a boolean"
	case v.IsNumber():
		return "a number"
	case v.IsString():
		return "a string"
	case v.IsList():
		return "a list"
	case v.IsDict():
		return "an object"
	}
	return "a function"
}

// round starts each round of a loop.
func (r *run) round(args, keywords) (jinja.Value, error) { return nothing, r.alloc(256) }

func (r *run) enterCall(args, keywords) (jinja.Value, error) { return nothing, r.enter() }

func (r *run) leaveCall(args, keywords) (jinja.Value, error) {
	r.leave()
	return nothing, nil
}

// callable lets a function through; what names it in the template is a[1].
func (r *run) callable(a args, _ keywords) (jinja.Value, error) {
	if !a[0].IsCallable() {
		return fail("%s is %s, not a function", a[1].AsString(), typeName(a[0]))
	}
	return a[0], r.step(0)
}

// printer is a function whose result is made text here, for the library to write.
func (r *run) printer(a args, _ keywords) (jinja.Value, error) {
	if !a[0].IsCallable() {
		return fail("call needs a macro, not %s", typeName(a[0]))
	}
	return call(func(x args, kw keywords) (jinja.Value, error) {
		v, err := a[0].AsCallable().Fn(x, kw)
		if err != nil {
			return undefined, err
		}
		return r.write(args{v}, nil)
	}), nil
}
