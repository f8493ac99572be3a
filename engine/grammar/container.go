package grammar

import (
	"slices"
	"strconv"
	"strings"
)

// maxCopies bounds what a schema lets come so often: a list or a text may be shorter than its most.
const maxCopies = 8192

// property is one that an object may have by name.
type property struct {
	pair     *Expr
	required bool
}

// object is an object of named properties in the schema's order, then others where the schema wants them.
func (r *reading) object(v *value, path *place) (*Expr, error) {
	props, names, err := r.properties(v, path)
	if err != nil {
		return nil, err
	}
	var extra *Expr
	if more := v.get("additionalProperties"); more != nil && more.kind != 'f' || more == nil && len(props) == 0 {
		e := anyValue
		if more != nil {
			if e, err = r.schema(more, below(path, "additionalProperties")); err != nil {
				return nil, err
			}
		}
		extra = Seq(keyBeside(names), colon, e)
	}
	if extra == nil && len(props) == 0 {
		return Seq(Text("{"), space, Text("}")), nil
	}
	return bracketedMembers(props, extra), nil
}

// properties reads the properties of an object that have names. names holds those that may not be there too.
func (r *reading) properties(v *value, path *place) (list []property, names []string, err error) {
	if err := r.spend(v.weight, path); err != nil {
		return nil, nil, err
	}
	required := map[string]bool{}
	if req := v.get("required"); req != nil {
		for _, x := range req.items {
			required[x.text] = true
		}
	}
	seen := map[string]bool{}
	add := func(name string, x *value, at *place) error {
		seen[name] = true
		if x.kind == 'f' {
			if required[name] {
				return refuse(at, "the property is required and may not be there")
			}
			names = append(names, name)
			return nil
		}
		e, err := r.schema(x, at)
		list = append(list, property{Seq(Text(quote(name)), colon, e), required[name]})
		names = append(names, name)
		return err
	}
	if props := v.get("properties"); props != nil {
		for _, m := range props.members {
			if err := add(m.name, m.v, below(below(path, "properties"), m.name)); err != nil {
				return nil, nil, err
			}
		}
	}
	if req := v.get("required"); req != nil {
		for i, x := range req.items {
			if seen[x.text] {
				continue
			}
			other := v.get("additionalProperties")
			if other == nil {
				other = always
			}
			if err := add(x.text, other, below(below(path, "required"), strconv.Itoa(i))); err != nil {
				return nil, nil, err
			}
		}
	}
	return list, names, nil
}

// bracketedMembers is an object of some members. Rule i of rest is what may follow behind a member from property i on;
// first is the same where no member has come yet.
func bracketedMembers(props []property, extra *Expr) *Expr {
	rest, first := Text(""), Text("")
	if extra != nil {
		rest = named("rest", Repeat(Seq(comma, extra), 0, -1))
		first = Optional(Seq(extra, rest))
	}
	for _, p := range slices.Backward(props) {
		here := Seq(p.pair, rest)
		if p.required {
			first, rest = here, named("rest", Seq(comma, here))
			continue
		}
		first, rest = named("first", Any(here, first)), named("rest", Any(Seq(comma, here), rest))
	}
	return Seq(Text("{"), space, first, space, Text("}"))
}

// keyBeside is a key that is none of names. It is written without escapes, so that it cannot be one of them in disguise.
func keyBeside(names []string) *Expr {
	if len(names) == 0 {
		return anyString
	}
	root := &branch{}
	for _, n := range names {
		if strings.ContainsFunc(n, escaped) {
			continue // it cannot be written without escapes
		}
		at := root
		for _, c := range n {
			at = at.to(c)
		}
		at.end = true
	}
	return Seq(Text(`"`), root.others(named("plain", Repeat(class(plainLetter...), 0, -1))), Text(`"`))
}

// plainLetter is a character that stands in a string as it is.
var plainLetter = without([]span{{' ', maxRune}}, []span{{'"', '"'}, {'\\', '\\'}})

// escaped says of a character that a string has it only as an escape.
func escaped(c rune) bool { return c < ' ' || c == '"' || c == '\\' }

// branch is a node of a trie of names.
type branch struct {
	letters []rune
	kids    []*branch
	end     bool
}

func (b *branch) to(c rune) *branch {
	if i := slices.Index(b.letters, c); i >= 0 {
		return b.kids[i]
	}
	b.letters, b.kids = append(b.letters, c), append(b.kids, &branch{})
	return b.kids[len(b.kids)-1]
}

// others is every text that goes on from here and is no name.
func (b *branch) others(rest *Expr) *Expr {
	var taken []span
	var forms []*Expr
	for i, c := range b.letters {
		taken = append(taken, span{c, c})
		forms = append(forms, Seq(class(span{c, c}), b.kids[i].others(rest)))
	}
	forms = append(forms, Seq(class(without(plainLetter, taken)...), rest))
	if !b.end {
		forms = append(forms, Text(""))
	}
	return named("others", Any(forms...))
}

// array is a list: of the places of prefixItems, then of items.
func (r *reading) array(v *value, path *place) (*Expr, error) {
	var places []*Expr
	prefix, word := v.get("prefixItems"), "prefixItems"
	items, itemsWord := v.get("items"), "items"
	if items != nil && items.kind == '[' {
		if prefix != nil {
			return nil, refuse(below(path, "items"), "it must be a schema beside prefixItems")
		}
		prefix, word = items, "items"
		items, itemsWord = v.get("additionalItems"), "additionalItems"
	}
	if prefix != nil {
		for i, x := range prefix.items {
			e, err := r.schema(x, below(below(path, word), strconv.Itoa(i)))
			if err != nil {
				return nil, err
			}
			places = append(places, e)
		}
	}
	least, most := count(v, "minItems", 0), count(v, "maxItems", -1)
	var other *Expr
	switch {
	case items != nil && items.kind == 'f' || items == nil && prefix != nil:
		if most < 0 || most > len(places) {
			most = len(places)
		}
	case items == nil:
		other = anyValue
	default:
		e, err := r.schema(items, below(path, itemsWord))
		if err != nil {
			return nil, err
		}
		other = named("item", e)
	}
	if most > maxCopies {
		most = max(least, maxCopies)
	}
	if most >= 0 && least > most {
		return nil, refuse(below(path, "minItems"), "no list is as long: there are at most %d items", most)
	}
	return arrayOf(places, other, least, most), nil
}

// arrayOf is a list that begins with places and goes on with other.
func arrayOf(places []*Expr, other *Expr, least, most int) *Expr {
	if most == 0 {
		return Seq(Text("["), space, Text("]"))
	}
	tail := Text("") // behind n parts
	n := len(places)
	if most >= 0 && most < n {
		n = most
	}
	if other != nil && (most < 0 || most > n) {
		more := -1
		if most >= 0 {
			more = most - n
		}
		tail = named("more", Repeat(named("part", Seq(comma, other)), max(0, least-n), more))
	}
	if n == 0 { // the first part has no comma before it
		more := most
		if more > 0 {
			more--
		}
		parts := Seq(other, Repeat(named("part", Seq(comma, other)), max(0, least-1), more))
		return bracketed("[", parts, least == 0, "]")
	}
	for i := n - 1; i > 0; i-- {
		tail = Seq(comma, places[i], tail)
		if i >= least {
			tail = Optional(tail)
		}
	}
	return bracketed("[", Seq(places[0], tail), least == 0, "]")
}
