package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxFile is the longest configuration file that is taken, in bytes.
const MaxFile = 1 << 20

// Problem is one mistake in a configuration.
type Problem struct {
	Where string // FILE:LINE, an environment variable, or a flag
	Text  string
}

// String puts both on a line.
func (p Problem) String() string { return p.Where + ": " + p.Text }

// ProblemsError are all mistakes of a configuration, as one error.
type ProblemsError []Problem

// Error lists them, one a line.
func (p ProblemsError) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// Source is what a configuration is made of. Each part overrides those before it.
type Source struct {
	Stored map[string]string // settings made through the control plane, by path; only those that it may change count

	File string   // its name, for messages; one that ends in .toml is in TOML, every other in YAML
	Text []byte   // its content
	Env  []string // NAME=VALUE
	Set  []string // PATH=VALUE, from flags
}

// Origins say where each value came from, by path: a line of the file, a variable, a flag. Defaults are not in it.
type Origins map[string]string

// ReadBox makes a configuration. The error is ProblemsError: all that is wrong, not only the first.
func ReadBox(src Source) (Box, Origins, error) {
	r := reader{file: src.File, origins: Origins{}}
	box := BoxDefaults()
	r.stored(src.Stored, &box)
	r.content(src.Text, &box)
	r.environment(src.Env, &box)
	r.flags(src.Set, &box)
	r.check(box)
	if len(r.problems) > 0 {
		return Box{}, nil, r.problems
	}
	return box, r.origins, nil
}

// reader collects values, where they came from, and mistakes.
type reader struct {
	file     string
	where    string // of what is being read
	origins  Origins
	problems ProblemsError
	failed   []string // paths of values that could not be read
}

func (r *reader) bad(where, format string, args ...any) {
	if where == unread {
		return
	}
	r.problems = append(r.problems, Problem{where, fmt.Sprintf(format, args...)})
}

func (r *reader) line(n int) string { return r.file + ":" + strconv.Itoa(n) }

// content reads the file. An empty one is a configuration too.
func (r *reader) content(text []byte, box *Box) {
	if len(text) > MaxFile {
		r.bad(r.file, "the file is larger than %d bytes", MaxFile)
		return
	}
	read := readYAML
	if IsTOML(r.file) {
		read = readTOML
	}
	n, err := read(text)
	switch {
	case err != nil && err.line > 0:
		r.bad(r.line(err.line), "%s", err.text)
	case err != nil:
		r.bad(r.file, "%s", err.text)
	case n != nil:
		r.node(n, "", reflect.ValueOf(box).Elem())
	}
}

// IsTOML reports whether a file is read as TOML, by its name.
func IsTOML(file string) bool { return strings.EqualFold(filepath.Ext(file), ".toml") }

// fail notes a mistake because of which a path has no value.
func (r *reader) fail(path, where, format string, args ...any) {
	r.failed = append(r.failed, path)
	r.bad(where, format, args...)
}

// node puts a node of the file into v, whose path is given.
func (r *reader) node(n *node, path string, v reflect.Value) {
	r.where = r.line(n.line)
	switch {
	case n.form == foreign:
		r.fail(path, r.where, "%s: %s", shown(path), n.text)
	case n.form == nothing:
		r.fail(path, r.where, "%s has no value; give one, or take the line out", shown(path))
	case isScalar(v.Type()):
		if n.form != scalar {
			r.fail(path, r.where, "%s is one value, not a list or a map", shown(path))
			return
		}
		r.scalar(n.text, path, v)
	case v.Kind() == reflect.Slice:
		r.list(n, path, v)
	case v.Kind() == reflect.Map:
		r.table(n, path, v)
	default:
		r.object(n, path, v)
	}
}

// object reads a map whose keys are the fields of a struct.
func (r *reader) object(n *node, path string, v reflect.Value) {
	if n.form != table {
		r.fail(path, r.line(n.line), "%s is a map of %s", shown(path), strings.Join(fields(v.Type()), ", "))
		return
	}
	seen := map[string]bool{}
	for _, p := range n.pairs {
		index := slices.Index(fields(v.Type()), p.name)
		switch {
		case index < 0:
			names := fields(v.Type())
			if name := nearest(p.name, names); name != "" && n.find(name) == nil {
				r.failed = append(r.failed, join(path, name)) // that is there, and not what is missing
			}
			r.bad(r.line(p.line), "there is no %s%s", join(path, p.name), Meant(p.name, names))
		case seen[p.name]:
			r.bad(r.line(p.line), "%s is given twice", join(path, p.name))
		default:
			seen[p.name] = true
			r.node(p.value, join(path, p.name), v.Field(index))
		}
	}
}

