package recipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"onebit/engine"
)

// maxFile is the largest recipe file that is read, in bytes.
const maxFile = 1 << 20

// Parse reads a recipe file: an object with the one key recipes, a list of objects with the keys id, match, args, env,
// warn, why, measured and source. It is strict: unknown keys, keys given twice, wrong types, two recipes of one id, a
// recipe without a measurement, and one that does nothing are errors that name the recipe and the problem.
func Parse(b []byte) (*Set, error) {
	if len(b) > maxFile {
		return nil, fmt.Errorf("the recipes take %d bytes, over the limit of %d", len(b), maxFile)
	}
	if !utf8.Valid(b) {
		return nil, errors.New("the recipes are not valid UTF-8")
	}
	top, err := object(b)
	if err != nil {
		return nil, fmt.Errorf("the recipes: %w", err)
	}
	s := &Set{}
	found := false
	for _, m := range top {
		if m.key != "recipes" {
			return nil, fmt.Errorf("the recipes: unknown key %q", m.key)
		}
		found = true
		list, err := array(m.value)
		if err != nil {
			return nil, fmt.Errorf("the recipes: recipes: %w", err)
		}
		if s.recipes, err = parseList(list); err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, errors.New("the recipes: the key recipes is missing")
	}
	return s, nil
}

