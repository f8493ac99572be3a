package template

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// filterGuard says how a filter is done: by the library, behind the host function that it returns, which counts
// the input as text, as looked at, by its length or with all it holds; or (ours) by run.filter.
func filterGuard(name string) (guard string, ours bool) {
	switch name {
	case "lower", "upper", "capitalize", "wordcount", "escape", "e":
		return "__text", false
	case "length", "count", "default", "d", "safe", "round":
		return "__seen", false
	case "reverse", "batch":
		return "__shallow", false
	case "sum", "max", "min":
		return "__deep", false
	}
	return "", true
}

// filter applies a filter that the library lacks, or does otherwise than Jinja2 as models are published for it:
// arguments are its name, the input and its own.
func (r *run) filter(a args, kw keywords) (jinja.Value, error) {
	name, v, a := a[0].AsString(), a[1], a[2:]
	switch name {
	case "tojson":
		return r.toJSON(v, kw)
	case "fromjson", "from_json":
		return r.fromJSON(v)
	case "string":
		return r.write(args{v}, nil)
	case "title":
		s, err := r.text(args{v}, nil)
		if err != nil {
			return undefined, err
		}
		return jinja.NewString(title(s.AsString(), func(c rune) bool { return !strings.ContainsRune("- \t\n\r({[<", c) })), nil
	case "trim":
		s, err := r.str(v)
		if err == nil {
			err = r.alloc(len(s))
		}
		return trim(s, "strip", arg(a, 0, kw, "chars", none)), err
	case "join":
		return r.joinFilter(v, a, kw)
	case "replace":
		return r.replaceFilter(v, a, kw)
	case "indent":
		return r.indent(v, a, kw)
	case "items":
		return r.items(v)
	case "list", "first", "last", "random":
		return r.sequence(v, name)
	case "unique":
		return r.unique(v, a, kw)
	case "int", "float", "abs":
		return convert(v, name, arg(a, 0, kw, "default", jinja.NewInt(0))), r.step(0)
	case "sort", "dictsort":
		return r.sort(v, name, a, kw)
	case "map":
		return r.mapFilter(v, a, kw)
	case "select", "reject", "selectattr", "rejectattr":
		return r.selectFilter(v, name, a)
	case "groupby":
		return r.groupBy(v, a, kw)
	}
	return fail("the filter %q is not supported", name)
}

// toJSON writes JSON as model authors' templates expect: ", " and ": " between, no HTML escapes, keys in their
// order, unless the call says otherwise.
func (r *run) toJSON(v jinja.Value, kw keywords) (jinja.Value, error) {
	style := jsonStyle{indent: -1, item: ", ", key: ": ", limit: r.memory}
	if _, err := r.walk(v); err != nil {
		return undefined, err
	}
	if n, ok := kw["indent"]; ok && !n.IsNone() && !n.IsUndefined() {
		style.indent, style.item = int(min(max(toInt(n), 0), 100)), ","
	}
	if s, ok := kw["separators"]; ok && !s.IsNone() {
		if !s.IsList() || s.AsList().Len() != 2 || !s.AsList().Get(0).IsString() || !s.AsList().Get(1).IsString() {
			return fail("tojson: separators must be two strings")
		}
		style.item, style.key = s.AsList().Get(0).AsString(), s.AsList().Get(1).AsString()
	}
	style.ascii = kw["ensure_ascii"].IsTruthy()
	style.sortKeys = kw["sort_keys"].IsTruthy()
	b := style.appendJSON(nil, v, 0)
	if err := r.alloc(len(b)); err != nil {
		return undefined, err
	}
	return jinja.NewString(string(b)), nil
}

func (r *run) fromJSON(v jinja.Value) (jinja.Value, error) {
	if !v.IsString() {
		return fail("fromjson needs a string")
	}
	if err := r.alloc(pairSize * len(v.AsString())); err != nil {
		return undefined, err
	}
	out, err := Decode([]byte(v.AsString()), nil)
	if err != nil {
		return fail("fromjson: %v", err)
	}
	return out, nil
}

func (r *run) joinFilter(v jinja.Value, a args, kw keywords) (jinja.Value, error) {
	sep, err := r.str(arg(a, 0, kw, "d", nothing))
	if err != nil {
		return undefined, err
	}
	attribute, err := r.str(arg(a, 1, kw, "attribute", nothing))
	if err != nil {
		return undefined, err
	}
	items, err := r.each(args{v}, nil)
	if err != nil {
		return undefined, err
	}
	return r.join(args{items}, sep, attribute)
}

func (r *run) replaceFilter(v jinja.Value, a args, kw keywords) (jinja.Value, error) {
	var t [3]string
	for i, x := range []jinja.Value{v, arg(a, 0, kw, "old", nothing), arg(a, 1, kw, "new", nothing)} {
		var err error
		if t[i], err = r.str(x); err != nil {
			return undefined, err
		}
	}
	return r.replace(t[0], t[1], t[2], arg(a, 2, kw, "count", jinja.NewInt(-1)))
}

