package config

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readYAML reads a file in YAML. An empty one is nil.
func readYAML(content []byte) (*node, *treeError) {
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(content))
	err := d.Decode(&doc)
	if err == nil {
		switch err = d.Decode(&more); {
		case err == nil:
			return nil, &treeError{more.Line, "a second document begins; a configuration is one"}
		case errors.Is(err, io.EOF):
			err = nil
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if rest, ok := strings.CutPrefix(text, "line "); ok {
			if number, why, ok := strings.Cut(rest, ": "); ok {
				if line, err := strconv.Atoi(number); err == nil {
					return nil, &treeError{line, why}
				}
			}
		}
		return nil, &treeError{0, text}
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return nil, nil
	}
	return fromYAML(doc.Content[0]), nil
}

func fromYAML(y *yaml.Node) *node {
	n := &node{line: y.Line}
	switch {
	case y.Kind == yaml.AliasNode || y.Anchor != "":
		n.form, n.text = foreign, "anchors and aliases are not used here; write the value out"
	case y.Kind == yaml.ScalarNode && y.Tag == "!!null":
		n.form = nothing
	case y.Kind == yaml.ScalarNode:
		n.text = y.Value
	case y.Kind == yaml.SequenceNode:
		n.form = list
		for _, item := range y.Content {
			n.items = append(n.items, fromYAML(item))
		}
	default:
		n.form = table
		for i := 0; i+1 < len(y.Content); i += 2 {
			n.add(y.Content[i].Value, y.Content[i].Line, fromYAML(y.Content[i+1]))
		}
	}
	return n
}
