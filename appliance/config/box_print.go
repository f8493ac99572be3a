package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Print writes a configuration as a file in YAML that would make it, each value with where it came from. Secrets are not
// shown.
func Print(box Box, from Origins) string {
	var b strings.Builder
	printStruct(&b, "", "", reflect.ValueOf(box), from)
	return b.String()
}

func printStruct(b *strings.Builder, indent, path string, v reflect.Value, from Origins) {
	for i, name := range fields(v.Type()) {
		printValue(b, indent, name, join(path, name), v.Field(i), from)
	}
}

func printValue(b *strings.Builder, indent, name, path string, v reflect.Value, from Origins) {
	t := v.Type()
	origin, ok := from[path]
	if !ok {
		origin = "default"
	}
	switch {
	case isScalar(t):
		fmt.Fprintf(b, "%s%s: %s  # %s\n", indent, name, written(v), origin)
	case t.Kind() == reflect.Struct:
		fmt.Fprintf(b, "%s%s:\n", indent, name)
		printStruct(b, indent+"  ", path, v, from)
	case t.Kind() == reflect.Map:
		if v.Len() == 0 {
			fmt.Fprintf(b, "%s%s: {}\n", indent, name)
			return
		}
		fmt.Fprintf(b, "%s%s:\n", indent, name)
		for _, key := range sortedKeys(v) {
			fmt.Fprintf(b, "%s  %q: %s\n", indent, key, written(v.MapIndex(key)))
		}
	case v.Len() == 0:
		fmt.Fprintf(b, "%s%s: []  # %s\n", indent, name, origin)
	default:
		fmt.Fprintf(b, "%s%s:  # %s\n", indent, name, origin)
		for i := range v.Len() {
			if isScalar(t.Elem()) {
				fmt.Fprintf(b, "%s  - %s\n", indent, written(v.Index(i)))
				continue
			}
			var item strings.Builder
			printStruct(&item, indent+"    ", fmt.Sprintf("%s[%d]", path, i), v.Index(i), from)
			b.WriteString(indent + "  - " + strings.TrimPrefix(item.String(), indent+"    "))
		}
	}
}

// written is a scalar as the file has it.
func written(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Secret:
		if x == "" {
			return `""`
		}
		return strconv.Quote(hidden)
	case Size:
		return x.String()
	case string:
		return fmt.Sprintf("%q", x)
	}
	return fmt.Sprint(v.Interface())
}

func sortedKeys(v reflect.Value) []reflect.Value {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// PrintTOML is Print in TOML.
func PrintTOML(box Box, from Origins) string {
	var b strings.Builder
	printTables(&b, "", "", reflect.ValueOf(box), from)
	return b.String()
}

// printTables writes a table: first what has one value, since all that follows a header belongs to it. Name is the
// table's in the file, path the one in from.
func printTables(b *strings.Builder, name, path string, v reflect.Value, from Origins) {
	below := func(f string) string { return join(name, f) }
	for i, f := range fields(v.Type()) {
		value, t := v.Field(i), v.Field(i).Type()
		origin := from[join(path, f)]
		if origin == "" {
			origin = "default"
		}
		switch {
		case isScalar(t):
			fmt.Fprintf(b, "%s = %s  # %s\n", f, writtenTOML(value), origin)
		case t.Kind() == reflect.Slice && isScalar(t.Elem()):
			items := make([]string, value.Len())
			for j := range items {
				items[j] = writtenTOML(value.Index(j))
			}
			fmt.Fprintf(b, "%s = [%s]  # %s\n", f, strings.Join(items, ", "), origin)
		}
	}
	for i, f := range fields(v.Type()) {
		value, t := v.Field(i), v.Field(i).Type()
		switch {
		case isScalar(t):
		case t.Kind() == reflect.Struct:
			fmt.Fprintf(b, "\n[%s]\n", below(f))
			printTables(b, below(f), join(path, f), value, from)
		case t.Kind() == reflect.Map:
			fmt.Fprintf(b, "\n[%s]\n", below(f))
			for _, key := range sortedKeys(value) {
				fmt.Fprintf(b, "%s = %s\n", quotedTOML(key.String()), writtenTOML(value.MapIndex(key)))
			}
		case !isScalar(t.Elem()):
			for j := range value.Len() {
				fmt.Fprintf(b, "\n[[%s]]\n", below(f))
				printTables(b, below(f), fmt.Sprintf("%s[%d]", join(path, f), j), value.Index(j), from)
			}
		}
	}
}

// writtenTOML is a scalar as a file in TOML has it.
func writtenTOML(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case bool, int:
		return fmt.Sprint(x)
	case string:
		return quotedTOML(x)
	}
	return quotedTOML(fmt.Sprint(v.Interface())) // a secret hides itself
}

// quotedTOML puts a text in quotes.
func quotedTOML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, "\\u%04X", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