// indent puts spaces, or a given text, before every line but the first and the empty ones.
func (r *run) indent(v jinja.Value, a args, kw keywords) (jinja.Value, error) {
	s, err := r.str(v)
	if err != nil {
		return undefined, err
	}
	width := arg(a, 0, kw, "width", jinja.NewInt(4))
	pad := width
	if !width.IsString() {
		if pad, err = r.repeat(jinja.NewString(" "), toInt(width)); err != nil {
			return undefined, err
		}
	}
	first := arg(a, 1, kw, "first", none).IsTruthy()
	blank := arg(a, 2, kw, "blank", none).IsTruthy()
	lines := strings.Split(s, "\n")
	if err := r.alloc(len(s) + len(lines)*(2*len(pad.AsString())+valueSize)); err != nil {
		return undefined, err
	}
	for i, line := range lines {
		if i == 0 && first || i > 0 && (blank || line != "") {
			lines[i] = pad.AsString() + line
		}
	}
	return jinja.NewString(strings.Join(lines, "\n")), nil
}

func (r *run) items(v jinja.Value) (jinja.Value, error) {
	switch {
	case v.IsUndefined():
		return jinja.NewList(nil), nil
	case !v.IsDict():
		return fail("items needs an object, not %s", typeName(v))
	}
	return r.dictMethod(v.AsDict(), "items", nil, nil)
}

func (r *run) sequence(v jinja.Value, name string) (jinja.Value, error) {
	list, err := r.each(args{v}, nil)
	if err != nil {
		return undefined, err
	}
	items := list.AsList().Items
	switch {
	case name == "list":
		return jinja.NewList(slices.Clone(items)), r.alloc(shallow(list))
	case len(items) == 0:
		return undefined, nil
	case name == "last":
		return items[len(items)-1], nil
	}
	return items[0], nil
}

// unique keeps the first of equal items; case makes no difference to strings unless asked.
func (r *run) unique(v jinja.Value, a args, kw keywords) (jinja.Value, error) {
	list, err := r.each(args{v}, nil)
	if err != nil {
		return undefined, err
	}
	sensitive := arg(a, 0, kw, "case_sensitive", none).IsTruthy()
	attribute, err := r.str(arg(a, 1, kw, "attribute", nothing))
	if err != nil {
		return undefined, err
	}
	seen := map[string]bool{}
	var kept []jinja.Value
	for _, x := range list.AsList().Items {
		at := attributeOf(x, attribute)
		key, err := r.str(jinja.NewList(args{at})) // which tells '1' from 1
		if err != nil {
			return undefined, err
		}
		if at.IsString() && !sensitive {
			key = strings.ToLower(key)
		}
		if !seen[key] {
			seen[key] = true
			kept = append(kept, x)
		}
	}
	return jinja.NewList(kept), r.alloc(valueSize * len(kept))
}

// maxSort bounds the items of a list to sort: the time that takes is not counted as it goes.
const maxSort = 100_000

// sort orders a list, or with dictsort an object's pairs, without regard to case unless asked.
func (r *run) sort(v jinja.Value, name string, a args, kw keywords) (jinja.Value, error) {
	attribute, sensitive := "", arg(a, 1, kw, "case_sensitive", none).IsTruthy()
	reverse := arg(a, 0, kw, "reverse", none).IsTruthy()
	if name == "dictsort" {
		sensitive, reverse = arg(a, 0, kw, "case_sensitive", none).IsTruthy(), arg(a, 2, kw, "reverse", none).IsTruthy()
		pairs, err := r.items(v)
		if err != nil {
			return undefined, err
		}
		v = pairs
	} else if at := arg(a, 2, kw, "attribute", none); at.IsString() {
		attribute = at.AsString()
	}
	list, err := r.sequence(v, "list")
	if err != nil {
		return undefined, err
	}
	if n, err := r.walk(list); err != nil {
		return undefined, err
	} else if err := r.alloc(n); err != nil {
		return undefined, err
	}
	if list.AsList().Len() > maxSort {
		return undefined, &LimitError{What: "items to sort", Limit: itoa(maxSort)}
	}
	byValue := arg(a, 1, kw, "by", none)
	key := func(x jinja.Value) jinja.Value {
		x = attributeOf(x, attribute)
		if name == "dictsort" {
			x = x.AsList().Items[map[bool]int{true: 1}[byValue.IsString() && byValue.AsString() == "value"]]
		}
		if x.IsString() && !sensitive {
			return jinja.NewString(strings.ToLower(x.AsString()))
		}
		return x
	}
	keyed := make([][2]jinja.Value, 0, list.AsList().Len())
	for _, x := range list.AsList().Items {
		keyed = append(keyed, [2]jinja.Value{key(x), x})
	}
	slices.SortStableFunc(keyed, func(x, y [2]jinja.Value) int {
		c, _ := order(x[0], y[0])
		if reverse {
			return -c
		}
		return c
	})
	for i, x := range keyed {
		list.AsList().Items[i] = x[1]
	}
	return list, nil
}

