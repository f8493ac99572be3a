package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// JSON reads a JSON schema (draft 7 and later, as far as the package says): texts of the form are values that it
// accepts. An error is an *Error with a path, or a *LimitError.
func JSON(schema []byte) (*Expr, error) {
	root, err := parseJSON(schema)
	if err != nil {
		return nil, err
	}
	return newReading(root, &Common{}).schema(root, top)
}

// Common is what the schemas of one request have in common: a bound on what they take together, since each may be made of
// far more parts than it has text, and parts that several of them use. The zero value is ready.
type Common struct {
	visits, work int
	numbers      map[numeric]*Expr
	lengths      map[[2]int]*Expr // of strings, by their bounds, since each length is a part of its own
	patterns     map[string]*Expr // by their text and the bounds beside it
}

// numeric is a range of numbers.
type numeric struct {
	bounds
	whole bool
}

// Call is a JSON object of a function's name and its arguments under two keys; without a nameKey it is the arguments alone.
// Those are an object of the schema, an empty one when there is none: such a function takes none. The calls of one request share what is common. Errors are
// those of JSON.
func Call(common *Common, nameKey, name, argumentsKey string, schema []byte) (*Expr, error) {
	arguments := Seq(Text("{"), space, Text("}"))
	if s := strings.TrimSpace(string(schema)); s != "" && s != "null" {
		root, err := parseJSON(schema)
		if err != nil {
			return nil, err
		}
		r := newReading(root, common)
		if root, err = r.combine(root, objects, top); err != nil {
			return nil, err
		}
		if arguments, err = r.schema(root, top); err != nil {
			return nil, err
		}
	}
	if nameKey == "" {
		return arguments, nil
	}
	return Seq(Text("{"), space, Text(quote(nameKey)), colon, Text(quote(name)), comma,
		Text(quote(argumentsKey)), colon, arguments, space, Text("}")), nil
}

// objects is the schema of all objects.
var objects = (&value{kind: '{'}).with("type", (&value{kind: '"', text: "object"}).weigh())

// Object is any JSON object.
func Object() *Expr { return anyObject }