// list reads a list; a single text stands for a list of one.
func (r *reader) list(n *node, path string, v reflect.Value) {
	items := n.items
	switch {
	case n.form == scalar && isScalar(v.Type().Elem()):
		items = []*node{n}
	case n.form != list:
		r.fail(path, r.line(n.line), "%s is a list", shown(path))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		if m, ok := out.Index(i).Addr().Interface().(*BoxModel); ok {
			*m = BoxModel{Role: "chat", Device: "auto"}
		}
		r.node(item, fmt.Sprintf("%s[%d]", path, i), out.Index(i))
	}
	v.Set(out)
	r.origins[path] = r.line(n.line)
}

// table reads a map from any text to a secret.
func (r *reader) table(n *node, path string, v reflect.Value) {
	if n.form != table {
		r.fail(path, r.line(n.line), "%s is a map", shown(path))
		return
	}
	out := reflect.MakeMap(v.Type())
	seen := map[string]bool{}
	for _, p := range n.pairs {
		if seen[p.name] {
			r.bad(r.line(p.line), "%s is given twice", join(path, p.name))
			continue
		}
		seen[p.name] = true
		value := reflect.New(v.Type().Elem()).Elem()
		r.node(p.value, join(path, p.name), value)
		out.SetMapIndex(reflect.ValueOf(p.name), value)
	}
	v.Set(out)
}

// scalar parses a text into v.
func (r *reader) scalar(s, path string, v reflect.Value) {
	if err := parseScalar(s, v); err != nil {
		r.fail(path, r.where, "%s: %v", path, err)
		return
	}
	r.origins[path] = r.where
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	prefixType   = reflect.TypeFor[netip.Prefix]()
	secretType   = reflect.TypeFor[Secret]()
)

// isScalar reports whether a value of type t is written as one text.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64:
		return true
	}
	return t == prefixType
}

func parseScalar(s string, v reflect.Value) error {
	switch v.Type() {
	case durationType:
		d, err := parseDuration(s)
		v.SetInt(int64(d))
		return err
	case sizeType:
		n, err := parseSize(s)
		v.SetInt(int64(n))
		return err
	case prefixType:
		p, err := parsePrefix(s)
		v.Set(reflect.ValueOf(p))
		return err
	}
	switch v.Kind() {
	case reflect.String:
		if v.Type() == secretType && s == hidden {
			return fmt.Errorf("%s is what is shown in place of a secret; write the secret itself", hidden)
		}
		v.SetString(s)
	case reflect.Bool:
		switch s {
		case "true", "yes", "on":
			v.SetBool(true)
		case "false", "no", "off":
			v.SetBool(false)
		default:
			return fmt.Errorf("%q is neither true nor false", s)
		}
	default:
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", s)
		}
		v.SetInt(int64(n))
	}
	return nil
}

// parseDuration takes Go's durations and whole days, such as 7d.
func parseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= 36500 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	if s == "0" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a length of time such as 90s, 15m, 24h or 7d", s)
	}
	return d, nil
}

// units of sizes; the longest suffix comes first.
var units = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"", 1}}

func parseSize(s string) (Size, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || !(f >= 0 && f*float64(u.bytes) < 1<<62) {
			break
		}
		return Size(f * float64(u.bytes)), nil
	}
	return 0, fmt.Errorf("%q is not a size such as 512MiB or 4GiB", s)
}

// parsePrefix takes a prefix or one address.
func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not an address or a prefix such as 192.168.1.0/24", s)
	}
	return p.Masked(), nil
}

// fields returns the names of a struct's fields, as the file has them.
func fields(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("yaml")
	}
	return names
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func shown(path string) string {
	if path == "" {
		return "the configuration"
	}
	return path
}

// Meant ends the message about a word that is none of some names: it proposes the nearest, when one is near enough, and else
// lists them.
func Meant(word string, names []string) string {
	if name := nearest(word, names); name != "" {
		return "; did you mean " + name + "?"
	}
	return "; there are " + strings.Join(names, ", ")
}

// nearest is the name that a word is likely to stand for; empty for none.
func nearest(word string, names []string) string {
	best, least := "", 1+max(1, len(word)/3)
	for _, name := range names {
		if d := distance(word, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with their neighbour.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			d := min(last[j+1], row[j]) + 1
			if a[i] == b[j] {
				d = min(d, last[j])
			} else {
				d = min(d, last[j]+1)
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			row[j+1] = d
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

var errNoValue = errors.New("it is not of the form PATH=VALUE")
