package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// field is a value of the configuration that environment and flags can set.
type field struct {
	path  string
	value reflect.Value
}

// settable lists the values below v that one text can say: scalars, and lists of scalars.
func settable(path string, v reflect.Value) []field {
	t := v.Type()
	switch {
	case isScalar(t):
		return []field{{path, v}}
	case t.Kind() == reflect.Slice && isScalar(t.Elem()):
		return []field{{path, v}}
	case t.Kind() != reflect.Struct:
		return nil
	}
	var all []field
	for i, name := range fields(t) {
		all = append(all, settable(join(path, name), v.Field(i))...)
	}
	return all
}

// assign parses a text into a value or a list that commas separate.
func assign(text string, v reflect.Value) error {
	if v.Kind() != reflect.Slice {
		return parseScalar(text, v)
	}
	parts := strings.Split(text, ",")
	if text == "" {
		parts = nil
	}
	out := reflect.MakeSlice(v.Type(), len(parts), len(parts))
	for i, part := range parts {
		if err := parseScalar(strings.TrimSpace(part), out.Index(i)); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

// Settings is the origin of values that were set through the control plane.
const Settings = "settings"

// changeable are the paths that the control plane may set: nothing that names a program, a folder or an address that the
// box listens on or sends to.
var changeable = []string{
	"name", "tls.mode", "discovery", "memory.reserve", "memory.limit", "web.origins", "requests.body", "requests.limit",
	"requests.load", "requests.keep_alive", "queue.max_wait", "queue.length", "queue.per_key", "queue.guests", "log.level", "log.requests", "log.keep", "backup.every", "backup.keep",
}

// Changeable reports whether the control plane may set a path.
func Changeable(path string) bool { return slices.Contains(changeable, path) }

// stored applies settings of the control plane. One that a newer or older version knew and this one does not is left
// alone; one that has become wrong is a mistake like any other.
func (r *reader) stored(values map[string]string, box *Box) {
	for _, f := range settable("", reflect.ValueOf(box).Elem()) {
		if text, ok := values[f.path]; ok && Changeable(f.path) {
			r.apply(Settings, text, f)
		}
	}
}

// IsSecret reports whether the value at a path is one that is shown to nobody.
func IsSecret(path string) bool {
	if rest, ok := strings.CutPrefix(path, "tls.acme.dns_options."); ok {
		return rest != ""
	}
	if strings.HasPrefix(path, "models[") && strings.HasSuffix(path, "].remote.key") {
		return true
	}
	var box Box
	for _, f := range settable("", reflect.ValueOf(&box).Elem()) {
		if f.path == path {
			return f.value.Type() == secretType
		}
	}
	return false
}

// Value is one value of a configuration.
type Value struct {
	Path, Text, Origin, About string
}

// Values lists the values that one text can say, secrets hidden.
func Values(box Box, from Origins) []Value {
	var all []Value
	about := map[string]string{}
	describe("", reflect.TypeFor[Box](), about)
	for _, f := range settable("", reflect.ValueOf(&box).Elem()) {
		v := Value{Path: f.path, Origin: from[f.path], About: about[f.path]}
		if v.Origin == "" {
			v.Origin = "default"
		}
		if f.value.Kind() != reflect.Slice {
			v.Text = plain(f.value)
		} else {
			parts := make([]string, f.value.Len())
			for i := range parts {
				parts[i] = plain(f.value.Index(i))
			}
			v.Text = strings.Join(parts, ",")
		}
		all = append(all, v)
	}
	return all
}

func plain(v reflect.Value) string {
	if s, ok := v.Interface().(string); ok {
		return s
	}
	return fmt.Sprint(v.Interface()) // a secret hides itself
}

// describe collects what the fields are about, by path.
func describe(path string, t reflect.Type, about map[string]string) {
	for i, name := range fields(t) {
		f := t.Field(i)
		about[join(path, name)] = f.Tag.Get("about")
		if f.Type.Kind() == reflect.Struct && !isScalar(f.Type) {
			describe(join(path, name), f.Type, about)
		}
	}
}

// variable is a path's name in the environment.
func variable(path string) string {
	return "ONEBIT_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// notOurs are variables with our prefix that mean something else.
var notOurs = []string{"ONEBIT_LOG", "ONEBIT_CPU", "ONEBIT_SOCKET", "ONEBIT_NPU", "ONEBIT_ZINC", "ONEBIT_DS4", "ONEBIT_LLAMA_SERVER", "ONEBIT_LEAN_SERVER", "ONEBIT_ONNX_SERVER"}

// environment applies the variables that name a path. A variable that names none is left alone unless it is near to
// one: other programs may use the prefix.
func (r *reader) environment(env []string, box *Box) {
	all := settable("", reflect.ValueOf(box).Elem())
	names := make([]string, len(all))
	for i, f := range all {
		names[i] = variable(f.path)
	}
	for _, pair := range env {
		name, text, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "ONEBIT_") || slices.Contains(notOurs, name) {
			continue
		}
		i := slices.Index(names, name)
		if i < 0 {
			if near := nearest(name, names); near != "" && distance(name, near) <= 2 {
				if path := all[slices.Index(names, near)].path; r.origins[path] == "" {
					r.failed = append(r.failed, path)
				}
				r.bad(name, "no setting has this name%s", Meant(name, names))
			}
			continue
		}
		r.apply(name, text, all[i])
	}
}

// flags applies PATH=VALUE.
func (r *reader) flags(set []string, box *Box) {
	all := settable("", reflect.ValueOf(box).Elem())
	paths := make([]string, len(all))
	for i, f := range all {
		paths[i] = f.path
	}
	for _, pair := range set {
		path, text, ok := strings.Cut(pair, "=")
		where := "--set " + path
		i := slices.Index(paths, path)
		switch {
		case !ok:
			r.bad(where, "%v", errNoValue)
		case i < 0:
			if name := nearest(path, paths); name != "" && r.origins[name] == "" {
				r.failed = append(r.failed, name)
			}
			r.bad(where, "no setting has this path%s", Meant(path, paths))
		default:
			r.apply(where, text, all[i])
		}
	}
}

func (r *reader) apply(where, text string, f field) {
	if err := assign(text, f.value); err != nil {
		r.fail(f.path, where, "%v", err)
		return
	}
	r.origins[f.path] = where
}

// String writes the size with the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []string{"TiB", "GiB", "MiB", "KiB"} {
		for _, unit := range units {
			if unit.suffix == u && s != 0 && int64(s)%unit.bytes == 0 {
				return fmt.Sprintf("%d%s", int64(s)/unit.bytes, u)
			}
		}
	}
	return fmt.Sprint(int64(s))
}
