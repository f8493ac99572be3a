package grammar

import (
	"net/url"
	"strconv"
	"strings"
)

// What a keyword does. Those that are not listed mean nothing to JSON Schema either.
const (
	constraint = 1 + iota // and is held to
	unknown               // constrains, and is not held to
)

var keywords = map[string]int{
	"type": constraint, "enum": constraint, "const": constraint, "$ref": constraint, "allOf": constraint, "anyOf": constraint, "oneOf": constraint,
	"properties": constraint, "required": constraint, "additionalProperties": constraint,
	"items": constraint, "prefixItems": constraint, "additionalItems": constraint, "minItems": constraint, "maxItems": constraint, "uniqueItems": constraint,
	"minLength": constraint, "maxLength": constraint, "pattern": constraint, "format": constraint,
	"minimum": constraint, "maximum": constraint, "exclusiveMinimum": constraint, "exclusiveMaximum": constraint, "multipleOf": constraint,

	"not": unknown, "if": unknown, "then": unknown, "else": unknown, "dependentRequired": unknown, "dependentSchemas": unknown, "dependencies": unknown,
	"patternProperties": unknown, "propertyNames": unknown, "minProperties": unknown, "maxProperties": unknown, "unevaluatedProperties": unknown,
	"contains": unknown, "minContains": unknown, "maxContains": unknown, "unevaluatedItems": unknown,
	"$dynamicRef": unknown, "$recursiveRef": unknown, "contentSchema": unknown,

	// of drafts 3 and before, and of validators that go beyond the drafts
	"disallow": unknown, "divisibleBy": unknown, "extends": unknown,
	"formatMinimum": unknown, "formatMaximum": unknown, "formatExclusiveMinimum": unknown, "formatExclusiveMaximum": unknown,
}

var typeOfKeyword = map[string]string{
	"properties": "object", "required": "object", "additionalProperties": "object",
	"items": "array", "prefixItems": "array", "additionalItems": "array", "minItems": "array", "maxItems": "array", "uniqueItems": "array",
	"minLength": "string", "maxLength": "string", "pattern": "string", "format": "string",
	"minimum": "number", "maximum": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number", "multipleOf": "number",
}

// kinds are what the values of keywords are.
var kinds = map[string]string{
	"type": `"[`, "enum": "[", "$ref": `"`, "allOf": "[", "anyOf": "[", "oneOf": "[",
	"properties": "{", "required": "[", "additionalProperties": "{tf",
	"items": "{[tf", "prefixItems": "[", "additionalItems": "{tf", "minItems": "0", "maxItems": "0", "uniqueItems": "tf",
	"minLength": "0", "maxLength": "0", "pattern": `"`, "format": `"`,
	"minimum": "0", "maximum": "0", "exclusiveMinimum": "0", "exclusiveMaximum": "0", "multipleOf": "0",
}

// kindNames are their words in messages.
var kindNames = map[byte]string{'{': "an object", '[': "an array", '"': "a string", '0': "a number", 't': "true or false"}

// check refuses keywords that are not known or not what they must be.
func (r *reading) check(v *value, path *place) error {
	if err := r.spend(16*len(v.members), path); err != nil {
		return err
	}
	// what a reference below an $id means is not what it means at the top
	if id := v.get("$id"); id != nil && id != r.root.get("$id") && id.kind == '"' && !strings.HasPrefix(id.text, "#") && v.refers {
		return refuse(below(path, "$id"), "references within a part that has an $id of its own are not supported")
	}
	for _, m := range v.members {
		at := below(path, m.name)
		if keywords[m.name] == unknown {
			return refuse(at, "this keyword is not supported")
		}
		if err := checkValue(m, at); err != nil {
			return err
		}
	}
	return nil
}

func checkValue(m member, at *place) error {
	want := kinds[m.name]
	ok := want == ""
	for i := range len(want) {
		ok = ok || want[i] == m.v.kind
	}
	if !ok {
		return refuse(at, "it must be %s", kindNames[want[0]])
	}
	switch m.name {
	case "type", "required":
		if m.name == "type" && len(m.v.items) > 7 {
			return refuse(at, "there are only seven types")
		}
		for _, x := range m.v.items {
			if x.kind != '"' {
				return refuse(at, "it must hold strings")
			}
		}
	case "uniqueItems":
		if m.v.kind == 't' {
			return refuse(at, "this keyword is not supported")
		}
	case "multipleOf":
		if m.v.text != "1" {
			return refuse(at, "this keyword is not supported")
		}
	case "minItems", "maxItems", "minLength", "maxLength":
		if n, err := strconv.ParseFloat(m.v.text, 64); err != nil || n < 0 || n != float64(int64(n)) {
			return refuse(at, "it must be a whole number of at least 0")
		}
	}
	return nil
}

// constrains says whether a schema has a keyword that is held to.
func constrains(v *value) bool {
	for _, m := range v.members {
		if keywords[m.name] != 0 {
			return true
		}
	}
	return false
}

// count is the value of a keyword that is a whole number.
func count(v *value, name string, absent int) int {
	x := v.get(name)
	if x == nil {
		return absent
	}
	n, _ := strconv.ParseFloat(x.text, 64)
	return int(min(n, 1<<30))
}

func unescape(step string) string {
	if s, err := url.PathUnescape(step); err == nil {
		return s
	}
	return step
}
