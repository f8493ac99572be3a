package config

// form is what a node of a file is.
type form int

const (
	scalar form = iota
	list
	table
	nothing // a name without a value
	foreign // something that a configuration does not use; text says what
)

// node is a value of a configuration file, whatever language the file is written in.
type node struct {
	form  form
	line  int      // in the file, from 1
	text  string   // of a scalar
	items []*node  // of a list
	pairs []member // of a table, in the order of the file; a name may be there twice
}

// member is a name with its value.
type member struct {
	name  string
	line  int // of the name
	value *node
}

// find returns the last value of a name; nil for none.
func (n *node) find(name string) *node {
	for i := len(n.pairs) - 1; i >= 0; i-- {
		if n.pairs[i].name == name {
			return n.pairs[i].value
		}
	}
	return nil
}

// add adds a value.
func (n *node) add(name string, line int, value *node) {
	n.pairs = append(n.pairs, member{name, line, value})
}

// treeError is why a file could not be read.
type treeError struct {
	line int // 0 when it is not known
	text string
}

func (e *treeError) Error() string { return e.text }
