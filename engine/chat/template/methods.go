package template

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ardanlabs/jinja"
)

// The methods of Python's str, list and dict that templates call. Each is a host function: the library's own would
// make values that nobody counts.
var (
	stringMethods = []string{
		"capitalize", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isdigit", "islower",
		"isspace", "isupper", "join", "lower", "lstrip", "removeprefix", "removesuffix", "replace", "rfind", "rsplit",
		"rstrip", "split", "splitlines", "startswith", "strip", "title", "upper",
	}
	listMethods = []string{"append", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse"}
	dictMethods = []string{"copy", "get", "items", "keys", "pop", "setdefault", "update", "values"}
)

func isMethod(name string) bool {
	return slices.Contains(stringMethods, name) || slices.Contains(listMethods, name) || slices.Contains(dictMethods, name)
}

// has says whether v has the method. A namespace has none: its attributes are the template's.
func (r *run) has(v jinja.Value, method string) bool {
	switch {
	case v.IsString():
		return slices.Contains(stringMethods, method)
	case v.IsList():
		return slices.Contains(listMethods, method)
	case v.IsDict():
		return slices.Contains(dictMethods, method) && !r.spaces[v.AsDict()]
	}
	return false
}

// attribute is a.name where name is a method of something: the method where a has it, else the key.
func (r *run) attribute(a args, _ keywords) (jinja.Value, error) {
	v, name := a[0], a[1].AsString()
	if r.has(v, name) {
		return call(func(x args, kw keywords) (jinja.Value, error) { return r.invoke(v, name, x, kw) }), r.alloc(pairSize)
	}
	if v.IsDict() {
		item, _ := v.AsDict().Get(name)
		return item, r.step(0)
	}
	return undefined, r.step(0)
}

// method is a.name(...).
func (r *run) method(a args, kw keywords) (jinja.Value, error) {
	v, name := a[0], a[1].AsString()
	if r.has(v, name) {
		return r.invoke(v, name, a[2:], kw)
	}
	if v.IsDict() {
		if f, ok := v.AsDict().Get(name); ok && f.IsCallable() {
			return f.AsCallable().Fn(a[2:], kw)
		}
	}
	return fail("%s has no method %q", typeName(v), name)
}

func (r *run) invoke(v jinja.Value, name string, a args, kw keywords) (jinja.Value, error) {
	for _, x := range a {
		if err := r.step(shallow(x)); err != nil {
			return undefined, err
		}
	}
	switch {
	case v.IsString():
		return r.stringMethod(v.AsString(), name, a, kw)
	case v.IsList():
		return r.listMethod(v.AsList(), name, a)
	}
	return r.dictMethod(v.AsDict(), name, a, kw)
}

// texts checks that the first n arguments are strings, absent ones being "".
func texts(a args, n int) ([]string, error) {
	out := make([]string, n)
	for i := range min(n, len(a)) {
		if !a[i].IsString() {
			return nil, &EvalError{Reason: "a string method needs a string, not " + typeName(a[i])}
		}
		out[i] = a[i].AsString()
	}
	return out, nil
}

func (r *run) stringMethod(s, name string, a args, kw keywords) (jinja.Value, error) {
	if err := r.alloc(3 * len(s)); err != nil {
		return undefined, err
	}
	switch name {
	case "startswith", "endswith":
		return r.affix(s, name, a)
	case "split", "rsplit":
		return r.split(s, name, a, kw)
	case "splitlines":
		s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
		return r.pieces(strings.Split(strings.TrimSuffix(s, "\n"), "\n"), s == "")
	case "join":
		return r.join(a, s, "")
	case "strip", "lstrip", "rstrip":
		return trim(s, name, arg(a, 0, kw, "chars", none)), nil
	case "format":
		return r.format(s, a)
	case "replace":
		t, err := texts(a, 2)
		if err != nil {
			return undefined, err
		}
		return r.replace(s, t[0], t[1], arg(a, 2, kw, "count", jinja.NewInt(-1)))
	}
	if f, ok := plainStringMethods[name]; ok {
		return jinja.NewString(f(s)), nil
	}
	if f, ok := runeMethods[name]; ok {
		return jinja.NewBool(s != "" && !strings.ContainsFunc(s, func(c rune) bool { return !f(c) })), nil
	}
	return r.search(s, name, a)
}

var plainStringMethods = map[string]func(string) string{
	"lower": strings.ToLower, "upper": strings.ToUpper, "capitalize": capitalize,
	"title": func(s string) string { return title(s, unicode.IsLetter) },
}

var runeMethods = map[string]func(rune) bool{
	"isdigit": unicode.IsDigit, "isalpha": unicode.IsLetter, "isspace": unicode.IsSpace,
	"islower": func(c rune) bool { return !unicode.IsUpper(c) },
	"isupper": func(c rune) bool { return !unicode.IsLower(c) },
	"isalnum": func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) },
}

func capitalize(s string) string {
	runes := []rune(strings.ToLower(s))
	if len(runes) > 0 {
		runes[0] = unicode.ToUpper(runes[0])
	}
	return string(runes)
}

