package wire

import (
	"fmt"
	"math"
	"strconv"

	"onebit/engine"
)

// The checks below look at one JSON value, known to be well formed, and return an *engine.InvalidError that names path.

func wrongType(path, want string) error {
	return &engine.InvalidError{Param: path, Code: "invalid_type", Message: fmt.Sprintf("%q must be %s", path, want)}
}

func wrongValue(path, want string) error {
	return &engine.InvalidError{Param: path, Code: "invalid_value", Message: fmt.Sprintf("%q must be %s", path, want)}
}

// isEmpty says that something has to be in a value.
func isEmpty(path string) error {
	return &engine.InvalidError{Param: path, Code: "invalid_value", Message: fmt.Sprintf("%q must not be empty", path)}
}

func isString(path string, v []byte) error {
	if v[0] != '"' {
		return wrongType(path, "a string")
	}
	return nil
}

func isBool(path string, v []byte) error {
	if v[0] != 't' && v[0] != 'f' {
		return wrongType(path, "true or false")
	}
	return nil
}

func isObject(path string, v []byte) error {
	if v[0] != '{' {
		return wrongType(path, "an object")
	}
	return nil
}

func isObjectOrArray(path string, v []byte) error {
	if v[0] != '{' && v[0] != '[' {
		return wrongType(path, "an object or an array")
	}
	return nil
}

func isStringOrObject(path string, v []byte) error {
	if v[0] != '"' && v[0] != '{' {
		return wrongType(path, "a string or an object")
	}
	return nil
}

// isObjects wants an array of objects.
func isObjects(path string, v []byte) error {
	return each(path, v, "an array of objects", func(at string, value []byte) error { return isObject(at, value) })
}

// each checks the elements of an array.
func each(path string, v []byte, want string, check func(path string, value []byte) error) error {
	var err error
	ok := elements(v, func(i int, value []byte) bool {
		err = check(path+"["+strconv.Itoa(i)+"]", value)
		return err == nil
	})
	if !ok {
		return wrongType(path, want)
	}
	return err
}

// number returns the value of a JSON number.
func number(path string, v []byte) (float64, error) {
	if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return 0, wrongType(path, "a number")
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return 0, wrongValue(path, "a number in range")
	}
	return f, nil
}

func isNumber(path string, v []byte) error {
	_, err := number(path, v)
	return err
}

func isAtLeastZero(path string, v []byte) error {
	f, err := number(path, v)
	if err == nil && f < 0 {
		return wrongValue(path, "at least 0")
	}
	return err
}

func isFraction(path string, v []byte) error {
	f, err := number(path, v)
	if err == nil && (f < 0 || f > 1) {
		return wrongValue(path, "between 0 and 1")
	}
	return err
}

// integer accepts 16 and 16.0 alike: some clients know floats only.
func integer(path string, v []byte) (float64, error) {
	f, err := number(path, v)
	if err == nil && f != math.Trunc(f) {
		return 0, wrongType(path, "a whole number")
	}
	return f, err
}

func isInteger(path string, v []byte) error {
	_, err := integer(path, v)
	return err
}

// isCount wants a whole number from 0 to the largest 32-bit one.
func isCount(path string, v []byte) error { return isBetween(path, v, 0) }

func isPositive(path string, v []byte) error { return isBetween(path, v, 1) }

func isBetween(path string, v []byte, low float64) error {
	f, err := integer(path, v)
	if err != nil {
		return err
	}
	if f < low {
		return wrongValue(path, fmt.Sprintf("at least %v", low))
	}
	if f > math.MaxInt32 {
		return wrongValue(path, fmt.Sprintf("at most %d", math.MaxInt32))
	}
	return nil
}

func isBoolOrCount(path string, v []byte) error {
	if v[0] == 't' || v[0] == 'f' {
		return nil
	}
	return isCount(path, v)
}

func isStop(path string, v []byte) error {
	if v[0] == '"' {
		return nil
	}
	return each(path, v, "a string or an array of strings", isString)
}

func isStreamOptions(path string, v []byte) error {
	if err := isObject(path, v); err != nil {
		return err
	}
	m := newMembers(v)
	for m.next() {
		if string(m.key) == "include_usage" && !isNull(m.value) {
			return isBool(path+".include_usage", m.value)
		}
	}
	return nil
}

// isPrompt accepts what a raw completion may start from: text, token ids, or an array of these.
func isPrompt(path string, v []byte) error {
	const want = "a string, an array of token ids, or an array of prompts"
	if v[0] == '"' {
		return nil
	}
	empty := true
	err := each(path, v, want, func(at string, value []byte) error {
		empty = false
		switch value[0] {
		case '"':
			return nil
		case '[':
			return each(at, value, want, isTokenOrText)
		}
		return isTokenOrText(at, value)
	})
	if err == nil && empty {
		return isEmpty(path)
	}
	return err
}

func isTokenOrText(path string, v []byte) error {
	if v[0] == '"' {
		return nil
	}
	return isCount(path, v)
}

// isMessages checks a conversation.
func isMessages(path string, v []byte) error {
	empty := true
	err := each(path, v, "an array of messages", func(at string, message []byte) error {
		empty = false
		return isMessage(at, message)
	})
	if err == nil && empty {
		return isEmpty(path)
	}
	return err
}

func isMessage(path string, v []byte) error {
	if err := isObject(path, v); err != nil {
		return err
	}
	role := false
	m := newMembers(v)
	for m.next() {
		at := path + "." + string(m.key)
		switch string(m.key) {
		case "role":
			role = true
			if err := isRole(at, m.value); err != nil {
				return err
			}
		case "content":
			if err := isContent(at, m.value); err != nil {
				return err
			}
		case "tool_calls":
			if isNull(m.value) {
				continue
			}
			if err := isObjects(at, m.value); err != nil {
				return err
			}
		case "name", "tool_call_id", "reasoning_content":
			if isNull(m.value) {
				continue
			}
			if err := isString(at, m.value); err != nil {
				return err
			}
		}
	}
	if !role {
		return &engine.InvalidError{Param: path + ".role", Code: "missing_required_parameter", Message: fmt.Sprintf("%q is required", path+".role")}
	}
	return nil
}

func isRole(path string, v []byte) error {
	role, ok := text(v)
	if !ok {
		return wrongType(path, "a string")
	}
	switch role {
	case "system", "developer", "user", "assistant", "tool", "function":
		return nil
	}
	return wrongValue(path, fmt.Sprintf("one of system, developer, user, assistant, tool, function; not %q", role))
}

// isContent accepts text, parts, and null, which stands beside tool calls.
func isContent(path string, v []byte) error {
	if v[0] == '"' || isNull(v) {
		return nil
	}
	return each(path, v, "a string or an array of parts", func(at string, part []byte) error {
		if part[0] == '"' {
			return nil
		}
		if err := isObject(at, part); err != nil {
			return err
		}
		m := newMembers(part)
		for m.next() {
			if key := string(m.key); key == "type" || key == "text" {
				if err := isString(at+"."+key, m.value); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// isInput accepts what a response may start from: text, or a list of items.
func isInput(path string, v []byte) error {
	if v[0] == '"' {
		return nil
	}
	return each(path, v, "a string or an array of items", isObject)
}

// isDocuments wants the texts to rank, bare or as objects.
func isDocuments(path string, v []byte) error {
	empty := true
	err := each(path, v, "an array of texts", func(at string, value []byte) error {
		empty = false
		return isStringOrObject(at, value)
	})
	if err == nil && empty {
		return isEmpty(path)
	}
	return err
}