// mapFilter applies a filter to each item, or takes an attribute of it.
func (r *run) mapFilter(v jinja.Value, a args, kw keywords) (jinja.Value, error) {
	if !v.IsTruthy() {
		return jinja.NewList(nil), nil
	}
	list, err := r.sequence(v, "list")
	if err != nil {
		return undefined, err
	}
	if at, ok := kw["attribute"]; ok && at.IsString() {
		for i, x := range list.AsList().Items {
			if err := r.step(0); err != nil {
				return undefined, err
			}
			x = attributeOf(x, at.AsString())
			if x.IsUndefined() {
				x = arg(nil, 0, kw, "default", undefined)
			}
			list.AsList().Items[i] = x
		}
		return list, nil
	}
	if len(a) == 0 || !a[0].IsString() {
		return fail("map needs a filter or an attribute")
	}
	for i, x := range list.AsList().Items {
		if list.AsList().Items[i], err = r.mapped(a[0].AsString(), x, a[1:], kw); err != nil {
			return undefined, err
		}
	}
	return list, nil
}

// mapped is one item through a filter named at run time.
func (r *run) mapped(name string, v jinja.Value, a args, kw keywords) (jinja.Value, error) {
	if guard, ours := filterGuard(name); !ours {
		switch name {
		case "lower", "upper", "capitalize":
			s, err := r.str(v)
			if err != nil {
				return undefined, err
			}
			return r.stringMethod(s, name, a, kw)
		case "length", "count":
			n, err := r.see(args{v}, nil)
			return length(n), err
		}
		return fail("map of %q (%s) is not supported", name, guard)
	}
	return r.filter(append(args{jinja.NewString(name), v}, a...), kw)
}

// convert makes a whole number, a float or an absolute value; what is no number becomes otherwise.
func convert(v jinja.Value, name string, otherwise jinja.Value) jinja.Value {
	if v.IsString() {
		s := strings.TrimSpace(v.AsString()[:min(len(v.AsString()), 400)])
		if _, err := strconv.ParseFloat(s, 64); err != nil {
			v = jinja.Undefined()
		} else {
			v = number(s)
		}
	}
	f, ok := numeric(v)
	switch {
	case !ok && name == "float":
		f, _ = numeric(otherwise)
		return jinja.NewFloat(f)
	case !ok:
		return otherwise
	case name == "float":
		return jinja.NewFloat(f)
	case name == "abs" && v.IsFloat():
		return jinja.NewFloat(math.Abs(f))
	case name == "abs":
		return jinja.NewInt(max(toInt(v), -toInt(v)))
	}
	return jinja.NewInt(toInt(v))
}

func length(v jinja.Value) jinja.Value {
	switch {
	case v.IsList():
		return jinja.NewInt(int64(v.AsList().Len()))
	case v.IsDict():
		return jinja.NewInt(int64(v.AsDict().Len()))
	case v.IsString():
		return jinja.NewInt(int64(len([]rune(v.AsString()))))
	}
	return jinja.NewInt(0)
}

// selectFilter keeps the items, or those with an attribute, that pass or fail a test.
func (r *run) selectFilter(v jinja.Value, name string, a args) (jinja.Value, error) {
	if !v.IsTruthy() {
		return jinja.NewList(nil), nil
	}
	list, err := r.each(args{v}, nil)
	if err != nil {
		return undefined, err
	}
	attribute := ""
	if strings.HasSuffix(name, "attr") {
		if len(a) == 0 || !a[0].IsString() {
			return fail("%s needs an attribute", name)
		}
		attribute, a = a[0].AsString(), a[1:]
	}
	var kept []jinja.Value
	for _, x := range list.AsList().Items {
		at := attributeOf(x, attribute)
		ok := at.IsTruthy()
		if len(a) > 0 && a[0].IsString() {
			if ok, err = r.passes(a[0].AsString(), at, a[1:]); err != nil {
				return undefined, err
			}
		}
		if err := r.step(0); err != nil {
			return undefined, err
		}
		if ok != strings.HasPrefix(name, "reject") {
			kept = append(kept, x)
		}
	}
	return jinja.NewList(kept), r.alloc(valueSize * len(kept))
}

// groupBy makes pairs of a value and the items whose attribute has it, in the values' order.
func (r *run) groupBy(v jinja.Value, a args, kw keywords) (jinja.Value, error) {
	attribute := arg(a, 0, kw, "attribute", none)
	if !attribute.IsString() {
		return fail("groupby needs an attribute")
	}
	list, err := r.sort(v, "sort", nil, keywords{"attribute": attribute})
	if err != nil {
		return undefined, err
	}
	var groups []jinja.Value
	var last *jinja.List
	var key jinja.Value
	for _, x := range list.AsList().Items {
		k := attributeOf(x, attribute.AsString())
		if last == nil || !equal(k, key) {
			items := jinja.NewList(nil)
			last, key = items.AsList(), k
			groups = append(groups, jinja.NewList(args{k, items}))
		}
		last.Append(x)
		if err := r.alloc(pairSize); err != nil {
			return undefined, err
		}
	}
	return jinja.NewList(groups), nil
}
