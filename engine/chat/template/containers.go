package template

import (
	"slices"

	"github.com/ardanlabs/jinja"
)

func (r *run) listMethod(l *jinja.List, name string, a args) (jinja.Value, error) {
	items := l.Len()
	if name == "append" || name == "pop" {
		items = 1
	}
	if err := r.alloc(2 * valueSize * (items + 1)); err != nil {
		return undefined, err
	}
	var first jinja.Value
	if len(a) > 0 {
		first = a[0]
	} else if name != "pop" && name != "copy" && name != "reverse" {
		return fail("%s needs an argument", name)
	}
	switch name {
	case "append":
		l.Append(first)
	case "extend":
		if first.IsList() {
			l.Items = slices.Concat(l.Items, first.AsList().Items)
		}
		return none, r.alloc(shallow(first))
	case "copy":
		return jinja.NewList(slices.Clone(l.Items)), nil
	case "reverse":
		slices.Reverse(l.Items)
	case "count", "index", "remove":
		return r.find(l, name, first)
	case "insert":
		i := min(max(toInt(first), 0), int64(l.Len()))
		if len(a) < 2 {
			return fail("insert needs two arguments")
		}
		l.Items = slices.Insert(l.Items, int(i), a[1])
	case "pop":
		i := int64(-1)
		if len(a) > 0 {
			i = toInt(first)
		}
		at, ok := index(i, l.Len())
		if !ok {
			return fail("pop of an item that is not there")
		}
		v := l.Items[at]
		l.Items = slices.Delete(l.Items, at, at+1)
		return v, nil
	}
	return none, nil
}

// find: the list methods that compare.
func (r *run) find(l *jinja.List, name string, v jinja.Value) (jinja.Value, error) {
	if _, err := r.walk(jinja.NewList(l.Items), v); err != nil {
		return undefined, err
	}
	n, at := 0, -1
	for i, item := range l.Items {
		if equal(item, v) {
			if n++; at < 0 {
				at = i
			}
		}
	}
	switch {
	case name == "count":
		return jinja.NewInt(int64(n)), nil
	case at < 0:
		return fail("%s: item not in list", name)
	case name == "index":
		return jinja.NewInt(int64(at)), nil
	}
	l.Items = slices.Delete(l.Items, at, at+1)
	return none, nil
}

func (r *run) dictMethod(d *jinja.Dict, name string, a args, kw keywords) (jinja.Value, error) {
	if err := r.alloc(pairSize); err != nil {
		return undefined, err
	}
	switch name {
	case "items":
		if err := r.alloc(pairSize * d.Len()); err != nil {
			return undefined, err
		}
		return pairs(d), nil
	case "keys":
		return strings_(d.Keys), r.alloc(valueSize * d.Len())
	case "values":
		items := make([]jinja.Value, 0, d.Len())
		for _, k := range d.Keys {
			items = append(items, d.Data[k])
		}
		return jinja.NewList(items), r.alloc(valueSize * d.Len())
	case "copy":
		return r.namespaceless(args{dictValue(d)}, nil)
	case "update":
		return r.update(d, a, kw)
	}
	if len(a) == 0 {
		return fail("%s needs a key", name)
	}
	key, err := r.str(a[0])
	if err != nil {
		return undefined, err
	}
	v, ok := d.Get(key)
	otherwise := arg(a, 1, kw, "default", none)
	switch {
	case ok && name == "pop":
		delete(d.Data, key)
		d.Keys = slices.DeleteFunc(slices.Clone(d.Keys), func(k string) bool { return k == key })
		return v, r.step(valueSize * d.Len())
	case ok:
		return v, nil
	case name == "setdefault":
		d.Set(key, otherwise)
	}
	return otherwise, nil
}

func dictValue(d *jinja.Dict) jinja.Value {
	v := jinja.NewDict()
	*v.AsDict() = *d
	return v
}

func pairs(d *jinja.Dict) jinja.Value {
	items := make([]jinja.Value, 0, d.Len())
	for _, k := range d.Keys {
		items = append(items, jinja.NewList(args{jinja.NewString(k), d.Data[k]}))
	}
	return jinja.NewList(items)
}

func (r *run) update(d *jinja.Dict, a args, kw keywords) (jinja.Value, error) {
	other, err := r.namespaceless(a, kw)
	if err != nil {
		return undefined, err
	}
	for _, k := range other.AsDict().Keys {
		d.Set(k, other.AsDict().Data[k])
	}
	return none, nil
}