// title raises the first letter of each word, a run of characters for which part is true.
func title(s string, part func(rune) bool) string {
	word := false
	return strings.Map(func(c rune) rune {
		was := word
		if word = part(c); was {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
}

// search: the methods that look for one string in another; positions count characters.
func (r *run) search(s, name string, a args) (jinja.Value, error) {
	t, err := texts(a, 1)
	if err != nil {
		return undefined, err
	}
	position := func(i int) jinja.Value { return jinja.NewInt(int64(len([]rune(s[:max(i, 0)])) + min(i, 0))) }
	switch name {
	case "removeprefix":
		return jinja.NewString(strings.TrimPrefix(s, t[0])), nil
	case "removesuffix":
		return jinja.NewString(strings.TrimSuffix(s, t[0])), nil
	case "count":
		return jinja.NewInt(int64(strings.Count(s, t[0]))), nil
	case "find":
		return position(strings.Index(s, t[0])), nil
	case "rfind":
		return position(strings.LastIndex(s, t[0])), nil
	}
	if i := strings.Index(s, t[0]); i >= 0 {
		return position(i), nil
	}
	return fail("substring not found")
}

func (r *run) affix(s, name string, a args) (jinja.Value, error) {
	has := strings.HasPrefix
	if name == "endswith" {
		has = strings.HasSuffix
	}
	if len(a) > 0 && a[0].IsList() {
		a = a[0].AsList().Items
	}
	t, err := texts(a, len(a))
	return jinja.NewBool(slices.ContainsFunc(t, func(x string) bool { return has(s, x) })), err
}

// trim cuts characters off both ends, or one.
func trim(s, name string, chars jinja.Value) jinja.Value {
	in := unicode.IsSpace
	if chars.IsString() {
		set := map[rune]bool{}
		for _, c := range chars.AsString() {
			set[c] = true
		}
		in = func(c rune) bool { return set[c] }
	}
	if name != "rstrip" {
		s = strings.TrimLeftFunc(s, in)
	}
	if name != "lstrip" {
		s = strings.TrimRightFunc(s, in)
	}
	return jinja.NewString(s)
}

// split cuts at a separator, or at runs of whitespace, at most maxsplit times.
func (r *run) split(s, name string, a args, kw keywords) (jinja.Value, error) {
	sep := arg(a, 0, kw, "sep", none)
	limit := int(toInt(arg(a, 1, kw, "maxsplit", jinja.NewInt(-1))))
	if !sep.IsString() {
		if limit < 0 {
			return r.pieces(strings.Fields(s), false)
		}
		return fail("split at whitespace takes no maxsplit here")
	}
	if sep.AsString() == "" {
		return fail("empty separator")
	}
	if limit < 0 {
		return r.pieces(strings.Split(s, sep.AsString()), false)
	}
	if name == "split" {
		return r.pieces(strings.SplitN(s, sep.AsString(), limit+1), false)
	}
	var out []string
	for ; limit > 0; limit-- {
		i := strings.LastIndex(s, sep.AsString())
		if i < 0 {
			break
		}
		out = append(out, s[i+len(sep.AsString()):])
		s = s[:i]
	}
	slices.Reverse(out)
	return r.pieces(append([]string{s}, out...), false)
}

// pieces makes a list of parts of a string that is counted already.
func (r *run) pieces(parts []string, empty bool) (jinja.Value, error) {
	if empty {
		parts = nil
	}
	return strings_(parts), r.alloc(2 * valueSize * len(parts))
}

// replace checks the size of the result before making it.
func (r *run) replace(s, from, to string, count jinja.Value) (jinja.Value, error) {
	n := strings.Count(s, from)
	if c := toInt(count); c >= 0 {
		n = int(min(int64(n), c))
	}
	if err := r.alloc(len(s) + n*max(len(to)-len(from), 0)); err != nil {
		return undefined, err
	}
	return jinja.NewString(strings.Replace(s, from, to, n)), nil
}

// join takes a list of anything printable.
func (r *run) join(a args, sep, attribute string) (jinja.Value, error) {
	if len(a) == 0 || !a[0].IsList() {
		return fail("join needs a list")
	}
	parts, n := make([]string, 0, a[0].AsList().Len()), 0
	for _, v := range a[0].AsList().Items {
		s, err := r.str(attributeOf(v, attribute))
		if err != nil {
			return undefined, err
		}
		parts = append(parts, s)
		n += len(s) + len(sep)
	}
	err := r.alloc(n)
	if err != nil {
		return undefined, err
	}
	return jinja.NewString(strings.Join(parts, sep)), nil
}

// attributeOf is v's member at a path of keys with dots between, v itself for "".
func attributeOf(v jinja.Value, path string) jinja.Value {
	if path == "" {
		return v
	}
	for key := range strings.SplitSeq(path, ".") {
		if !v.IsDict() {
			return undefined
		}
		v, _ = v.AsDict().Get(key)
	}
	return v
}

// format fills in {} and {0}; format specifications are not supported.
func (r *run) format(s string, a args) (jinja.Value, error) {
	var b strings.Builder
	next := 0
	for {
		before, rest, ok := strings.Cut(s, "{")
		b.WriteString(strings.ReplaceAll(before, "}}", "}"))
		if !ok {
			return jinja.NewString(b.String()), nil
		}
		if strings.HasPrefix(rest, "{") {
			b.WriteByte('{')
			s = rest[1:]
			continue
		}
		field, rest, _ := strings.Cut(rest, "}")
		i := next
		if field != "" {
			if _, err := fmt.Sscanf(field, "%d", &i); err != nil || itoa(i) != field {
				return fail("format field {%s} is not supported", field)
			}
		}
		next++
		if i < 0 || i >= len(a) {
			return fail("format has no argument %d", i)
		}
		text, err := r.str(a[i])
		if err == nil {
			err = r.alloc(len(text))
		}
		if err != nil {
			return undefined, err
		}
		b.WriteString(text)
		s = rest
	}
}