// parseList reads the recipes of a file. A recipe is named by its id in errors, or by its place when it has none.
func parseList(list []json.RawMessage) ([]Recipe, error) {
	var all []Recipe
	seen := map[string]bool{}
	for i, raw := range list {
		name := fmt.Sprintf("recipe %d", i+1)
		members, err := object(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, m := range members {
			if id, err := text(m.value); m.key == "id" && err == nil && id != "" {
				name = fmt.Sprintf("recipe %q", id)
			}
		}
		r, err := parseRecipe(members)
		if err == nil && seen[r.ID] {
			err = errors.New("there are two of this id")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		seen[r.ID] = true
		all = append(all, r)
	}
	return all, nil
}

// parseRecipe reads one recipe and checks it.
func parseRecipe(members []member) (Recipe, error) {
	var r Recipe
	for _, m := range members {
		var err error
		switch m.key {
		case "id":
			r.ID, err = text(m.value)
		case "match":
			r.Match, err = parseMatch(m.value)
		case "args":
			r.Args, err = texts(m.value)
		case "env":
			r.Env, err = parseEnv(m.value)
		case "warn":
			r.Warn, err = text(m.value)
		case "why":
			r.Why, err = text(m.value)
		case "measured":
			r.Measured, err = text(m.value)
		case "source":
			r.Source, err = text(m.value)
		default:
			return r, fmt.Errorf("unknown key %q", m.key)
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", m.key, err)
		}
	}
	return r, r.check()
}

// check finds what is wrong with a recipe as a whole.
func (r Recipe) check() error {
	switch {
	case r.ID == "":
		return errors.New("the id is missing or empty")
	case strings.ContainsFunc(r.ID, unprintable):
		return errors.New("the id holds a character that cannot be printed")
	case strings.TrimSpace(r.Measured) == "":
		return errors.New("measured is missing or empty; a recipe carries the measurement behind it")
	case len(r.Args) == 0 && len(r.Env) == 0 && r.Warn == "":
		return errors.New("it adds nothing: args, env and warn are all missing or empty")
	case len(r.Args) > 0 && !isFlag(r.Args[0]):
		return fmt.Errorf("args begins with %q, which is no flag", r.Args[0])
	}
	flags := map[string]string{}
	for _, g := range groups(r.Args) {
		if twin, ok := flags[canonical(g[0])]; ok {
			return fmt.Errorf("args sets one thing twice: %s and %s", twin, g[0])
		}
		flags[canonical(g[0])] = g[0]
	}
	for _, arg := range r.Args {
		if strings.ContainsRune(arg, 0) {
			return errors.New("args holds a zero character")
		}
	}
	return nil
}

// unprintable reports whether a character would disturb a log line.
func unprintable(r rune) bool { return !strconv.IsPrint(r) }

// parseMatch reads what a recipe is for.
func parseMatch(raw json.RawMessage) (Match, error) {
	var out Match
	members, err := object(raw)
	if err != nil {
		return out, err
	}
	for _, m := range members {
		var err error
		switch m.key {
		case "device":
			out.Devices, err = words(m.value, engine.Vulkan, engine.HRX, engine.ROCm, engine.CPU, engine.Zinc,
				engine.DS4, engine.MLX, engine.NPU, engine.ONNX)
		case "architecture":
			out.Architectures, err = words[string](m.value)
		case "drafter":
			out.Drafters, err = words(m.value, NoDrafter, MTP, DFlash)
		case "role":
			out.Roles, err = words(m.value, Chat, Embedding, Reranking)
		case "moe":
			out.MoE, err = boolean(m.value)
		case "hadamard_q4_0":
			out.Hadamard, err = boolean(m.value)
		case "min_parallel":
			out.MinParallel, err = count(m.value)
		default:
			return out, fmt.Errorf("unknown key %q", m.key)
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", m.key, err)
		}
	}
	return out, nil
}

// parseEnv reads an object of variables and returns them as NAME=VALUE, in its order.
func parseEnv(raw json.RawMessage) ([]string, error) {
	members, err := object(raw)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range members {
		value, err := text(m.value)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", m.key, err)
		case m.key == "" || strings.ContainsAny(m.key, "=\x00"):
			return nil, fmt.Errorf("%q is no name of a variable", m.key)
		case strings.ContainsRune(value, 0):
			return nil, fmt.Errorf("%s: the value holds a zero character", m.key)
		}
		out = append(out, m.key+"="+value)
	}
	return out, nil
}

// member is one key of an object, with its value unread.
type member struct {
	key   string
	value json.RawMessage
}

// object reads a JSON object and nothing after it, in its order. A key that stands there twice is an error.
func object(raw []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	switch open, err := d.Token(); {
	case err != nil:
		return nil, notJSON(err)
	case open != json.Delim('{'):
		return nil, fmt.Errorf("%s is not an object", kind(raw))
	}
	var all []member
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		m := member{key: key.(string)} // the decoder refuses other keys
		if err := d.Decode(&m.value); err != nil {
			return nil, notJSON(err)
		}
		if seen[m.key] {
			return nil, fmt.Errorf("the key %q stands there twice", m.key)
		}
		seen[m.key] = true
		all = append(all, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, notJSON(err)
	}
	if rest := bytes.TrimSpace(raw[d.InputOffset():]); len(rest) > 0 {
		return nil, errors.New("something follows after the object")
	}
	return all, nil
}

func notJSON(err error) error { return fmt.Errorf("not JSON: %w", err) }

// array reads a JSON array, its elements unread.
func array(raw json.RawMessage) ([]json.RawMessage, error) {
	if kind(raw) != "a list" {
		return nil, fmt.Errorf("%s is not a list", kind(raw))
	}
	var list []json.RawMessage
	return list, json.Unmarshal(raw, &list)
}

// text reads a string.
func text(raw json.RawMessage) (string, error) {
	if kind(raw) != "a text" {
		return "", fmt.Errorf("%s is not a text", kind(raw))
	}
	var s string
	return s, json.Unmarshal(raw, &s)
}

// texts reads a list of strings.
func texts(raw json.RawMessage) ([]string, error) {
	list, err := array(raw)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range list {
		s, err := text(e)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// words reads a list of at least one word, each one of the known ones when there are such.
func words[T ~string](raw json.RawMessage, known ...T) ([]T, error) {
	list, err := texts(raw)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("the list is empty, so it would match nothing")
	}
	var all []T
	for _, s := range list {
		if len(known) > 0 && !slices.Contains(known, T(s)) {
			return nil, fmt.Errorf("%q is not one of %v", s, known)
		}
		all = append(all, T(s))
	}
	return all, nil
}

// boolean reads true or false.
func boolean(raw json.RawMessage) (*bool, error) {
	if kind(raw) != "a boolean" {
		return nil, fmt.Errorf("%s is not a boolean", kind(raw))
	}
	v := raw[0] == 't'
	return &v, nil
}

// count reads a whole number of at least 1.
func count(raw json.RawMessage) (int, error) {
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 1 {
		return 0, errors.New("it is not a whole number of at least 1")
	}
	return n, nil
}

// kind names what sort of value a JSON text is, by its first character.
func kind(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a text"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