// The parts of JSON that depend on no schema. They never change.
var (
	// space stands between the parts of an object or an array.
	space = named("space", Any(Text(""), Text(" "), Seq(Text("\n"), Repeat(class(span{' ', ' '}, span{'\t', '\t'}), 0, 20))))
	digit = class(span{'0', '9'})
	hex   = class(span{'0', '9'}, span{'a', 'f'}, span{'A', 'F'})
	// letter is a character of a string. Halves of surrogate pairs are left out: alone they are no character.
	letter = named("letter", Any(
		class(without([]span{{' ', maxRune}}, []span{{'"', '"'}, {'\\', '\\'}})...),
		Seq(Text(`\`), Any(
			class(span{'"', '"'}, span{'\\', '\\'}, span{'/', '/'}, span{'b', 'b'}, span{'f', 'f'}, span{'n', 'n'}, span{'r', 'r'}, span{'t', 't'}),
			Seq(Text("u"), Any(
				Seq(class(span{'0', '9'}, span{'a', 'c'}, span{'A', 'C'}, span{'e', 'f'}, span{'E', 'F'}), Repeat(hex, 3, 3)),
				Seq(class(span{'d', 'd'}, span{'D', 'D'}), class(span{'0', '7'}), Repeat(hex, 2, 2)),
			)),
		)),
	))
	anyString = named("string", Seq(Text(`"`), Repeat(letter, 0, -1), Text(`"`)))
	anyBool   = oneOf("true", "false")
	comma     = Seq(Text(","), space)
	colon     = Seq(Text(":"), Optional(Text(" ")))

	anyValue, anyObject = values()
)

// values is any JSON value, and any object, which hold each other.
func values() (any, object *Expr) {
	r := &rule{name: "value"}
	any = call(r)
	object = named("object", bracketed("{", list(Seq(anyString, colon, any)), true, "}"))
	array := named("array", bracketed("[", list(any), true, "]"))
	r.body = Any(anyString, anyNumber, anyBool, Text("null"), object, array)
	return any, object
}

// list is one part or more with commas between.
func list(part *Expr) *Expr { return Seq(part, Repeat(Seq(comma, part), 0, -1)) }

// bracketed is some parts in brackets, which may be empty where empty says so.
func bracketed(open string, parts *Expr, empty bool, end string) *Expr {
	inner := Seq(parts, space)
	if empty {
		inner = Optional(inner)
	}
	return Seq(Text(open), space, inner, Text(end))
}

// reading is a schema being turned into a form.
type reading struct {
	*Common
	root  *value
	rules map[string]*Expr // of references, by their text
}

func newReading(root *value, common *Common) *reading {
	if common.numbers == nil {
		common.numbers, common.lengths, common.patterns = map[numeric]*Expr{}, map[[2]int]*Expr{}, map[string]*Expr{}
	}
	return &reading{Common: common, root: root, rules: map[string]*Expr{}}
}

// maxVisits bounds the schemas looked at: those that are put together can be many more than there are.
// maxRead bounds what is read of them again and again, in rough bytes.
const (
	maxVisits = 20_000
	maxRead   = 20 << 20
)

func (r *reading) visit(path *place) error {
	if r.visits++; r.visits > maxVisits {
		return &LimitError{What: fmt.Sprintf("its parts, put together, are more than %d (at %s)", maxVisits, path)}
	}
	return nil
}

// spend counts what is read.
func (r *reading) spend(n int, path *place) error {
	if r.work += n; r.work > maxRead {
		return &LimitError{What: fmt.Sprintf("its parts, put together, are read too often (at %s)", path)}
	}
	return nil
}

func refuse(path *place, format string, args ...any) error {
	return &Error{Path: path.String(), Reason: fmt.Sprintf(format, args...)}
}

// schema is the form of a schema.
func (r *reading) schema(v *value, path *place) (*Expr, error) {
	if err := r.visit(path); err != nil {
		return nil, err
	}
	switch v.kind {
	case 't':
		return anyValue, nil
	case 'f':
		return nil, refuse(path, "no value satisfies false")
	case '{':
	default:
		return nil, refuse(path, "a schema is an object, true or false")
	}
	if err := r.check(v, path); err != nil {
		return nil, err
	}
	if ref := v.get("$ref"); ref != nil && !constrains(v.with("$ref", nil)) {
		return r.reference(ref.text, path)
	}
	v, err := r.flatten(v, path, 0)
	if err != nil {
		return nil, err
	}
	if v.kind != '{' {
		return r.schema(v, path)
	}
	for _, word := range []string{"anyOf", "oneOf"} {
		if v.get(word) != nil {
			return r.anyOf(v, word, path)
		}
	}
	if v.get("const") != nil || v.get("enum") != nil {
		return r.literals(v, path)
	}
	return r.byType(v, path)
}

// reference is the rule for what a reference points at, which is read once.
func (r *reading) reference(ref string, path *place) (*Expr, error) {
	if e := r.rules[ref]; e != nil {
		return e, nil
	}
	target, err := r.resolve(ref, path)
	if err != nil {
		return nil, err
	}
	to := &rule{name: ref}
	e := call(to)
	r.rules[ref] = e
	to.body, err = r.schema(target, &place{step: ref})
	return e, err
}

// resolve finds what a reference within the schema points at.
func (r *reading) resolve(ref string, path *place) (*value, error) {
	at := r.root
	rest, ok := strings.CutPrefix(ref, "#")
	if !ok || rest != "" && rest[0] != '/' {
		return nil, refuse(below(path, "$ref"), "only references within the schema are supported (#/$defs/...), not %q", ref)
	}
	if rest == "" {
		return at, nil
	}
	for step := range strings.SplitSeq(rest[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(unescape(step))
		var next *value
		if at.kind == '[' {
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(at.items) {
				next = at.items[i]
			}
		} else {
			next = at.get(step)
		}
		if next == nil {
			return nil, refuse(below(path, "$ref"), "there is nothing at %q", ref)
		}
		at = next
	}
	return at, nil
}

// anyOf is one of several schemas, each together with what stands beside the list.
func (r *reading) anyOf(v *value, word string, path *place) (*Expr, error) {
	list := v.get(word)
	base := v.with(word, nil)
	var forms []*Expr
	for i, x := range list.items {
		at := below(below(path, word), strconv.Itoa(i))
		var err error
		if constrains(base) {
			if x, err = r.combine(base, x, at); err != nil {
				return nil, err
			}
		}
		if x.kind == 'f' {
			continue
		}
		e, err := r.schema(x, at)
		if err != nil {
			return nil, err
		}
		forms = append(forms, e)
	}
	if len(forms) == 0 {
		return nil, refuse(below(path, word), "no value satisfies it")
	}
	return Any(forms...), nil
}

// literals is the values of const or enum.
func (r *reading) literals(v *value, path *place) (*Expr, error) {
	if err := r.spend(v.weight, path); err != nil {
		return nil, err
	}
	word := "enum"
	list := v.get("enum")
	if c := v.get("const"); c != nil {
		if text := c.json(); list != nil && !slices.ContainsFunc(list.items, func(x *value) bool { return x.json() == text }) {
			return nil, refuse(below(path, "const"), "it is not in enum")
		}
		word, list = "const", &value{items: []*value{c}}
	}
	for _, m := range v.members {
		if keywords[m.name] == constraint && !slices.Contains([]string{"enum", "const", "type"}, m.name) {
			return nil, refuse(below(path, m.name), "it is not supported beside %s", word)
		}
	}
	types := typesOf(v)
	var texts []string
	for _, x := range list.items {
		if v.get("type") == nil || slices.ContainsFunc(types, func(t string) bool { return isType(x, t) }) {
			texts = append(texts, x.json())
		}
	}
	if len(texts) == 0 {
		return nil, refuse(below(path, word), "it has no value of the type")
	}
	return oneOf(texts...), nil
}

func isType(v *value, name string) bool {
	switch name {
	case "integer":
		f, err := strconv.ParseFloat(v.text, 64)
		return v.kind == '0' && err == nil && f == float64(int64(f))
	case "boolean":
		return v.kind == 't' || v.kind == 'f'
	}
	return kindOf[name] == v.kind
}

var kindOf = map[string]byte{"object": '{', "array": '[', "string": '"', "number": '0', "null": 'n'}

// typesOf is the names of the types that a schema lists.
func typesOf(v *value) (list []string) {
	t := v.get("type")
	switch {
	case t == nil:
	case t.kind == '[':
		for _, x := range t.items {
			list = append(list, x.text)
		}
	default:
		list = []string{t.text}
	}
	return list
}

// impliedTypes are those whose keywords a schema has. One without a type would accept all others too.
func impliedTypes(v *value) (list []string) {
	for _, m := range v.members {
		if t := typeOfKeyword[m.name]; t != "" && !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

// byType is the values of the types that a schema has.
func (r *reading) byType(v *value, path *place) (*Expr, error) {
	types := typesOf(v)
	if v.get("type") == nil {
		if types = impliedTypes(v); len(types) == 0 {
			return anyValue, nil
		}
	}
	var forms []*Expr
	for _, t := range types {
		e, err := r.ofType(v, t, path)
		if err != nil {
			return nil, err
		}
		forms = append(forms, e)
	}
	if len(forms) == 0 {
		return nil, refuse(below(path, "type"), "no type is left")
	}
	return Any(forms...), nil
}

func (r *reading) ofType(v *value, name string, path *place) (*Expr, error) {
	switch name {
	case "object":
		return r.object(v, path)
	case "array":
		return r.array(v, path)
	case "string":
		return r.text(v, path)
	case "integer":
		return r.integer(v, path)
	case "number":
		return r.number(v, path)
	case "boolean":
		return anyBool, nil
	case "null":
		return Text("null"), nil
	}
	return nil, refuse(below(path, "type"), "there is no type %q", name)
}
