package config

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// readTOML reads a file in TOML.
func readTOML(content []byte) (*node, *treeError) {
	if bytes.HasPrefix(content, []byte{0xff, 0xfe}) || bytes.HasPrefix(content, []byte{0xfe, 0xff}) {
		return nil, &treeError{0, "it is in UTF-16: save it as UTF-8"}
	}
	content = bytes.TrimPrefix(content, []byte("\ufeff")) // some editors write a mark
	t := tomlReader{root: &node{form: table, line: 1}}
	for at, c := range content {
		if c == '\n' {
			t.ends = append(t.ends, at)
		}
	}
	t.into = t.root
	t.parser.Reset(content)
	for t.parser.NextExpression() {
		if err := t.expression(t.parser.Expression()); err != nil {
			return nil, err
		}
	}
	if err := t.parser.Error(); err != nil {
		where := 0
		if e, ok := errors.AsType[*unstable.ParserError](err); ok && e.Highlight != nil {
			where = t.line(t.parser.Range(e.Highlight))
		}
		return nil, &treeError{where, err.Error()}
	}
	if t.twice { // our own words about it are better
		return t.root, nil
	}
	// what the language forbids beside the grammar, such as adding to a table that was closed
	var all map[string]any
	if err := toml.NewDecoder(bytes.NewReader(content)).Decode(&all); err != nil {
		where := 0
		if e, ok := errors.AsType[*toml.DecodeError](err); ok {
			where, _ = e.Position()
		}
		return nil, &treeError{where, strings.TrimPrefix(err.Error(), "toml: ")}
	}
	return t.root, nil
}

// tomlReader makes a tree of the expressions of a file.
type tomlReader struct {
	parser  unstable.Parser
	ends    []int // where lines end
	root    *node
	into    *node // the table of the last header
	headers []*node
	twice   bool // a name is there twice
}

// line is where a range begins.
func (t *tomlReader) line(r unstable.Range) int {
	n, _ := slices.BinarySearch(t.ends, int(r.Offset))
	return n + 1
}

// expression takes in NAME = VALUE, [TABLE] or [[LIST]].
func (t *tomlReader) expression(e *unstable.Node) *treeError {
	if e.Kind == unstable.KeyValue {
		return t.put(t.into, e)
	}
	names, line := t.names(e.Key())
	last := names[len(names)-1]
	in, err := t.walk(t.root, names[:len(names)-1], line)
	if err != nil {
		return err
	}
	there := in.find(last)
	t.into = &node{form: table, line: line}
	switch {
	case e.Kind == unstable.ArrayTable && there == nil:
		in.add(last, line, &node{form: list, line: line, items: []*node{t.into}})
	case e.Kind == unstable.ArrayTable && there.form == list:
		there.items = append(there.items, t.into)
	case e.Kind == unstable.Table && there != nil && there.form == table && !slices.Contains(t.headers, there):
		t.into = there // it was made for what is below it
	default:
		t.twice = t.twice || there != nil
		in.add(last, line, t.into)
	}
	t.headers = append(t.headers, t.into)
	return nil
}

// names are the parts of a dotted name.
func (t *tomlReader) names(keys unstable.Iterator) (names []string, line int) {
	for keys.Next() {
		k := keys.Node()
		if line == 0 {
			line = t.line(k.Raw)
		}
		names = append(names, string(k.Data))
	}
	return names, line
}

// walk goes down to the table of a dotted name. Of a list of tables the last is meant.
func (t *tomlReader) walk(in *node, names []string, line int) (*node, *treeError) {
	for _, name := range names {
		next := in.find(name)
		if next != nil && next.form == list && len(next.items) > 0 {
			next = next.items[len(next.items)-1]
		}
		switch {
		case next == nil:
			next = &node{form: table, line: line}
			in.add(name, line, next)
		case next.form != table:
			return nil, &treeError{line, name + " is no table"}
		}
		in = next
	}
	return in, nil
}

// put takes in NAME = VALUE.
func (t *tomlReader) put(in *node, e *unstable.Node) *treeError {
	names, line := t.names(e.Key())
	in, err := t.walk(in, names[:len(names)-1], line)
	if err != nil {
		return err
	}
	value, err := t.value(e.Value(), line)
	if err != nil {
		return err
	}
	last := names[len(names)-1]
	t.twice = t.twice || in.find(last) != nil
	in.add(last, line, value)
	return nil
}

// value reads a value that begins at a line, unless it says itself where it does.
func (t *tomlReader) value(v *unstable.Node, line int) (*node, *treeError) {
	if v.Raw.Length > 0 {
		line = t.line(v.Raw)
	}
	n := &node{line: line}
	switch v.Kind {
	case unstable.String, unstable.Bool:
		n.text = string(v.Data)
	case unstable.Integer:
		i, err := strconv.ParseInt(strings.ReplaceAll(string(v.Data), "_", ""), 0, 64)
		if err != nil {
			return nil, &treeError{line, strconv.Quote(string(v.Data)) + " is too large a number"}
		}
		n.text = strconv.FormatInt(i, 10)
	case unstable.Float:
		n.text = strings.TrimPrefix(strings.ReplaceAll(string(v.Data), "_", ""), "+")
	case unstable.Array:
		n.form = list
		for items := v.Children(); items.Next(); {
			item, err := t.value(items.Node(), line)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case unstable.InlineTable:
		n.form = table
		for pairs := v.Children(); pairs.Next(); {
			if err := t.put(n, pairs.Node()); err != nil {
				return nil, err
			}
		}
	default:
		n.form, n.text = foreign, "dates and times are not used here; write it as a text, in quotes"
	}
	return n, nil
}
