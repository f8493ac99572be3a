package chat

import (
	"fmt"
	"math"
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
		"__write": r.write, "__text": r.text, "__shallow": r.shallowly, "__deep": r.deeply,
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

// text, shallowly and deeply let a value through to a filter of the library that makes something of its size.
func (r *run) text(a args, _ keywords) (jinja.Value, error) {
	s, err := r.str(a[0])
	if err == nil {
		err = r.alloc(6 * len(s))
	}
	return jinja.NewString(s), err
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

func (r *run) rangeOf(a args, _ keywords) (jinja.Value, error) {
	if len(a) < 1 || len(a) > 3 || slices.ContainsFunc(a, func(v jinja.Value) bool { return !v.IsInt() }) {
		return fail("range needs one to three whole numbers")
	}
	start, stop, step := int64(0), a[0].AsInt(), int64(1)
	if len(a) > 1 {
		start, stop = stop, a[1].AsInt()
	}
	if len(a) > 2 {
		step = a[2].AsInt()
	}
	if step == 0 {
		return fail("range step is zero")
	}
	n := math.Ceil((float64(stop) - float64(start)) / float64(step))
	if err := r.alloc(int(min(max(n, 0), math.MaxInt32)) * valueSize); err != nil {
		return undefined, err
	}
	items := make([]jinja.Value, 0, int(max(n, 0)))
	for i := range int64(cap(items)) {
		items = append(items, jinja.NewInt(start+i*step))
	}
	return jinja.NewList(items), nil
}

// namespace makes an object whose attributes the template may set.
func (r *run) namespace(a args, kw keywords) (jinja.Value, error) {
	v, err := r.namespaceless(a, kw)
	if err == nil {
		r.spaces[v.AsDict()] = true
	}
	return v, err
}

// namespaceless is dict() of another object and keywords, the latter in alphabetical order.
func (r *run) namespaceless(a args, kw keywords) (jinja.Value, error) {
	d := jinja.NewDict()
	if len(a) > 0 && a[0].IsDict() {
		if err := r.alloc(shallow(a[0])); err != nil {
			return undefined, err
		}
		for _, k := range a[0].AsDict().Keys {
			d.AsDict().Set(k, a[0].AsDict().Data[k])
		}
	}
	names := make([]string, 0, len(kw))
	for k := range kw {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		d.AsDict().Set(k, kw[k])
	}
	return d, r.alloc(pairSize * (len(kw) + 1))
}

// joiner is a function that returns nothing once and then its separator.
func (r *run) joiner(a args, kw keywords) (jinja.Value, error) {
	sep, used := arg(a, 0, kw, "sep", jinja.NewString(", ")), false
	return call(func(args, keywords) (jinja.Value, error) {
		if !used {
			used = true
			return nothing, nil
		}
		return sep, r.step(0)
	}), r.alloc(pairSize)
}

// cycler goes round its arguments.
func (r *run) cycler(a args, _ keywords) (jinja.Value, error) {
	if len(a) == 0 {
		return fail("cycler needs at least one item")
	}
	items, at, d := slices.Clone(a), 0, jinja.NewDict()
	move := func(to int) jinja.Value {
		was := items[at]
		at = to % len(items)
		d.AsDict().Set("current", items[at])
		return was
	}
	d.AsDict().Set("current", items[0])
	d.AsDict().Set("next", call(func(args, keywords) (jinja.Value, error) { return move(at + 1), r.step(0) }))
	d.AsDict().Set("reset", call(func(args, keywords) (jinja.Value, error) { move(0); return nothing, r.step(0) }))
	return d, r.alloc(pairSize * (len(a) + 4))
}

func (r *run) raise(a args, _ keywords) (jinja.Value, error) {
	message := "the chat template refuses the conversation"
	if len(a) > 0 {
		s, err := r.str(a[0])
		if err != nil {
			return undefined, err
		}
		message = strings.ToValidUTF8(s[:min(len(s), 4096)], "")
	}
	return undefined, &RefusedError{Message: message}
}

func (r *run) strftime(a args, _ keywords) (jinja.Value, error) {
	format := "%Y-%m-%d"
	if len(a) > 0 && a[0].IsString() {
		format = a[0].AsString()
	}
	if err := r.alloc(10 * len(format)); err != nil {
		return undefined, err
	}
	return jinja.NewString(strftime(r.now, format)), nil
}

// strftime formats t with C's directives; an unknown one stays as it is.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := format[i] == '-' && i+1 < len(format) // no leading zero
		if plain {
			i++
		}
		layout, ok := directives[format[i]]
		switch {
		case format[i] == '%':
			b.WriteByte('%')
		case format[i] == 'j':
			fmt.Fprintf(&b, "%03d", t.YearDay())
		case !ok:
			b.WriteString("%" + format[i:i+1])
		case plain:
			b.WriteString(strings.TrimLeft(t.Format(layout), "0"))
		default:
			b.WriteString(t.Format(layout))
		}
	}
	return b.String()
}

var directives = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05",
	'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'p': "PM", 'Z': "MST", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04",
}
