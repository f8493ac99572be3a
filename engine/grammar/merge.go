package grammar

import (
	"slices"
	"strconv"
	"strings"
)

// maxFollowed bounds the references from one to another that are put together.
const maxFollowed = 50

// flatten is a schema without $ref and allOf: what they say is put together with what stands beside them.
func (r *reading) flatten(v *value, path *place, depth int) (*value, error) {
	if err := r.visit(path); err != nil {
		return nil, err
	}
	if depth > maxFollowed {
		return nil, refuse(top, "it refers to itself, or through more than %d others", maxFollowed)
	}
	if v.kind != '{' {
		if v.kind != 't' && v.kind != 'f' {
			return nil, refuse(path, "a schema is an object, true or false")
		}
		return v, nil
	}
	if err := r.check(v, path); err != nil {
		return nil, err
	}
	if ref := v.get("$ref"); ref != nil {
		target, err := r.resolve(ref.text, path)
		if err != nil {
			return nil, err
		}
		return r.flattenBoth(v.with("$ref", nil), target, path, depth)
	}
	all := v.get("allOf")
	if all == nil {
		return v, nil
	}
	v = v.with("allOf", nil)
	for i, x := range all.items {
		var err error
		if v, err = r.flattenBoth(v, x, below(below(path, "allOf"), strconv.Itoa(i)), depth); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// combine is a schema that holds to two.
func (r *reading) combine(a, b *value, path *place) (*value, error) {
	return r.flattenBoth(a, b, path, 0)
}

func (r *reading) flattenBoth(a, b *value, path *place, depth int) (*value, error) {
	a, err := r.flatten(a, path, depth+1)
	if err != nil {
		return nil, err
	}
	if b, err = r.flatten(b, path, depth+1); err != nil {
		return nil, err
	}
	if err := r.spend(4*(a.weight+b.weight), path); err != nil {
		return nil, err
	}
	switch {
	case a.kind == 'f' || b.kind == 't':
		return a, nil
	case b.kind == 'f' || a.kind == 't':
		return b, nil
	}
	if x, y := places(a), places(b); x != y && (strings.HasPrefix(x, "+") && y != "" || strings.HasPrefix(y, "+") && x != "") {
		return nil, refuse(path, "lists with places of their own cannot be put together")
	}
	out := a
	if a.get("properties") != nil || b.get("properties") != nil {
		p, err := properties(a, b, path)
		if err != nil {
			return nil, err
		}
		out = out.with("properties", p)
	}
	for _, m := range b.members {
		old := out.get(m.name)
		switch {
		case m.name == "properties", m.name == "$id": // the one is done, the other not that of both
		case old == nil:
			out = out.with(m.name, m.v)
		case keywords[m.name] == constraint && old.json() != m.v.json():
			both, err := bothOf(m.name, old, m.v, below(path, m.name))
			if err != nil {
				return nil, err
			}
			out = out.with(m.name, both)
		}
	}
	return out, nil
}

// places is what a schema says of the items of a list, behind a + where some places have schemas of their own: what the
// other then says of all items is not what it would say beside those.
func places(v *value) string {
	text := ""
	for _, word := range []string{"prefixItems", "items", "additionalItems"} {
		if x := v.get(word); x != nil {
			text += word + x.json()
			if word != "items" || x.kind == '[' {
				text = "+" + strings.TrimPrefix(text, "+")
			}
		}
	}
	return text
}

// bothOf is the value of a keyword that holds to two.
func bothOf(name string, a, b *value, path *place) (*value, error) {
	switch name {
	case "type":
		return bothTypes(a, b), nil
	case "enum":
		theirs := map[string]bool{}
		for _, y := range b.items {
			theirs[y.json()] = true
		}
		out := &value{kind: '['}
		for _, x := range a.items {
			if theirs[x.json()] {
				out.items = append(out.items, x)
			}
		}
		return out.weigh(), nil
	case "required":
		ours := map[string]bool{}
		for _, x := range a.items {
			ours[x.text] = true
		}
		out := &value{kind: '[', items: slices.Clone(a.items)}
		for _, x := range b.items {
			if !ours[x.text] {
				out.items = append(out.items, x)
			}
		}
		return out.weigh(), nil
	case "minimum", "exclusiveMinimum", "minLength", "minItems":
		return larger(a, b, path)
	case "maximum", "exclusiveMaximum", "maxLength", "maxItems":
		small, err := larger(a, b, path)
		if small == a {
			return b, err
		}
		return a, err
	case "items", "additionalProperties":
		if a.kind != '[' && b.kind != '[' {
			return all(a, b), nil
		}
	case "const":
		return nil, refuse(path, "no value satisfies both")
	}
	return nil, refuse(path, "two of these that differ cannot be put together")
}

// all is a schema that holds to both, when it is read.
func all(a, b *value) *value {
	return (&value{kind: '{'}).with("allOf", (&value{kind: '[', items: []*value{a, b}}).weigh())
}

func larger(a, b *value, path *place) (*value, error) {
	x, err := strconv.ParseFloat(a.text, 64)
	y, err2 := strconv.ParseFloat(b.text, 64)
	if err != nil || err2 != nil {
		return nil, refuse(path, "the number is out of range")
	}
	if y > x {
		return b, nil
	}
	return a, nil
}

func bothTypes(a, b *value) *value {
	names := func(v *value) []string { return typesOf(&value{kind: '{', members: []member{{"type", v}}}) }
	out := &value{kind: '['}
	add := func(name string) {
		if !slices.ContainsFunc(out.items, func(x *value) bool { return x.text == name }) {
			out.items = append(out.items, (&value{kind: '"', text: name}).weigh())
		}
	}
	theirs := names(b)
	for _, t := range names(a) {
		switch {
		case slices.Contains(theirs, t):
			add(t)
		case t == "number" && slices.Contains(theirs, "integer"), t == "integer" && slices.Contains(theirs, "number"):
			add("integer")
		}
	}
	return out.weigh()
}

// properties are those of two schemas: a property that only one names must hold to what the other says of all others.
func properties(a, b *value, path *place) (*value, error) {
	ours, theirs := namedProperties(a), namedProperties(b)
	lookup := func(v *value, named map[string]*value, name string) *value {
		if x := named[name]; x != nil {
			return x
		}
		return v.get("additionalProperties") // nil: anything
	}
	out := &value{kind: '{'}
	for i, v := range []*value{a, b} {
		p := v.get("properties")
		if p == nil {
			continue
		}
		for _, m := range p.members {
			if i == 1 && ours[m.name] != nil {
				continue
			}
			x, y := lookup(a, ours, m.name), lookup(b, theirs, m.name)
			switch {
			case x == nil, y != nil && y.kind == 'f':
				x = y
			case x.kind == 'f':
			case y != nil && x.json() != y.json():
				x = all(x, y)
			}
			if len(out.members) == maxMembers {
				return nil, &LimitError{What: path.String() + " has too many properties"}
			}
			out.members = append(out.members, member{m.name, x})
		}
	}
	return out.weigh(), nil
}

// namedProperties are those that a schema names.
func namedProperties(v *value) map[string]*value {
	list := map[string]*value{}
	if p := v.get("properties"); p != nil {
		for _, m := range p.members {
			list[m.name] = m.v
		}
	}
	return list
}
